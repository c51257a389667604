package memory

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// WatchShoots reports the changes of Shoots after a resource version, until ctx ends,
// handle returns an error, or an outage begins. Several changes of a Shoot that were
// not reported yet are reported as one.
func (g *Garden) WatchShoots(ctx context.Context, resourceVersion string, handle func(shoot.Event) error) error {
	after, err := callLocked(ctx, g, Watch, "", func(time.Time) (uint64, error) {
		after, err := strconv.ParseUint(resourceVersion, 10, 64)
		if err != nil || after > g.version { // a version of another garden
			return 0, shoot.ErrExpired
		}
		return after, nil
	})
	if err != nil {
		return err
	}
	told := after // the version that was last reported to the watcher
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
		// Without a bookmark the watch would expire if only other installations' Shoots
		// change.
		if !quiet && after-told < g.o.backlogSize()/2 {
			continue
		}
		told = after
		if err := handle(bookmarkEvent(after)); err != nil {
			return err
		}
	}
}

// bookmarkEvent returns a bookmark with the watch's position.
func bookmarkEvent(version uint64) shoot.Event {
	return shoot.Event{Type: shoot.Mark, Shoot: shoot.Observed{ResourceVersion: strconv.FormatUint(version, 10)}}
}

// news are the changes after a version.
type news struct {
	events  []shoot.Event
	version uint64
	grown   <-chan struct{} // closed on further changes
	next    time.Time       // time of the next scheduled change, zero without one
}

func (n news) deliverTo(handle func(shoot.Event) error) error {
	for _, e := range n.events {
		if err := handle(e); err != nil {
			return err
		}
	}
	return nil
}

// atOnce is the largest number of changes in one batch.
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

// waitForChanges waits for further changes, or for the time of a bookmark.
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

// changesSignal returns a channel that is closed on further changes. The caller holds
// the lock.
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
