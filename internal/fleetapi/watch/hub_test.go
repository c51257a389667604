package watch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/selector"
)

func (f *fixture) put(ids ...string) {
	for _, id := range ids {
		f.feed.put(id, nil)
	}
}

func wantTold(t *testing.T, c *client, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, c.told()); diff != "" {
		t.Fatalf("told (-want +got):\n%s", diff)
	}
}

// TestFromNow checks that a watch begins with a bookmark and continues with prompt changes.
func TestFromNow(t *testing.T) {
	run(t, nil, func(f *fixture) {
		f.put("before")
		w := f.watch(everything())
		wantTold(t, w.client, "bookmark")

		pass(time.Second)
		changed := time.Now()
		f.put("a")
		pass(30 * time.Millisecond)
		wantTold(t, w.client, "bookmark", "changed a")
		if took := w.all()[1].at.Sub(changed); took > 25*time.Millisecond {
			t.Errorf("the event came after %s", took)
		}

		pass(time.Second + 5*time.Millisecond)
		changed = time.Now()
		f.feed.remove("a")
		f.hub.TriggerRead()
		pass(30 * time.Millisecond)
		wantTold(t, w.client, "bookmark", "changed a", "removed a")
		if took := w.all()[2].at.Sub(changed); took > 2*time.Millisecond {
			t.Errorf("nudged, the event came after %s", took)
		}
	})
}

// TestNudgesDoNotAddUp checks that many writers do not cause many reads.
func TestNudgesDoNotAddUp(t *testing.T) {
	run(t, nil, func(f *fixture) {
		f.watch(everything())
		before, _ := f.feed.counts()
		for i := range 1000 {
			f.put(fmt.Sprint("c-", i))
			f.hub.TriggerRead()
			pass(time.Millisecond)
		}
		if after, _ := f.feed.counts(); after-before > 101 {
			t.Errorf("%d reads in a second", after-before)
		}
		before, _ = f.feed.counts()
		f.feed.hold(true) // new changes are not settled
		for range 1000 {
			f.put("a")
			f.hub.TriggerRead()
			pass(time.Millisecond)
		}
		if after, _ := f.feed.counts(); after-before > 501 {
			t.Errorf("%d reads in a second that found nothing", after-before)
		}
	})
}

// TestFewChangesDoNotWaitForEachOther checks that a nudged change is sent at once although another one was just sent.
func TestFewChangesDoNotWaitForEachOther(t *testing.T) {
	run(t, nil, func(f *fixture) {
		w := f.watch(everything())
		pass(time.Second)
		for i := range 20 {
			changed := time.Now()
			f.put(fmt.Sprint("c-", i))
			f.hub.TriggerRead()
			pass(5 * time.Millisecond)
			events := w.all()
			if len(events) != i+2 {
				t.Fatalf("change %d was not sent within 5ms", i)
			}
			if took := events[i+1].at.Sub(changed); took > 2*time.Millisecond {
				t.Errorf("change %d was sent after %s", i, took)
			}
			if i%4 == 3 {
				pass(50 * time.Millisecond)
			}
		}
	})
}

// TestAChangeThatSettlesLateIsSentSoon checks that a change that waits for a transaction of another process is read
// again soon after its nudge.
func TestAChangeThatSettlesLateIsSentSoon(t *testing.T) {
	run(t, nil, func(f *fixture) {
		w := f.watch(everything())
		pass(time.Second)
		for i, settled := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 13 * time.Millisecond} {
			f.feed.hold(true)
			f.put(fmt.Sprint("c-", i))
			f.hub.TriggerRead()
			pass(settled)
			f.feed.hold(false)
			released := time.Now()
			pass(30 * time.Millisecond)
			events := w.all()
			if len(events) != i+2 {
				t.Fatalf("change %d was not sent within 30ms", i)
			}
			if took := events[i+1].at.Sub(released); took > settled {
				t.Errorf("a change that settled after %s was sent %s later", settled, took)
			}
			pass(time.Second)
		}
	})
}

