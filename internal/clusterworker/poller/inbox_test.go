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
	for k, s := range b.takeAll() {
		all[k.name] = ""
		if s.shoot != nil {
			all[k.name] = s.shoot.ResourceVersion
		}
	}
	return all
}

func at(version string) observation {
	return observation{shoot: &shoot.Observed{ResourceVersion: version}, told: true}
}

// TestInbox: the newest observation of each Shoot counts, regardless of its source.
func TestInbox(t *testing.T) {
	a := key{name: "a"}
	cases := map[string]struct {
		reason string
		do     func(t *testing.T, b *inbox)
		want   map[string]string
	}{
		"Newest": {"events come in order", func(_ *testing.T, b *inbox) {
			b.putWatched(0, a, at("1"))
			b.putWatched(0, a, at("2"))
		}, map[string]string{"a": "2"}},
		"LastEpoch": {"what an old watch tells late is older than the list", func(_ *testing.T, b *inbox) {
			b.resetEpoch()
			b.putWatched(0, a, at("1"))
		}, map[string]string{}},
		"Reset": {"what was not read before a list is older than it", func(_ *testing.T, b *inbox) {
			b.putWatched(0, a, at("1"))
			b.resetEpoch()
		}, map[string]string{}},
		"Back": {"what is put back is older than what came since", func(_ *testing.T, b *inbox) {
			b.putWatched(0, a, at("2"))
			b.putBack(map[key]observation{a: at("1"), {name: "b"}: at("1")})
		}, map[string]string{"a": "2", "b": "1"}},
		"LookBeforeEvent": {"an event is newer than a look that began before it", func(t *testing.T, b *inbox) {
			t.Helper()
			l := asked(t, b, liveRead{key: a})
			b.putWatched(0, a, at("2"))
			b.takeAll()
			b.putRead(l, at("1"))
		}, map[string]string{}},
		"LookBeforeList": {"so is a list", func(t *testing.T, b *inbox) {
			t.Helper()
			l := asked(t, b, liveRead{key: a})
			b.resetEpoch()
			b.putRead(l, at("1"))
		}, map[string]string{}},
		"OldLook": {"a look for an older question answers no newer one", func(t *testing.T, b *inbox) {
			t.Helper()
			l := asked(t, b, liveRead{key: a})
			b.resetEpoch()
			asked(t, b, liveRead{key: a})
			b.putRead(l, at("1"))
		}, map[string]string{}},
		"Look": {"otherwise it counts", func(t *testing.T, b *inbox) {
			t.Helper()
			b.putRead(asked(t, b, liveRead{key: a}), at("1"))
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
	if !b.requestRead(l) {
		t.Fatal("a look was not asked for")
	}
	got, ok := b.nextRead(t.Context())
	if !ok || got.key != l.key {
		t.Fatalf("got the look %v", got)
	}
	return got
}

// TestLooks: a Shoot is read once for several requests; an obsolete read is not
// performed; and a request survives an event that replaces its read.
func TestLooks(t *testing.T) {
	b := newInbox()
	l := liveRead{key: key{name: "a"}, thorough: true}
	if !b.requestRead(l) || b.requestRead(l) || b.outstanding() != 1 {
		t.Error("it was asked for twice")
	}
	b.putWatched(0, l.key, at("1"))
	if b.outstanding() != 0 {
		t.Error("it is still asked for")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, ok := b.nextRead(ctx); ok {
		t.Errorf("%v was to be looked up", got)
	}
	b.putWatched(0, l.key, at("2"))
	if s := b.takeAll()[l.key]; !s.thorough {
		t.Error("what was asked is forgotten")
	}
}
