package sentinel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strconv"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

var (
	errNoChanges = errors.New("no response in time")
	errNoEnd     = errors.New("more changes are available but the cursor did not advance")
	errSilent    = errors.New("the watch delivers no events; check for a proxy that buffers responses")
	errStale     = errors.New("the watch sent no bookmark in time")
)

// lastingWatch is the minimum life of a healthy watch. A watch that lived for longer resets the
// backoff, and its cursors are usable.
const lastingWatch = 10 * time.Second

// staleWatch is how long a watch may send no event before it counts as dead. The API sends a
// bookmark every ten seconds, and the connection of a dead watch may stay open.
const staleWatch = 35 * time.Second

// followChanges reads changes until ctx ends or the API withdraws the change feed.
func (f *follower) followChanges(ctx context.Context) error {
	p := f.newPass(ctx)
	p.keep, p.newest = f.index.Put, true
	w := watcher{follower: f}
	cursor, err := f.awaitCursor(ctx)
	losses := 0
	for err == nil {
		begin := time.Now()
		if w.watchChanges(ctx, p, &cursor) && time.Since(begin) > lastingWatch {
			losses = 0
		}
		err = f.pullChanges(ctx, p, &cursor)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errWithdrawn):
			return err
		case isCursorLost(err):
			if losses++; losses > 1 {
				return fmt.Errorf("%w: %w", errWithdrawn, err)
			}
			f.setFeedError(ctx, err)
			cursor, err = f.resyncForCursor(ctx)
			continue
		case err == nil:
			losses = 0
		}
		f.setFeedError(ctx, err)
		err = backoff.Sleep(ctx, w.nextDelay(begin, err))
	}
	return err
}