func TestBookmarks(t *testing.T) {
	run(t, nil, func(f *fixture) {
		w := f.watch(everything())
		f.feed.put("other", func(r *row) { r.kind = "NodePool" })
		pass(5 * watch.BookmarkEvery / 2)
		wantTold(t, w.client, "bookmark", "bookmark", "bookmark")
		first, last := position(t, w.all()[0].cursor), position(t, w.all()[2].cursor)
		if first.Compare(last.Position) >= 0 {
			t.Errorf("the bookmark stays at %v although the feed went on", first)
		}
	})
}

// TestFromCursor checks that a watch begins with the changes since its cursor, each resource once.
func TestFromCursor(t *testing.T) {
	run(t, nil, func(f *fixture) {
		f.put("before", "gone")
		at, _ := f.feed.ReadLatestCursor(f.Context())
		f.put("a", "b", "a")
		f.feed.remove("gone")
		w := f.watch(after(at))
		pass(50 * time.Millisecond)
		wantTold(t, w.client, "changed b", "changed a", "removed gone", "bookmark")
		f.put("c")
		pass(50 * time.Millisecond)
		wantTold(t, w.client, "changed b", "changed a", "removed gone", "bookmark", "changed c")

		again := f.watch(after(position(t, w.all()[1].cursor)))
		pass(50 * time.Millisecond)
		wantTold(t, again.client, "removed gone", "changed c", "bookmark")
	})
}

// TestUnsettled checks that changes that may still be overtaken are not sent.
func TestUnsettled(t *testing.T) {
	run(t, nil, func(f *fixture) {
		w := f.watch(everything())
		f.feed.hold(true)
		f.put("a", "b")
		f.hub.TriggerRead()
		pass(3 * watch.BookmarkEvery / 2)
		wantTold(t, w.client, "bookmark", "bookmark")
		f.feed.hold(false)
		pass(30 * time.Millisecond)
		wantTold(t, w.client, "bookmark", "bookmark", "changed a", "changed b")
	})
}

func TestWhoIsToldWhat(t *testing.T) {
	same := func(*row) {}
	blue := func(r *row) { r.tenant = "blue" }
	label := func(v string) func(*row) {
		return func(r *row) { r.labels = selector.Map{"zone": v} }
	}
	cases := map[string]struct {
		reason  string
		request watch.Request
		changes []func(*row) // of one resource; nil removes it
		want    []string
	}{
		"Mine":         {"a tenant sees its own", watch.Request{Kind: "Cluster", Tenant: "red"}, []func(*row){same, nil}, []string{"changed a", "removed a"}},
		"Others":       {"and nobody else's, not even the ids", watch.Request{Kind: "Cluster", Tenant: "red"}, []func(*row){blue, blue, nil}, []string{}},
		"OthersLabels": {"whatever happens to their labels", watch.Request{Kind: "Cluster", Tenant: "red"}, []func(*row){blue, func(r *row) { r.labels = selector.Map{"a": "b"} }, func(r *row) { r.labels = nil }, nil}, []string{}},
		"Nobody":       {"a request without a tenant sees nothing", watch.Request{Kind: "Cluster"}, []func(*row){blue, nil}, []string{}},
		"All":          {"unless it may see all", everything(), []func(*row){blue, nil}, []string{"changed a", "removed a"}},
		"OtherKind":    {"one kind is asked for", watch.Request{Kind: "NodePool", All: true}, []func(*row){same, nil}, []string{}},
		"Matching":     {"the selector matches", selected("zone=x"), []func(*row){label("x")}, []string{"changed a"}},
		"Never":        {"it never matched", selected("zone=x"), []func(*row){label("y"), same}, []string{}},
		"NoLabels":     {"a selector may ask for none", selected("!zone"), []func(*row){same}, []string{"changed a"}},
		"Relabelled":   {"it matches no longer", selected("zone=x"), []func(*row){label("x"), label("y"), same}, []string{"changed a", "removed a"}},
		"Back":         {"it matches again", selected("zone=x"), []func(*row){label("x"), label("y"), label("x")}, []string{"changed a", "removed a", "changed a"}},
		"Gone":         {"nobody knows any more what its labels were", selected("zone=x"), []func(*row){label("y"), nil}, []string{"removed a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				tc.request.After = &watch.Cursor{}
				// One watcher follows from the ring. The other begins behind it and reads the feed,
				// which has only the last state.
				w := f.watch(tc.request)
				for _, change := range tc.changes {
					if change == nil {
						f.feed.remove("a")
					} else {
						f.feed.put("a", change)
					}
					pass(50 * time.Millisecond)
				}
				late := f.watch(tc.request)
				pass(50 * time.Millisecond)
				wantTold(t, w.client, append([]string{"bookmark"}, tc.want...)...)
				want := []string{"bookmark"}
				if n := len(tc.want); n > 0 {
					want = []string{tc.want[n-1], "bookmark"}
				}
				wantTold(t, late.client, want...)
			})
		})
	}
}

