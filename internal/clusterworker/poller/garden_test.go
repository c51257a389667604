package poller_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A garden shows Shoots as Gardener does, with configurable faults.
type garden struct {
	mu      sync.Mutex
	version int
	uids    int
	shoots  map[string]*shoot.Observed
	events  []shoot.Event
	changed chan struct{} // closed by the next event
	forgot  int           // events that a watch cannot continue from

	listErr, watchErr error
	getErr            func(name string) error
	slow              time.Duration // of each call
	lag               time.Duration // between a list and its arrival
	mute              bool          // watches report nothing
	cut               chan error    // ends a watch

	lists, gets, watches int
	looking, most        int // concurrent live reads
	deleted              []shoot.Ref
}

func newGarden() *garden {
	return &garden{shoots: map[string]*shoot.Observed{}, changed: make(chan struct{}), cut: make(chan error)}
}

// set changes the behavior of the garden.
func (g *garden) set(how func(*garden)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	how(g)
}

// listed, looked and watched return the numbers of such calls.
func (g *garden) listed() int  { return g.count(&g.lists) }
func (g *garden) looked() int  { return g.count(&g.gets) }
func (g *garden) watched() int { return g.count(&g.watches) }

func (g *garden) count(n *int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return *n
}

// put creates or changes the Shoot of the nth cluster, and returns the result for a
// worker.
func (g *garden) put(n int, how ...func(*shoot.Observed)) shoot.Applied {
	return g.putNamed(nameOf(n), n, how...)
}

func (g *garden) putNamed(name string, n int, how ...func(*shoot.Observed)) shoot.Applied {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.shoots[name]
	if o == nil {
		g.uids++
		o = &shoot.Observed{
			Name: name, UID: fmt.Sprint("uid-", g.uids), Created: time.Now(), Cluster: idOf(n), Installation: installation, History: history,
			SentGeneration: 1, Generation: 1, ObservedGeneration: 1,
		}
	} else {
		next := *o
		o = &next
	}
	for _, f := range how {
		f(o)
	}
	g.shoots[name] = o
	g.happen(shoot.Seen, o)
	return shoot.Applied{UID: o.UID, Generation: o.Generation}
}

// remove removes a Shoot.
func (g *garden) remove(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.shoots[nameOf(n)]; o != nil {
		delete(g.shoots, nameOf(n))
		last := *o
		g.happen(shoot.Gone, &last)
	}
}

// vanish removes a Shoot without an event.
func (g *garden) vanish(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.shoots, nameOf(n))
	g.version++
}

func (g *garden) happen(kind shoot.EventType, o *shoot.Observed) {
	g.version++
	o.ResourceVersion = strconv.Itoa(g.version)
	g.events = append(g.events, shoot.Event{Type: kind, Shoot: *o})
	close(g.changed)
	g.changed = make(chan struct{})
}

// begin is the common start of every call.
func (g *garden) begin(ctx context.Context, count *int, err func() error) error {
	g.mu.Lock()
	*count++
	slow := g.slow
	g.mu.Unlock()
	if slow > 0 {
		timer := time.NewTimer(slow)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return shoot.NewClassErrorf(shoot.ClassUnavailable, "get: %w", context.Cause(ctx))
		case <-timer.C:
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return err()
}

func (g *garden) GetShoot(ctx context.Context, name string) (shoot.Observed, error) {
	g.set(func(g *garden) {
		g.looking++
		g.most = max(g.most, g.looking)
	})
	defer g.set(func(g *garden) { g.looking-- })
	err := g.begin(ctx, &g.gets, func() error {
		if g.getErr != nil {
			return g.getErr(name)
		}
		return nil
	})
	if err != nil {
		return shoot.Observed{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.shoots[name]; o != nil {
		return *o, nil
	}
	return shoot.Observed{}, fmt.Errorf("get %q: %w", name, shoot.ErrNotFound)
}

func (g *garden) ListShoots(ctx context.Context) (shoot.List, error) {
	if err := g.begin(ctx, &g.lists, func() error { return g.listErr }); err != nil {
		return shoot.List{}, err
	}
	g.mu.Lock()
	lag, l := g.lag, shoot.List{ResourceVersion: strconv.Itoa(g.version)}
	for _, o := range g.shoots {
		if o.Installation == installation {
			l.Shoots = append(l.Shoots, *o)
		}
	}
	g.mu.Unlock()
	hang(lag)
	return l, nil
}

func (g *garden) WatchShoots(ctx context.Context, version string, handle func(shoot.Event) error) error {
	if err := g.begin(ctx, &g.watches, func() error { return g.watchErr }); err != nil {
		return err
	}
	at, err := strconv.Atoi(version)
	if err != nil {
		return err
	}
	for {
		g.mu.Lock()
		if at < g.forgot {
			g.mu.Unlock()
			return shoot.ErrExpired
		}
		var news []shoot.Event
		for _, e := range g.events {
			if v, _ := strconv.Atoi(e.Shoot.ResourceVersion); v > at && !g.mute {
				news = append(news, e)
				at = v
			}
		}
		changed := g.changed
		g.mu.Unlock()
		for _, e := range news {
			if err := handle(e); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case err := <-g.cut:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (g *garden) DeleteShoot(_ context.Context, ref shoot.Ref) (shoot.Deletion, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.shoots[ref.Name]
	if o == nil || o.UID != ref.UID || o.Cluster != ref.Cluster || o.Installation != ref.Installation {
		return shoot.Deletion{}, shoot.NewClassErrorf(shoot.ClassForeign, "another Shoot")
	}
	g.deleted = append(g.deleted, ref)
	delete(g.shoots, ref.Name)
	last := *o
	g.happen(shoot.Gone, &last)
	return shoot.Deletion{}, nil
}

// Actions of Gardener on a Shoot.

func operation(kind, state string, progress int) func(*shoot.Observed) {
	return func(o *shoot.Observed) {
		o.LastOperation = &shoot.Operation{Type: kind, State: state, Progress: progress, Description: "work", Updated: time.Now()}
	}
}

func working(progress int) func(*shoot.Observed) {
	return operation("Reconcile", "Processing", progress)
}

func ready(o *shoot.Observed) {
	o.ObservedGeneration = o.Generation
	operation("Reconcile", "Succeeded", 100)(o)
	o.Conditions = []shoot.Condition{{Type: "APIServerAvailable", Status: "True"}}
}

func failed(o *shoot.Observed) {
	operation("Reconcile", "Failed", 40)(o)
	o.LastErrors = []shoot.LastError{{Description: "no quota"}}
}

func deleting(o *shoot.Observed) { o.Deleting, o.Generation = true, o.Generation+1 }

func edited(o *shoot.Observed) { o.Generation++ }

func sent(generation int64) func(*shoot.Observed) {
	return func(o *shoot.Observed) { o.SentGeneration = generation }
}

var errAway = shoot.NewClassErrorf(shoot.ClassUnavailable, "Gardener is away: %w", errors.New("connection refused"))
