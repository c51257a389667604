package operator

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator/instance"
)

// countsEvery is how often a status is written that differs from the one
// before in its counts and texts alone.
const countsEvery = 10 * time.Second

// A writer writes the status of one object, or this replica's part of it.
//
// What means something is written at once, counts every ten seconds. Where
// replicas share an object, each has an entry of its own under status.replicas,
// with a field owner of its own; all else is written by the member of the group
// that sorts first, under one field owner for all, so that nothing goes when
// another takes over. It also takes away the entries of replicas that are gone.
// Where nobody is a member, and so nobody is served, any of them says so.
type writer struct {
	ref      reference
	identity string
	host     host

	own   *v1alpha1.ReplicaStatus // our entry as it was written; nil: there is none
	ownAt time.Time

	last   *v1alpha1.SentinelConfigStatus // as we wrote it; nil: others did, or nobody
	lastAt time.Time
}

// writeStatus writes what has changed, if it is time.
func (w *writer) writeStatus(ctx context.Context, s instance.State, now time.Time) error {
	if err := w.writeEntry(ctx, s, now); err != nil {
		return err
	}
	if speaks, err := w.isStatusWriter(ctx, s, now); err != nil || !speaks {
		w.last = nil
		return err
	}
	before := w.last
	if before == nil {
		sc, err := w.host.Get(ctx, w.ref.NamespacedName)
		if err != nil {
			return err
		}
		before = &sc.Status
	}
	next := statusOf(before, s, now)
	if len(s.Members) > 0 {
		if err := w.sumEntries(ctx, &next, s); err != nil {
			return err
		}
	}
	if w.last != nil && !differsInMeaning(w.last, &next) && (now.Sub(w.lastAt) < countsEvery || equalStatus(w.last, &next)) {
		return nil
	}
	if err := w.host.ApplyStatus(ctx, w.ref, &next, component); err != nil {
		return err
	}
	w.last, w.lastAt = &next, now
	return nil
}

const (
	// outside is how long a replica may take to become a member of its group.
	outside = 30 * time.Second
	// recent is how old the last round of a replica may be that does its work,
	// by another's clock.
	recent = time.Minute
)

// isStatusWriter says whether it is this replica that writes all but the entries.
func (w *writer) isStatusWriter(ctx context.Context, s instance.State, now time.Time) (bool, error) {
	switch {
	case !s.Grouped:
		return true, nil
	case len(s.Members) > 0:
		return s.Members[0] == w.identity, nil
	case s.Group == nil || now.Sub(s.Begun) < outside:
		return false, nil
	}
	sc, err := w.host.Get(ctx, w.ref.NamespacedName)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(sc.Status.Replicas, func(r v1alpha1.ReplicaStatus) bool {
		return r.Name != w.identity && r.ResourcesOwned > 0 && r.LastPollTime != nil && now.Sub(r.LastPollTime.Time) < recent
	}), nil
}

// writeEntry writes our entry under status.replicas, or takes it away.
func (w *writer) writeEntry(ctx context.Context, s instance.State, now time.Time) error {
	if !s.Grouped {
		return w.removeOwnEntry(ctx)
	}
	entry := replicaOf(w.identity, s)
	if w.own != nil && (now.Sub(w.ownAt) < countsEvery || entry.ResourcesOwned == w.own.ResourcesOwned &&
		entry.EventsPublished == w.own.EventsPublished && entry.LastPollTime.Equal(w.own.LastPollTime)) {
		return nil
	}
	status := &v1alpha1.SentinelConfigStatus{Replicas: []v1alpha1.ReplicaStatus{entry}}
	if err := w.host.ApplyStatus(ctx, w.ref, status, ownerOf(w.identity)); err != nil {
		return err
	}
	w.own, w.ownAt = &entry, now
	return nil
}

// removeOwnEntry takes away our entry, if there is one.
func (w *writer) removeOwnEntry(ctx context.Context) error {
	if w.own == nil {
		return nil
	}
	if err := w.removeEntryOf(ctx, w.identity); err != nil {
		return err
	}
	w.own = nil
	return nil
}

// ownerOf is the field owner of a replica's entry.
func ownerOf(identity string) string { return component + "/" + identity }

// removeEntryOf takes away the entry of a replica: it applies nothing in its name.
func (w *writer) removeEntryOf(ctx context.Context, identity string) error {
	return w.host.ApplyStatus(ctx, w.ref, &v1alpha1.SentinelConfigStatus{}, ownerOf(identity))
}

// sumEntries adds up what the replicas have written, and takes away the entries of
// those that are gone.
func (w *writer) sumEntries(ctx context.Context, status *v1alpha1.SentinelConfigStatus, s instance.State) error {
	sc, err := w.host.Get(ctx, w.ref.NamespacedName)
	if err != nil {
		return err
	}
	for _, replica := range sc.Status.Replicas {
		switch {
		case replica.Name == w.identity: // counted
		case slices.Contains(s.Members, replica.Name):
			status.ResourcesWatched += replica.ResourcesOwned
			status.EventsPublished += replica.EventsPublished
			if status.LastPollTime.Before(replica.LastPollTime) {
				status.LastPollTime = replica.LastPollTime
			}
		default:
			if err := w.removeEntryOf(ctx, replica.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// differsInMeaning says whether two statuses differ in more than counts and texts.
func differsInMeaning(a, b *v1alpha1.SentinelConfigStatus) bool {
	if a.ObservedGeneration != b.ObservedGeneration || a.Selector != b.Selector || len(a.Conditions) != len(b.Conditions) {
		return true
	}
	if (a.LastPollTime == nil) != (b.LastPollTime == nil) {
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

// equalStatus says whether two statuses that mean the same do not differ at all.
func equalStatus(a, b *v1alpha1.SentinelConfigStatus) bool {
	return a.ResourcesWatched == b.ResourcesWatched && a.EventsPublished == b.EventsPublished &&
		a.LastPollTime.Equal(b.LastPollTime) && slices.Equal(a.Conditions, b.Conditions)
}
