package operator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator/instance"
)

const (
	// requestTimeout bounds one request to the Kubernetes API.
	requestTimeout = 10 * time.Second
	// lookEvery is how often the state is looked at that nobody tells of: that
	// of the connections.
	lookEvery = time.Second
	// farewell bounds the last request of a replica that leaves.
	farewell = 2 * time.Second
)

var errNoAnswer = errors.New("no response from the Kubernetes API in time")

// A reporter writes how an instance is doing into the status of its object,
// and tells by Kubernetes events what has become of it. It holds up nothing
// while the Kubernetes API is away.
type reporter struct {
	ref    reference
	writer writer
	tell   teller
	log    *slog.Logger
	woken  chan struct{}
	told   story // by events
}

func newReporter(ref reference, identity string, h host, t teller, log *slog.Logger) *reporter {
	return &reporter{ref: ref, writer: writer{ref: ref, identity: identity, host: h}, tell: t, log: log, woken: make(chan struct{}, 1)}
}

// requestReport has the state looked at. It does not wait.
func (r *reporter) requestReport() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// reportUntilDone reports until ctx ends.
func (r *reporter) reportUntilDone(ctx context.Context, state func() instance.State) {
	defer r.removeOwnStatus(ctx)
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	retry := backoff.Policy{Initial: time.Second, Max: 15 * time.Second}
	failures := 0
	var next time.Time // until when nothing is written
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.woken:
		case <-ticker.C:
		}
		s, now := state(), time.Now()
		if s.Seen == 0 {
			continue
		}
		r.told = r.told.goOn(s, now, func(warning bool, reason, note string) {
			r.tell.Tell(ctx, r.ref, s, happening{warning: warning, reason: reason, note: note})
		})
		if now.Before(next) {
			continue
		}
		err := r.writer.writeStatus(ctx, s, now)
		switch {
		case err == nil:
			failures = 0
			continue
		case ctx.Err() != nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
			// It is gone, or another has its name: whoever watches finds out.
		case failures == 0:
			r.log.WarnContext(ctx, "status update failed, retrying", "err", err)
		}
		next = time.Now().Add(retry.Delay(failures))
		failures++
	}
}

// removeOwnStatus takes away what this replica alone has written.
func (r *reporter) removeOwnStatus(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), farewell, errNoAnswer)
	defer cancel()
	if err := r.writer.removeOwnEntry(ctx); err != nil && !apierrors.IsNotFound(err) {
		r.log.WarnContext(ctx, "replica status not removed", "err", err)
	}
}
