package fleetapi

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
)

// addTimeline creates the timeline if there is a store for it.
func (a *API) addTimeline(cfg Config, deps Deps) (err error) {
	if deps.Timeline == nil {
		return nil
	}
	a.timeline, err = timeline.New(cfg.Timeline, timeline.Deps{
		Store: deps.Timeline, Log: deps.Log, Metrics: deps.Metrics, MaxBody: a.maxBody, MaxStreams: cfg.MaxWatches,
		Authenticate: func(ctx context.Context, authorization string) (auth.Principal, error) {
			who, err := a.auth.Authenticate(ctx, authorization)
			if err != nil {
				return who, explainAuthError(err)
			}
			return who, nil
		},
	})
	return err
}

// RunWatches reads changes for the open watches until ctx ends.
func (a *API) RunWatches(ctx context.Context) error {
	if a.timeline == nil {
		return a.hub.Run(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.hub.Run(ctx) })
	g.Go(func() error { return a.timeline.Run(ctx) })
	return g.Wait()
}

// EndWatches closes the open watches and refuses new ones. Without it, a server that stops would
// wait for them.
func (a *API) EndWatches() {
	a.hub.Stop()
	if a.timeline != nil {
		a.timeline.Stop()
	}
}

// wakeWatches wakes the watches after a commit, which may have recorded change events.
func (a *API) wakeWatches() {
	a.hub.Nudge()
	if a.timeline != nil {
		a.timeline.Nudge()
	}
}
