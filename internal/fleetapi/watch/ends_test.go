package watch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// TestEnds checks that each way to end leaves the client with a cursor.
func TestEnds(t *testing.T) {
	cases := map[string]struct {
		reason string
		until  time.Duration
		end    func(*fixture, *watching)
		want   error
		told   []string
	}{
		"Stop":   {"the server stops", 0, func(f *fixture, _ *watching) { f.hub.Stop() }, nil, []string{"bookmark", "changed a", "bookmark"}},
		"Run":    {"nobody would read the feed any more", 0, func(f *fixture, _ *watching) { f.stop() }, nil, []string{"bookmark", "changed a", "bookmark"}},
		"Time":   {"the client has to show its token again", 2 * time.Second, func(*fixture, *watching) {}, nil, []string{"bookmark", "changed a", "bookmark"}},
		"Leaves": {"nobody is there to be told", 0, func(_ *fixture, w *watching) { w.leave() }, context.Canceled, []string{"bookmark", "changed a"}},
		"Broken": {"the connection is gone", 0, func(f *fixture, w *watching) {
			w.mu.Lock()
			w.err = errGone
			w.mu.Unlock()
			f.put("b")
		}, errGone, []string{"bookmark", "changed a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				r := everything()
				if tc.until > 0 {
					r.Until = time.Now().Add(tc.until)
				}
				w := f.watch(r)
				f.put("a")
				pass(time.Second)
				tc.end(f, w)
				if err := w.wait(); !errors.Is(err, tc.want) {
					t.Errorf("%s: it ended with %v, want %v", tc.reason, err, tc.want)
				}
				wantTold(t, w.client, tc.told...)
			})
		})
	}
}

var errGone = errors.New("gone")

// TestNotAllowedAnyMore checks that a watcher without access receives nothing after the next check.
func TestNotAllowedAnyMore(t *testing.T) {
	run(t, nil, func(f *fixture) {
		var taken atomic.Bool
		r := everything()
		r.Allowed = func(context.Context) error {
			if taken.Load() {
				return errGone
			}
			return nil
		}
		w := f.watch(r)
		f.put("a")
		pass(2*watch.BookmarkEvery + time.Second)
		taken.Store(true)
		pass(watch.BookmarkEvery)
		f.put("b")
		if err := w.wait(); !errors.Is(err, errGone) {
			t.Errorf("it ended with %v, want %v", err, errGone)
		}
		wantTold(t, w.client, "bookmark", "changed a", "bookmark", "bookmark")
	})
}

// TestStopWaitsForNobody stops watches that wait for a slow client or a slow database.
func TestStopWaitsForNobody(t *testing.T) {
	run(t, nil, func(f *fixture) {
		var all []*watching
		for range 25 {
			all = append(all, f.watch(everything()), f.watchAs(everything(), &client{slow: time.Hour}))
		}
		f.feed.took = 100 * time.Millisecond
		for range 5 { // one more than the limit of concurrent readers
			all = append(all, f.watch(after(watch.Cursor{})))
		}
		began := time.Now()
		f.hub.Stop()
		for _, w := range all {
			if err := w.wait(); err != nil && !errors.Is(err, watch.ErrStopping) {
				t.Errorf("it ended with %v", err)
			}
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if err := f.watch(everything()).wait(); !errors.Is(err, watch.ErrStopping) {
			t.Errorf("a watch that comes late ends with %v", err)
		}
	})
}

func TestTooManyWatches(t *testing.T) {
	run(t, nil, func(f *fixture) {
		var last *watching
		for range 60 {
			last = f.watch(everything())
		}
		if err := f.watch(everything()).wait(); !errors.Is(err, watch.ErrTooMany) {
			t.Errorf("the 61st ended with %v", err)
		}
		last.leave()
		<-last.done
		f.watch(everything())
		if n := metric(t, f, "fleetloop_api_watchers"); n != 60 {
			t.Errorf("%g watchers", n)
		}
	})
}

// TestTenantHasHalfOfTheWatches checks that the watches of one tenant leave room for those of others.
func TestTenantHasHalfOfTheWatches(t *testing.T) {
	run(t, nil, func(f *fixture) {
		of := func(tenant string) watch.Request { return watch.Request{Kind: "Cluster", Tenant: tenant} }
		var last *watching
		for range 30 {
			last = f.watch(of("red"))
		}
		refused := f.watch(of("red"))
		if refused.opened {
			t.Fatal("the 31st of a tenant opened")
		}
		if err := refused.wait(); !errors.Is(err, watch.ErrTooMany) {
			t.Errorf("the 31st of a tenant ended with %v", err)
		}
		for _, request := range []watch.Request{of("blue"), everything()} {
			wantTold(t, f.watch(request).client, "bookmark")
		}
		last.leave()
		<-last.done
		wantTold(t, f.watch(of("red")).client, "bookmark")
	})
}

// TestNobodyWatches checks that the database is not read without watchers.
func TestNobodyWatches(t *testing.T) {
	run(t, nil, func(f *fixture) {
		for range 3 {
			w := f.watch(everything())
			f.put("a")
			pass(time.Second)
			wantTold(t, w.client, "bookmark", "changed a")
			w.leave()
			pass(time.Second)
			before, _ := f.feed.counts()
			f.hub.TriggerRead()
			pass(time.Hour)
			if after, _ := f.feed.counts(); after != before {
				t.Errorf("read %d times for nobody", after-before)
			}
		}
	})
}
