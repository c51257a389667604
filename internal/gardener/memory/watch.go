package memory

import (
	"context"
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// WatchShoots reports the changes of Shoots after a resource version, until ctx ends,
// handle returns an error, or an outage begins. Several changes of a Shoot that were
// not reported yet are reported as one.
func (g *Garden) WatchShoots(
	ctx context.Context, resourceVersion string, handle func(shoot.Event) error,
) error {
	after, err := callCountedAndLocked(ctx, g, Watch, "", func(time.Time) (uint64, error) {
		after, err := strconv.ParseUint(resourceVersion, 10, 64)
		if err != nil || after > g.store.changes.version { // a version of another garden
			return 0, shoot.ErrExpired
		}
		return after, nil
	})
	if err != nil {
		return err
	}
	told := after // the version that was last reported to the watcher
	for {
		n, err := g.advanceAndListChangesSince(after)
		if err != nil {
			return err
		}
		if err := n.deliverEvents(handle); err != nil {
			return err
		}
		after = n.version
		if len(n.events) > 0 {
			told = after
		}
		quiet, err := n.waitForChangesOrTimeout(ctx, g.o.BookmarkTime)
		if err != nil {
			return err
		}
		// Without a bookmark the watch would expire if only other installations' Shoots
		// change.
		if !quiet && after-told < uint64(g.o.Backlog)/2 { //nolint:gosec // New sees to it that it is positive
			continue
		}
		told = after
		if err := handle(newBookmarkEvent(after)); err != nil {
			return err
		}
	}
}

// newBookmarkEvent returns a bookmark with the watch's position.
func newBookmarkEvent(version uint64) shoot.Event {
	return shoot.Event{Type: shoot.Mark, Shoot: shoot.Observed{ResourceVersion: strconv.FormatUint(version, 10)}}
}

func (n pendingChanges) deliverEvents(handle func(shoot.Event) error) error {
	for _, e := range n.events {
		if err := handle(e); err != nil {
			return err
		}
	}
	return nil
}

// advanceAndListChangesSince returns the changes after a version.
func (g *Garden) advanceAndListChangesSince(version uint64) (pendingChanges, error) {
	g.lockAndAdvance()
	defer g.mu.Unlock()
	if g.outage {
		return pendingChanges{}, newOutageError()
	}
	n, err := g.store.changes.changesSince(version, g.o.isListedShoot)
	n.next = g.store.schedule.nextStepTime()
	return n, err
}

// waitForChangesOrTimeout waits for further changes, or for the time of a bookmark.
func (n pendingChanges) waitForChangesOrTimeout(
	ctx context.Context, timeout time.Duration,
) (timedOut bool, err error) {
	due := false
	if !n.next.IsZero() {
		if until := time.Until(n.next); until < timeout {
			timeout, due = until, true
		}
	}
	timer := time.NewTimer(timeout)
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
