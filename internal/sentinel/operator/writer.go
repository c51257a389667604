package operator

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
)

// countsEvery is the interval at which changes of counts and texts alone are written to the status.
const countsEvery = 10 * time.Second

// A writer writes the status of one object, or this replica's part of it.
//
// It writes significant changes at once, and counts every ten seconds. If replicas share an object,
// each has its own entry under status.replicas, with its own field owner. The group member that
// sorts first writes all other fields, under a common field owner, so that no field disappears when
// another member takes over. It also removes the entries of replicas that are gone. Without any
// member, no resource is served, and any replica reports that.
type writer struct {
	ref      reference
	identity string
	host     host

	own   *v1alpha1.ReplicaStatus // this replica's entry as it was written; nil if none was
	ownAt time.Time

	last   *v1alpha1.SentinelConfigStatus // as this replica wrote it; nil if another replica or none did
	lastAt time.Time
}

// writeStatusIfDue writes the changes that are due.
func (w *writer) writeStatusIfDue(ctx context.Context, s InstanceState, now time.Time) error {
	if err := w.writeOrRemoveReplicaEntry(ctx, s, now); err != nil {
		return err
	}
	isWriter, err := w.isStatusWriter(ctx, s, now)
	if err != nil || !isWriter {
		w.last = nil
		return err
	}
	previous := w.last
	if previous == nil {
		sc, err := w.host.Get(ctx, w.ref.NamespacedName)
		if err != nil {
			return err
		}
		previous = &sc.Status
	}
	next := buildStatus(previous, s, now)
	if len(s.Members) > 0 {
		if err := w.addOtherReplicaCountsAndPrune(ctx, &next, s); err != nil {
			return err
		}
	}
	if !w.isWriteDue(&next, now) {
		return nil
	}
	if err := w.host.ApplyStatus(ctx, w.ref, &next, component); err != nil {
		return err
	}
	w.last, w.lastAt = &next, now
	return nil
}

// isWriteDue reports whether a status differs from the written one, in its meaning, or in its counts
// and texts after a while.
func (w *writer) isWriteDue(next *v1alpha1.SentinelConfigStatus, now time.Time) bool {
	if w.last == nil || differsInMeaning(w.last, next) {
		return true
	}
	return now.Sub(w.lastAt) >= countsEvery && !equalCountsAndConditions(w.last, next)
}

const (
	// outside is how long a replica may take to become a member of its group.
	outside = 30 * time.Second
	// recent is the maximum age of the last round of a working replica, by another replica's clock.
	recent = time.Minute
)

// isStatusWriter reports whether this replica writes the fields outside the entries.
func (w *writer) isStatusWriter(ctx context.Context, s InstanceState, now time.Time) (isWriter bool, err error) {
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
	// This replica is outside the group. It reports that only if no other replica works.
	otherWorks := slices.ContainsFunc(sc.Status.Replicas, func(r v1alpha1.ReplicaStatus) bool {
		hasPolled := r.LastPollTime != nil && now.Sub(r.LastPollTime.Time) < recent
		return r.Name != w.identity && r.ResourcesOwned > 0 && hasPolled
	})
	return !otherWorks, nil
}

// writeOrRemoveReplicaEntry writes this replica's entry under status.replicas, or removes it.
func (w *writer) writeOrRemoveReplicaEntry(ctx context.Context, s InstanceState, now time.Time) error {
	if !s.Grouped {
		return w.removeOwnEntry(ctx)
	}
	entry := buildReplicaStatus(w.identity, s)
	if w.own != nil && (now.Sub(w.ownAt) < countsEvery || equalCounts(&entry, w.own)) {
		return nil
	}
	status := &v1alpha1.SentinelConfigStatus{Replicas: []v1alpha1.ReplicaStatus{entry}}
	if err := w.host.ApplyStatus(ctx, w.ref, status, fieldOwnerOf(w.identity)); err != nil {
		return err
	}
	w.own, w.ownAt = &entry, now
	return nil
}

// equalCounts reports whether two entries of the same replica are equal.
func equalCounts(a, b *v1alpha1.ReplicaStatus) bool {
	return a.ResourcesOwned == b.ResourcesOwned &&
		a.EventsPublished == b.EventsPublished &&
		a.LastPollTime.Equal(b.LastPollTime)
}

// removeOwnEntry removes this replica's entry, if there is one.
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

// fieldOwnerOf returns the field owner of a replica's entry.
func fieldOwnerOf(identity string) string { return component + "/" + identity }

// removeEntryOf removes the entry of a replica: it applies an empty configuration as that replica's
// field owner.
func (w *writer) removeEntryOf(ctx context.Context, identity string) error {
	return w.host.ApplyStatus(ctx, w.ref, &v1alpha1.SentinelConfigStatus{}, fieldOwnerOf(identity))
}

// addOtherReplicaCountsAndPrune adds up the counts of the replicas, and removes the entries of those
// that are gone.
func (w *writer) addOtherReplicaCountsAndPrune(
	ctx context.Context, status *v1alpha1.SentinelConfigStatus, s InstanceState,
) error {
	sc, err := w.host.Get(ctx, w.ref.NamespacedName)
	if err != nil {
		return err
	}
	for _, replica := range sc.Status.Replicas {
		switch {
		case replica.Name == w.identity: // already counted
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

// differsInMeaning reports whether two statuses differ in more than counts and texts.
func differsInMeaning(a, b *v1alpha1.SentinelConfigStatus) bool {
	if a.ObservedGeneration != b.ObservedGeneration || a.Selector != b.Selector || len(a.Conditions) != len(b.Conditions) {
		return true
	}
	if (a.LastPollTime == nil) != (b.LastPollTime == nil) {
		return true // the first round is significant
	}
	for _, c := range b.Conditions {
		before := meta.FindStatusCondition(a.Conditions, c.Type)
		if before == nil {
			return true
		}
		if before.Status != c.Status || before.Reason != c.Reason || before.ObservedGeneration != c.ObservedGeneration {
			return true
		}
	}
	return false
}

// equalCountsAndConditions reports whether two statuses with the same meaning are completely equal.
func equalCountsAndConditions(a, b *v1alpha1.SentinelConfigStatus) bool {
	return a.ResourcesWatched == b.ResourcesWatched && a.EventsPublished == b.EventsPublished &&
		a.LastPollTime.Equal(b.LastPollTime) && slices.Equal(a.Conditions, b.Conditions)
}
