package operator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator/instance"
)

const (
	// requestTimeout bounds one request to the Kubernetes API.
	requestTimeout = 10 * time.Second
	// countsEvery is how often a status is written that differs from the one
	// before in its counts alone.
	countsEvery = 10 * time.Second
	// lookEvery is how often the state is looked at that nobody tells of: that
	// of the connections.
	lookEvery = time.Second
	// farewell bounds the last request of a replica that leaves.
	farewell = 2 * time.Second
)

var errNoAnswer = errors.New("the Kubernetes API did not answer in time")

// A reporter writes how an instance is doing into the status of its object,
// and tells by Kubernetes events what has become of it.
//
// What means something is written at once, counts every ten seconds. Where
// replicas share an object, each has an entry of its own under status.replicas,
// with a field owner of its own; conditions and totals are written by the
// member of the group that sorts first, under one field owner for all, so that
// nothing goes when another takes over. It also takes away the entries of
// replicas that are gone.
type reporter struct {
	ref      reference
	identity string
	host     host
	tell     teller
	log      *slog.Logger
	woken    chan struct{}
	now      func() time.Time

	told story // by events
	own  bool  // there is an entry of ours under status.replicas
}

func newReporter(ref reference, identity string, h host, t teller, log *slog.Logger) *reporter {
	return &reporter{ref: ref, identity: identity, host: h, tell: t, log: log, woken: make(chan struct{}, 1), now: time.Now}
}

// wake has the state looked at. It does not wait.
func (r *reporter) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// run reports until ctx ends. before is the status as it was found.
func (r *reporter) run(ctx context.Context, before *v1alpha1.SentinelConfigStatus, state func() instance.State) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	w := written{status: *before}
	failures := 0
	var again time.Time
	for {
		select {
		case <-ctx.Done():
			r.leave(ctx)
			return
		case <-r.woken:
		case <-ticker.C:
		}
		now := r.now()
		s := state()
		if s.Seen == 0 {
			continue
		}
		r.told = r.told.goOn(s, now, func(warning bool, reason, note string) {
			r.tell.Tell(r.ref, s.Seen, warning, reason, note)
		})
		if now.Before(again) {
			continue
		}
		err := r.write(ctx, &w, s, now)
		switch {
		case err == nil:
			failures, again = 0, time.Time{}
		case ctx.Err() != nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
			// It is gone, or another has its name. Whoever watches finds out.
		default:
			if failures == 0 {
				r.log.WarnContext(ctx, "status not written", "err", err)
			}
			again = now.Add(retryStatus().Delay(failures))
			failures++
		}
	}
}

func retryStatus() backoff.Policy { return backoff.Policy{Initial: time.Second, Max: 15 * time.Second} }

// written is what a reporter has written last.
type written struct {
	status  v1alpha1.SentinelConfigStatus
	replica v1alpha1.ReplicaStatus
	leading bool
	at      time.Time // zero: nothing yet
}

// write writes what has changed, if it is time.
func (r *reporter) write(ctx context.Context, w *written, s instance.State, now time.Time) error {
	next := *w
	leading := !s.Grouped || len(s.Members) > 0 && s.Members[0] == r.identity
	if leading && !w.leading && !w.at.IsZero() {
		// Another has written what is there.
		if sc, err := r.host.Get(ctx, r.ref.NamespacedName); err == nil && sc.UID == r.ref.UID {
			next.status = sc.Status
		}
	}
	next.leading = leading
	due := w.at.IsZero() || now.Sub(w.at) >= countsEvery
	if s.Grouped {
		next.replica = replicaOf(r.identity, s)
		if due && next.replica != w.replica || !r.own {
			if err := r.host.ApplyStatus(ctx, r.ref, &v1alpha1.SentinelConfigStatus{Replicas: []v1alpha1.ReplicaStatus{next.replica}}, r.owner(r.identity)); err != nil {
				return err
			}
			r.own, next.at = true, now
		}
	} else if r.own {
		if err := r.disown(ctx, r.identity); err != nil {
			return err
		}
		r.own = false
	}
	if leading {
		next.status = statusOf(&next.status, s, now)
		if s.Grouped {
			if err := r.total(ctx, &next.status, s); err != nil {
				return err
			}
		}
		if !w.leading || means(&w.status, &next.status) || due && counts(&w.status, &next.status) {
			if err := r.host.ApplyStatus(ctx, r.ref, &next.status, component); err != nil {
				return err
			}
			next.at = now
		} else {
			next.status = w.status
		}
	}
	*w = next
	return nil
}

// owner is the field owner of a replica's entry.
func (r *reporter) owner(identity string) string { return component + "/" + identity }

// disown takes away the entry of a replica.
func (r *reporter) disown(ctx context.Context, identity string) error {
	return r.host.ApplyStatus(ctx, r.ref, &v1alpha1.SentinelConfigStatus{}, r.owner(identity))
}

// total adds up what the replicas have written, and takes away the entries of
// those that are gone.
func (r *reporter) total(ctx context.Context, status *v1alpha1.SentinelConfigStatus, s instance.State) error {
	sc, err := r.host.Get(ctx, r.ref.NamespacedName)
	if err != nil {
		return err
	}
	for _, replica := range sc.Status.Replicas {
		switch {
		case replica.Name == r.identity: // counted
		case slices.Contains(s.Members, replica.Name):
			status.ResourcesWatched += replica.ResourcesOwned
			status.EventsPublished += replica.EventsPublished
			if replica.LastRoundTime != nil && (status.LastRoundTime == nil || status.LastRoundTime.Before(replica.LastRoundTime)) {
				status.LastRoundTime = replica.LastRoundTime
			}
		default:
			if err := r.disown(ctx, replica.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave takes away the entry of this replica.
func (r *reporter) leave(ctx context.Context) {
	if !r.own {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), farewell, errNoAnswer)
	defer cancel()
	if err := r.disown(ctx, r.identity); err != nil && !apierrors.IsNotFound(err) {
		r.log.WarnContext(ctx, "entry in status not taken away", "err", err)
	}
}

// means says whether two statuses differ in more than counts and texts.
func means(a, b *v1alpha1.SentinelConfigStatus) bool {
	if a.ObservedGeneration != b.ObservedGeneration || len(a.Conditions) != len(b.Conditions) {
		return true
	}
	if (a.LastRoundTime == nil) != (b.LastRoundTime == nil) {
		return true // the first round is news
	}
	for _, c := range b.Conditions {
		before := meta.FindStatusCondition(a.Conditions, c.Type)
		if before == nil || before.Status != c.Status || before.Reason != c.Reason || before.ObservedGeneration != c.ObservedGeneration {
			return true
		}
	}
	return false
}

// counts says whether two statuses differ in counts or texts.
func counts(a, b *v1alpha1.SentinelConfigStatus) bool {
	if a.ResourcesWatched != b.ResourcesWatched || a.EventsPublished != b.EventsPublished || !a.LastRoundTime.Equal(b.LastRoundTime) {
		return true
	}
	return !slices.Equal(a.Conditions, b.Conditions)
}