// awaitCursor waits for a cursor from a sweep.
func (f *follower) awaitCursor(ctx context.Context) (string, error) {
	select {
	case cursor := <-f.cursors:
		return cursor, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// resyncForCursor starts a full sweep to get a new cursor.
func (f *follower) resyncForCursor(ctx context.Context) (string, error) {
	f.metrics.resyncs.Inc()
	f.log.InfoContext(ctx, "change cursor lost, listing all resources")
	select {
	case <-f.cursors: // It was left by a sweep long ago.
	default:
	}
	select {
	case f.resync <- struct{}{}:
	default:
	}
	return f.awaitCursor(ctx)
}

func (f *follower) changesQuery(cursor string) url.Values {
	q := url.Values{"changed_since": {cursor}}
	if labels := f.selector.String(); labels != "" {
		q.Set("labels", labels)
	}
	return q
}

// pullChanges requests all changes since the cursor.
func (f *follower) pullChanges(ctx context.Context, p *pass, cursor *string) error {
	for more := true; more; {
		env, err := f.pullChangesPage(ctx, p, *cursor)
		if err != nil {
			return err
		}
		if env.More && env.Cursor == *cursor {
			return fmt.Errorf("read changes of %s: %w", f.cfg.ResourceType, errNoEnd)
		}
		*cursor, more = env.Cursor, env.More
	}
	return nil
}

func (f *follower) pullChangesPage(ctx context.Context, p *pass, cursor string) (source.Envelope, error) {
	q := f.changesQuery(cursor)
	q.Set("limit", strconv.Itoa(f.cfg.HyperfleetAPI.PageSize))
	asking, cancel := context.WithTimeoutCause(ctx, f.cfg.HyperfleetAPI.Timeout, errNoChanges)
	defer cancel()
	asked := time.Now()
	body, err := f.api.ListPage(asking, f.cfg.ResourceType, q, f.buffer)
	if err != nil {
		return source.Envelope{}, fmt.Errorf("read changes of %s: %w", f.cfg.ResourceType, err)
	}
	f.buffer = body
	p.now, p.asked = time.Now(), asked
	p.trustFilter = p.trustsServerFilter(body, true, true)
	env, err := p.scanner.Scan(body, func(it *source.Item) error { return p.decideAndDispatch(ctx, it) })
	p.metrics.flushTally(&p.tally)
	if err != nil {
		return env, fmt.Errorf("read changes of %s: %w", f.cfg.ResourceType, err)
	}
	if env.Cursor == "" {
		return env, errWithdrawn
	}
	for _, id := range env.Removed {
		p.forgetResource(id)
	}
	f.metrics.changes.Add(float64(env.Items + len(env.Removed)))
	return env, nil
}

// A watcher watches the API as long as watching works.
type watcher struct {
	*follower

	// disabledAtSweep is the number of full sweeps when watching failed. After another full sweep
	// the watcher tries again.
	disabledAtSweep uint32
	disabled        bool
	failures        int // in a row
}

// watchChanges reads watch events until the API ends the watch. It reports whether there were any.
func (w *watcher) watchChanges(ctx context.Context, p *pass, cursor *string) (received bool) {
	if w.mode != ModeWatch || w.disabled && w.fullSweeps.Load() == w.disabledAtSweep {
		return false
	}
	w.disabled = false
	begin := time.Now()
	q := w.changesQuery(*cursor)
	q.Set("watch", "true")
	watching, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The API sends a bookmark once it has sent all changes, so the first message arrives soon.
	silent := time.AfterFunc(w.cfg.HyperfleetAPI.Timeout, func() { cancel(errSilent) })
	defer silent.Stop()
	stale := time.AfterFunc(staleWatch, func() { cancel(errStale) })
	defer stale.Stop()
	err := w.api.Watch(watching, w.cfg.ResourceType, q, func(e v1.WatchEvent) error {
		silent.Stop()
		stale.Stop() // From here on a delay is our own processing time.
		defer stale.Reset(staleWatch)
		if !received {
			w.setMode(ModeWatch)
		}
		received = true
		return w.processWatchEvent(ctx, p, e, cursor)
	})
	if ctx.Err() != nil {
		return received
	}
	if !received {
		w.setMode(ModeCursor)
	}
	w.metrics.reconnects.Inc()
	if w.failures++; time.Since(begin) > lastingWatch {
		w.failures = 0
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported), errors.Is(context.Cause(watching), errSilent):
		w.disabled, w.disabledAtSweep = true, w.fullSweeps.Load()
		w.log.WarnContext(ctx, "watch unavailable, polling for changes", "err", err)
	case err != nil && !errors.Is(err, io.EOF):
		w.warnSampled("watch", func(log *slog.Logger) { log.WarnContext(ctx, "watch ended", "err", err) })
	}
	return received
}

// nextDelay returns how long to wait before the next request for changes or the next watch.
func (w *watcher) nextDelay(begin time.Time, err error) time.Duration {
	if err != nil {
		return w.errorDelay(err)
	}
	if w.mode != ModeWatch || w.disabled {
		return max(0, w.cfg.PollInterval-time.Since(begin))
	}
	return backoff.Policy{Initial: 50 * time.Millisecond, Max: w.cfg.PollInterval}.Delay(w.failures)
}

// processWatchEvent processes one event of a watch.
func (f *follower) processWatchEvent(ctx context.Context, p *pass, e v1.WatchEvent, cursor *string) error {
	// The age of the event is unknown, because there was no time to receive it.
	p.now, p.asked = time.Now(), time.Time{}
	var err error
	switch e.Type {
	case v1.WatchChanged:
		p.trustFilter = p.trustsServerFilter(nil, false, true)
		err = p.scanner.ScanOne(e.Data, func(it *source.Item) error { return p.decideAndDispatch(ctx, it) })
		p.metrics.flushTally(&p.tally)
		f.metrics.changes.Inc()
	case v1.WatchRemoved:
		err = p.scanner.ScanOne(e.Data, func(it *source.Item) error {
			p.forgetResource(it.ID)
			return nil
		})
		f.metrics.changes.Inc()
	case v1.WatchBookmark, v1.WatchError:
	}
	if err != nil {
		return err
	}
	if e.Cursor != "" {
		*cursor = e.Cursor
	}
	f.setFeedError(ctx, nil)
	return nil
}