func selected(s string) watch.Request {
	r := everything()
	var err error
	if r.Labels, err = selector.Parse(s); err != nil {
		panic(err)
	}
	return r
}

func TestTooOld(t *testing.T) {
	run(t, func(f *fixture) { f.hub.SetRing(10, 1<<20) }, func(f *fixture) {
		f.put("a")
		f.feed.prune()
		w := f.watch(after(watch.Cursor{Position: watch.Position{Xact: 1}}))
		if err := w.wait(); !errors.Is(err, watch.ErrExpired) || w.opened {
			t.Errorf("it ended with %v, having begun: %t", err, w.opened)
		}

		slow := f.watchAs(everything(), &client{slow: time.Minute})
		pass(2 * time.Minute) // the bookmark
		for i := range 30 {
			f.put(fmt.Sprint("c-", i))
			pass(50 * time.Millisecond)
		}
		f.feed.prune()
		if err := slow.wait(); !errors.Is(err, watch.ErrExpired) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestSlowWatcher checks that a slow watcher delays no others, and misses nothing.
func TestSlowWatcher(t *testing.T) {
	const changes = 3*watch.PageLines + 7
	run(t, func(f *fixture) { f.hub.SetRing(100, 1<<20) }, func(f *fixture) {
		slow := f.watchAs(everything(), &client{slow: time.Second})
		quick := f.watch(everything())
		pass(5 * time.Second)
		for i := range changes {
			f.put(fmt.Sprintf("c-%06d", i))
			pass(time.Millisecond)
		}
		pass(50 * time.Millisecond)
		wantEach(t, quick, changes)
		pass(time.Minute)
		wantEach(t, slow, changes)
		if n := metric(t, f, "fleetloop_api_watch_cache_misses_total"); n < 2 {
			t.Errorf("%g fallbacks", n)
		}
	})
}

// wantEach requires every change, in order and once.
func wantEach(t *testing.T, w *watching, changes int) {
	t.Helper()
	next := 0
	for _, e := range w.all() {
		if e.kind != "changed" {
			continue
		}
		if want := fmt.Sprintf("c-%06d", next); e.ident() != want {
			t.Fatalf("got %s, want %s", e.ident(), want)
		}
		next++
	}
	if next != changes {
		t.Errorf("got %d changes of %d", next, changes)
	}
}

// TestBytesBoundTheRing fills it with few large changes.
func TestBytesBoundTheRing(t *testing.T) {
	run(t, func(f *fixture) { f.hub.SetRing(1000, 1<<20) }, func(f *fixture) {
		slow := f.watchAs(everything(), &client{slow: time.Second})
		pass(2 * time.Second)
		f.put("a")
		pass(100 * time.Millisecond)
		big := strings.Repeat("x", 300_000)
		for i := range 20 {
			f.feed.put(fmt.Sprint("c-", i), func(r *row) { r.padding = big })
			pass(20 * time.Millisecond)
		}
		pass(time.Minute)
		if n := strings.Count(strings.Join(slow.told(), " "), "changed c-"); n != 20 {
			t.Errorf("got %d of 20 large changes", n)
		}
		if _, own := f.feed.counts(); own < 15 { // each is larger than a page, and few fit into the ring
			t.Errorf("read the feed %d times by itself", own)
		}
	})
}

// TestFeedAway checks that watches survive an unavailable database and send no bookmarks meanwhile.
func TestFeedAway(t *testing.T) {
	run(t, nil, func(f *fixture) {
		w := f.watch(everything())
		f.feed.fail(fmt.Errorf("read: %w", watch.ErrUnavailable))
		f.put("a")
		pass(5 * watch.BookmarkEvery / 2)
		wantTold(t, w.client, "bookmark", ":", ":")
		late := f.watch(after(watch.Cursor{}))
		if err := late.wait(); !errors.Is(err, watch.ErrUnavailable) || late.opened {
			t.Errorf("it ended with %v, having begun: %t", err, late.opened)
		}
		f.feed.fail(nil)
		pass(3 * time.Second)
		wantTold(t, w.client, "bookmark", ":", ":", "changed a", "bookmark")
	})
}

// TestExpiredWhileAway checks that the hub starts again, and that a watcher that missed changes
// gets an error.
func TestExpiredWhileAway(t *testing.T) {
	run(t, nil, func(f *fixture) {
		w := f.watch(everything())
		f.feed.fail(watch.ErrUnavailable)
		f.put("a")
		f.feed.prune()
		pass(time.Second)
		f.feed.fail(nil)
		if err := w.wait(); !errors.Is(err, watch.ErrExpired) {
			t.Errorf("it ended with %v", err)
		}
		again := f.watch(everything())
		f.put("b")
		pass(50 * time.Millisecond)
		wantTold(t, again.client, "bookmark", "changed b")

		f.feed.restore()
		if err := again.wait(); !errors.Is(err, watch.ErrExpired) {
			t.Errorf("over a restored database it ended with %v", err)
		}
	})
}

// TestAwayWhileBehind makes the database unavailable while a watcher reads it itself.
func TestAwayWhileBehind(t *testing.T) {
	run(t, func(f *fixture) { f.hub.SetRing(10, 1<<20) }, func(f *fixture) {
		w := f.watchAs(everything(), &client{slow: time.Second})
		pass(2 * time.Second)
		f.put("a")
		pass(100 * time.Millisecond)
		for i := range 30 {
			f.put(fmt.Sprint("c-", i))
			pass(10 * time.Millisecond)
		}
		f.feed.fail(watch.ErrUnavailable)
		pass(31 * time.Second)
		if told := w.told(); told[len(told)-1] != ":" || len(told) > 3+int(31*time.Second/watch.BookmarkEvery) {
			t.Errorf("told %q", told)
		}
		f.feed.fail(nil)
		pass(10 * time.Second)
		if n := strings.Count(strings.Join(w.told(), " "), "changed"); n != 31 {
			t.Errorf("told of %d changes in %q", n, w.told())
		}
	})
}

func TestOtherFailuresEndAWatch(t *testing.T) {
	run(t, func(f *fixture) { f.hub.SetRing(1, 1) }, func(f *fixture) {
		w := f.watchAs(everything(), &client{slow: time.Second})
		pass(2 * time.Second)
		f.put("a")
		pass(50 * time.Millisecond)
		f.put("b")
		pass(50 * time.Millisecond)
		broken := errors.New("broken")
		f.feed.fail(broken)
		if err := w.wait(); !errors.Is(err, broken) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestOneLine checks that line breaks are removed from a record, which stays the same JSON.
func TestOneLine(t *testing.T) {
	got := watch.Frame("changed", "1.2", []byte("{\n\"a\":\r\n\t\"b\\n\"}\r"))
	if want := "event: changed\nid: 1.2\ndata: { \"a\":  \t\"b\\n\"} \n\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func metric(t *testing.T, f *fixture, name string) float64 {
	t.Helper()
	families, err := f.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %q", name)
	return 0
}
