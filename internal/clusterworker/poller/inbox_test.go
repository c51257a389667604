package poller

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// versions returns the versions of the Shoots in an inbox.
func (b *inbox) versions() map[string]string {
	all := map[string]string{}
	for k, s := range b.takeAllObservations() {
		all[k.name] = ""
		if s.shoot != nil {
			all[k.name] = s.shoot.ResourceVersion
		}
	}
	return all
}

func at(version string) observation {
	return observation{shoot: &shoot.Observed{ResourceVersion: version}, fromWatch: true}
}

// TestInbox: the newest observation of each Shoot counts, regardless of its source.
func TestInbox(t *testing.T) {
	a := shootKey{name: "a"}
	cases := map[string]struct {
		reason string
		do     func(t *testing.T, b *inbox)
		want   map[string]string
	}{
		"Newest": {"events come in order", func(_ *testing.T, b *inbox) {
			b.putWatchObservation(0, a, at("1"))
			b.putWatchObservation(0, a, at("2"))
		}, map[string]string{"a": "2"}},
		"LastEpoch": {"what an old watch tells late is older than the list", func(_ *testing.T, b *inbox) {
			b.clearForNewEpoch()
			b.putWatchObservation(0, a, at("1"))
		}, map[string]string{}},
		"Reset": {"what was not read before a list is older than it", func(_ *testing.T, b *inbox) {
			b.putWatchObservation(0, a, at("1"))
			b.clearForNewEpoch()
		}, map[string]string{}},
		"Back": {"what is put back is older than what came since", func(_ *testing.T, b *inbox) {
			b.putWatchObservation(0, a, at("2"))
			b.putBackObservations(map[shootKey]observation{a: at("1"), {name: "b"}: at("1")})
		}, map[string]string{"a": "2", "b": "1"}},
		"LookBeforeEvent": {"an event is newer than a look that began before it", func(t *testing.T, b *inbox) {
			t.Helper()
			l := asked(t, b, liveRead{shootKey: a})
			b.putWatchObservation(0, a, at("2"))
			b.takeAllObservations()
			b.putLiveReadResultIfCurrent(l, at("1"))
		}, map[string]string{}},
		"LookBeforeList": {"so is a list", func(t *testing.T, b *inbox) {
			t.Helper()
			l := asked(t, b, liveRead{shootKey: a})
			b.clearForNewEpoch()
			b.putLiveReadResultIfCurrent(l, at("1"))
		}, map[string]string{}},
		"OldLook": {"a look for an older question answers no newer one", func(t *testing.T, b *inbox) {
			t.Helper()
			l := asked(t, b, liveRead{shootKey: a})
			b.clearForNewEpoch()
			asked(t, b, liveRead{shootKey: a})
			b.putLiveReadResultIfCurrent(l, at("1"))
		}, map[string]string{}},
		"Look": {"otherwise it counts", func(t *testing.T, b *inbox) {
			t.Helper()
			b.putLiveReadResultIfCurrent(asked(t, b, liveRead{shootKey: a}), at("1"))
		}, map[string]string{"a": "1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newInbox()
			tc.do(t, b)
			if diff := cmp.Diff(tc.want, b.versions()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// asked requests a live read and takes it from the queue.
func asked(t *testing.T, b *inbox, l liveRead) liveRead {
	t.Helper()
	if !b.queueLiveReadIfNotPending(l) {
		t.Fatal("a look was not asked for")
	}
	got, ok := b.waitForNextRead(t.Context())
	if !ok || got.shootKey != l.shootKey {
		t.Fatalf("got the look %v", got)
	}
	return got
}

// TestLooks: a Shoot is read once for several requests; an obsolete read is not
// performed; and a request survives an event that replaces its read.
func TestLooks(t *testing.T) {
	b := newInbox()
	l := liveRead{shootKey: shootKey{name: "a"}, checkDrift: true}
	if !b.queueLiveReadIfNotPending(l) || b.queueLiveReadIfNotPending(l) || b.countUnansweredReads() != 1 {
		t.Error("it was asked for twice")
	}
	b.putWatchObservation(0, l.shootKey, at("1"))
	if b.countUnansweredReads() != 0 {
		t.Error("it is still asked for")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, ok := b.waitForNextRead(ctx); ok {
		t.Errorf("%v was to be looked up", got)
	}
	b.putWatchObservation(0, l.shootKey, at("2"))
	if s := b.takeAllObservations()[l.shootKey]; !s.checkDrift {
		t.Error("what was asked is forgotten")
	}
}
