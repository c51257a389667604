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
	after, err := callLocked(ctx, g, Watch, "", func(time.Time) (uint64, error) {
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
		n, err := g.changesSince(after)
		if err != nil {
			return err
		}
		if err := n.deliverTo(handle); err != nil {
			return err
		}
		after = n.version
		if len(n.events) > 0 {
			told = after
		}
		quiet, err := g.waitForChanges(ctx, n)
		if err != nil {
			return err
		}
		// Without a mark it would expire if all that happens is others'.
		if !quiet && after-told < g.o.backlogSize()/2 {
			continue
		}
		told = after
		if err := handle(bookmarkEvent(after)); err != nil {
			return err
		}
	}
}

// bookmarkEvent tells a watcher where it is.
func bookmarkEvent(version uint64) shoot.Event {
	return shoot.Event{Type: shoot.Mark, Shoot: shoot.Observed{ResourceVersion: strconv.FormatUint(version, 10)}}
}

// news is what happened after a version.
type news struct {
	events  []shoot.Event
	version uint64
	grown   <-chan struct{} // closed when there is more
	next    time.Time       // when there will be by itself, zero if not
}

func (n news) deliverTo(handle func(shoot.Event) error) error {
	for _, e := range n.events {
		if err := handle(e); err != nil {
			return err
		}
	}
	return nil
}

// atOnce is how many changes are handed over at a time.
const atOnce = 1000

func (g *Garden) changesSince(after uint64) (news, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.outage {
		return news{}, outageError()
	}
	g.advanceTo(time.Now())
	if after < g.dropped {
		return news{}, shoot.ErrExpired
	}
	n := news{version: g.version, grown: g.changesSignal(), next: g.schedule.nextTime()}
	from, _ := slices.BinarySearchFunc(g.log, after+1, func(c change, v uint64) int {
		if c.version < v {
			return -1
		}
		return 1
	})
	for _, c := range g.log[from:] {
		if len(n.events) == atOnce {
			n.version, n.grown = c.version-1, closedChannel()
			break
		}
		if g.isListed(c.it) && c.version == c.it.version {
			n.events = append(n.events, c.toEvent())
		}
	}
	return n, nil
}

// waitForChanges waits until there is more, or for the time of a bookmark.
func (g *Garden) waitForChanges(ctx context.Context, n news) (quiet bool, err error) {
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

// changesSignal is closed when there is more. The caller has the lock.
func (g *Garden) changesSignal() <-chan struct{} {
	if g.grown == nil {
		g.grown = make(chan struct{})
	}
	return g.grown
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
