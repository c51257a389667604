package operator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	// requestTimeout limits one request to the Kubernetes API.
	requestTimeout = 10 * time.Second
	// lookEvery is the interval for polling the state of the connections, which has no
	// notification.
	lookEvery = time.Second
	// farewell limits the last request of a replica that stops.
	farewell = 2 * time.Second
)

var errNoAnswer = errors.New("no response from the Kubernetes API in time")

// A reporter writes the state of an instance to the status of its object, and emits Kubernetes
// events about changes. It does not block while the Kubernetes API is down.
type reporter struct {
	ref    reference
	writer writer
	tell   eventEmitter
	log    *slog.Logger
	woken  chan struct{}
	told   reportedEvents // by events
}

func newReporter(ref reference, identity string, h host, t eventEmitter, log *slog.Logger) *reporter {
	return &reporter{
		ref:    ref,
		writer: writer{ref: ref, identity: identity, host: h},
		tell:   t,
		log:    log,
		woken:  make(chan struct{}, 1),
	}
}

// requestReport requests a report. It does not block.
func (r *reporter) requestReport() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// reportChangesThenRemoveStatus reports until ctx ends.
func (r *reporter) reportChangesThenRemoveStatus(ctx context.Context, state func() InstanceState) {
	defer r.removeOwnStatus(ctx)
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	retry := backoff.Policy{Initial: time.Second, Max: 15 * time.Second}
	failures := 0
	var retryAt time.Time // no status is written before this time
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
		r.told = r.told.emitChanges(s, now, func(warning bool, reason, note string) {
			r.tell.EmitOrLogEvent(ctx, r.ref, s, eventContent{warning: warning, reason: reason, note: note})
		})
		if now.Before(retryAt) {
			continue
		}
		err := r.writer.writeStatusIfDue(ctx, s, now)
		switch {
		case err == nil:
			failures = 0
			continue
		case ctx.Err() != nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
			// The object is gone, or another has its name, which the reconciler will find out.
		case failures == 0:
			r.log.WarnContext(ctx, "status update failed, retrying", "err", err)
		}
		retryAt = time.Now().Add(retry.Delay(failures))
		failures++
	}
}

// removeOwnStatus removes the part of the status that only this replica has written.
func (r *reporter) removeOwnStatus(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), farewell, errNoAnswer)
	defer cancel()
	if err := r.writer.removeOwnEntry(ctx); err != nil && !apierrors.IsNotFound(err) {
		r.log.WarnContext(ctx, "replica status not removed", "err", err)
	}
}
