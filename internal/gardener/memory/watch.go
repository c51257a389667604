package memory

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// WatchShoots tells of what happened to Shoots after a resource version, until
// ctx ends, handle gives an error, or an outage begins. A Shoot that changed
// more than once before that could be told is told of once.
func (g *Garden) WatchShoots(ctx context.Context, resourceVersion string, handle func(shoot.Event) error) error {
	after, err := call(ctx, g, Watch, "", func(time.Time) (uint64, error) {
		after, err := strconv.ParseUint(resourceVersion, 10, 64)
		if err != nil || after > g.version { // of another garden
			return 0, shoot.ErrExpired
		}
		return after, nil
	})
	if err != nil {
		return err
	}
	told := after // the version that the watcher knows of
	for {
		n, err := g.since(after)
		if err != nil {
			return err
		}
		if err := n.tell(handle); err != nil {
			return err
		}
		after = n.version
		if len(n.events) > 0 {
			told = after
		}
		quiet, err := g.wait(ctx, n)
		if err != nil {
			return err
		}
		// Without a mark it would expire if all that happens is others'.
		if !quiet && after-told < g.o.backlog()/2 {
			continue
		}
		told = after
		if err := handle(mark(after)); err != nil {
			return err
		}
	}
}

// mark tells a watcher where it is.
func mark(version uint64) shoot.Event {
	return shoot.Event{Type: shoot.Mark, Shoot: shoot.Observed{ResourceVersion: strconv.FormatUint(version, 10)}}
}

// news is what happened after a version.
type news struct {
	events  []shoot.Event
	version uint64
	grown   <-chan struct{} // closed when there is more
	next    time.Time       // when there will be by itself, zero if not
}

func (n news) tell(handle func(shoot.Event) error) error {
	for _, e := range n.events {
		if err := handle(e); err != nil {
			return err
		}
	}
	return nil
}

// atOnce is how many changes are handed over at a time.
const atOnce = 1000

func (g *Garden) since(after uint64) (news, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.outage {
		return news{}, down()
	}
	g.advance(time.Now())
	if after < g.dropped {
		return news{}, shoot.ErrExpired
	}
	n := news{version: g.version, grown: g.more(), next: g.schedule.next()}
	from, _ := slices.BinarySearchFunc(g.log, after+1, func(c change, v uint64) int {
		if c.version < v {
			return -1
		}
		return 1
	})
	for _, c := range g.log[from:] {
		if len(n.events) == atOnce {
			n.version, n.grown = c.version-1, closed()
			break
		}
		if g.lists(c.it) && c.version == c.it.version {
			n.events = append(n.events, c.event())
		}
	}
	return n, nil
}

// wait waits until there is more, or for the time of a bookmark.
func (g *Garden) wait(ctx context.Context, n news) (quiet bool, err error) {
	d := g.o.BookmarkTime
	due := false
	if !n.next.IsZero() {
		if until := time.Until(n.next); until < d {
			d, due = until, true
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-n.grown:
		return false, nil
	case <-timer.C:
		return !due, nil
	}
}

// more is closed when there is more. The caller has the lock.
func (g *Garden) more() <-chan struct{} {
	if g.grown == nil {
		g.grown = make(chan struct{})
	}
	return g.grown
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
