package fleetapi

import (
	"context"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
)

func (a *API) initTimelineIfStored(cfg Config, deps Deps) (err error) {
	if deps.Timeline == nil {
		return nil
	}
	a.timeline, err = timeline.New(cfg.Timeline, timeline.Deps{
		Store: deps.Timeline, Log: deps.Log, Metrics: deps.Metrics, MaxBody: a.maxBody, MaxStreams: cfg.MaxWatches,
		Authenticate: func(ctx context.Context, header http.Header) (auth.Principal, error) {
			who, err := a.auth.AuthenticateAndImpersonate(ctx, header)
			if err != nil {
				return who, toAuthProblem(err)
			}
			return who, nil
		},
	})
	return err
}

// RunWatchHubs reads changes for the open watches until ctx ends.
func (a *API) RunWatchHubs(ctx context.Context) error {
	if a.timeline == nil {
		return a.hub.Run(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.hub.Run(ctx) })
	g.Go(func() error { return a.timeline.Run(ctx) })
	return g.Wait()
}

// StopWatches closes the open watches and refuses new ones. Without it, a server that stops would wait for them.
func (a *API) StopWatches() {
	a.hub.Stop()
	if a.timeline != nil {
		a.timeline.Stop()
	}
}

// triggerWatchReads wakes the watches after a commit, which may have recorded change events.
func (a *API) triggerWatchReads() {
	a.hub.TriggerRead()
	if a.timeline != nil {
		a.timeline.TriggerStreamRead()
	}
}
