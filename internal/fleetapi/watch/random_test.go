package watch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// TestEveryWatcherEndsUpWithTheTable changes a table while watchers follow it. They are slow,
// disconnect within a batch and resume with their last id, while transactions stay open and the
// database fails at times. In the end each holds its part of the table.
func TestEveryWatcherEndsUpWithTheTable(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			run(t, func(f *fixture) { f.hub.SetRing(40, 1<<20) }, func(f *fixture) { follow(f, seed) })
		})
	}
}

func follow(f *fixture, seed uint64) {
	begin, _ := f.feed.ReadLatestCursor(f.Context())
	var followers []*follower
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(f.Context())
	for i, r := range []watch.Request{
		everything(),
		{Kind: "NodePool", All: true},
		{Kind: "Cluster", Tenant: "red"},
		{Kind: "Cluster", Tenant: "blue"},
		selected("zone=x"), selected("zone!=x"), selected("zone in (x,y)"),
	} {
		for range 2 {
			fw := &follower{t: f.T, r: r, dice: rand.New(rand.NewPCG(seed, uint64(i))), state: map[string]string{}, cursor: begin}
			followers = append(followers, fw)
			all.Go(func() { fw.follow(ctx, f.hub) })
		}
	}
	write(f, rand.New(rand.NewPCG(seed, 99)))
	pass(time.Minute)
	stop()
	all.Wait()
	for i, fw := range followers {
		if diff := cmp.Diff(f.feed.table(fw.r), fw.state); diff != "" {
			f.Errorf("watcher %d, %+v (-want +got):\n%s", i, fw.r, diff)
		}
	}
}

// table returns the rows of a request.
func (f *fakeFeed) table(r watch.Request) map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]string{}
	for id, row := range f.rows {
		if row.kind == r.Kind && (r.All || row.tenant == r.Tenant) && (r.Labels == nil || r.Labels.Matches(row.labels)) {
			out[id] = row.json()
		}
	}
	return out
}

func write(f *fixture, dice *rand.Rand) {
	for range 1000 {
		number := dice.IntN(30)
		id := fmt.Sprint("c-", number)
		f.feed.add(row{id: id, kind: []string{"Cluster", "NodePool"}[number%5/4], tenant: []string{"red", "blue"}[number%2]})
		switch n := dice.IntN(100); {
		case n < 5:
			f.feed.remove(id)
		case n < 35:
			f.feed.put(id, func(r *row) { r.labels = selector.Map{"zone": []string{"x", "y", "z"}[dice.IntN(3)]} })
		case n < 37:
			f.feed.hold(dice.IntN(2) == 0)
		case n == 37:
			f.feed.fail(watch.ErrUnavailable)
		case n < 42:
			f.feed.fail(nil)
		case n < 60:
			pass(time.Duration(dice.IntN(40)) * time.Millisecond)
		default:
			f.feed.put(id, nil)
		}
		if dice.IntN(3) == 0 {
			f.hub.TriggerRead()
		}
	}
	f.feed.hold(false)
	f.feed.fail(nil)
}

// A follower keeps a copy of a table, and disconnects at times.
type follower struct {
	t     *testing.T
	r     watch.Request
	dice  *rand.Rand
	state map[string]string

	cursor watch.Cursor
	left   int // events until it disconnects
	last   watch.Cursor
}

func (w *follower) follow(ctx context.Context, hub *watch.Hub) {
	for ctx.Err() == nil {
		r := w.r
		r.After = &w.cursor
		w.left, w.last = 1+w.dice.IntN(60), w.cursor
		err := hub.StreamChanges(ctx, r, w)
		if !errors.Is(err, errGone) && !errors.Is(err, watch.ErrUnavailable) && !errors.Is(err, context.Canceled) {
			w.t.Errorf("watch: %v", err)
			return
		}
		pass(time.Duration(w.dice.IntN(50)) * time.Millisecond)
	}
}

// SendEvents accepts some of the events.
func (w *follower) SendEvents(ctx context.Context, b []byte) error {
	if w.dice.IntN(10) == 0 {
		pass(time.Duration(w.dice.IntN(500)) * time.Millisecond)
	}
	c := &client{t: w.t}
	_ = c.SendEvents(ctx, b)
	for _, e := range c.events {
		if e.kind == ":" {
			continue
		}
		w.cursor = position(w.t, e.cursor)
		if w.cursor.Compare(w.last.Position) < 0 {
			w.t.Errorf("the cursor goes back from %v to %v", w.last, w.cursor)
		}
		w.last = w.cursor
		switch e.kind {
		case "changed":
			w.state[e.ident()] = e.data
		case "removed":
			delete(w.state, e.ident())
		}
		if w.left--; w.left == 0 {
			return errGone
		}
	}
	return nil
}
