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
	errNewCursor = errors.New("a full sweep has begun, the watch continues from its cursor")
)

// lastingWatch is the minimum life of a healthy watch. A watch that lived for longer resets the
// backoff, and its cursors are usable.
const lastingWatch = 10 * time.Second

// staleWatch is how long a watch may send no event before it counts as dead. The API sends a
// bookmark every ten seconds, and the connection of a dead watch may stay open.
const staleWatch = 35 * time.Second

// A feed reads the changes of the collection: from a watch as long as watching works, otherwise by
// polling. It belongs to one goroutine.
type feed struct {
	follower *follower
	sentinel *Sentinel
	pass     *decisionPass
	cursor   string
	buffer   []byte // for pages of changes
	// sweepCursor is the cursor of a sweep, until the feed continues from it.
	sweepCursor string

	// watchDisabled says that watching failed, when disabledAtSweep full sweeps were completed.
	// After another full sweep the feed tries again.
	watchDisabled   bool
	disabledAtSweep uint32
	watchFailures   int // in a row
}

// newFeed returns a feed of the follower's collection.
func (f *follower) newFeed(ctx context.Context) *feed {
	p := f.newDecisionPass(ctx)
	p.scheduleNext, p.readsNewest = f.index.PutNewest, true
	return &feed{follower: f, sentinel: f.sentinel, pass: p}
}

// followChanges reads changes until ctx ends or the API withdraws the change feed.
func (f *feed) followChanges(ctx context.Context) error {
	err := f.awaitCursorFromSweep(ctx)
	rejections := 0 // of cursors, without a success in between
	for err == nil {
		begin := time.Now()
		watched := f.watchAndDecideChanges(ctx)
		if watched && time.Since(begin) > lastingWatch {
			rejections = 0
		}
		// A watch may end because its cursor expired, and is not used at all in the mode cursor.
		f.takeCursorFromSweep()
		err = f.readAndDecideChanges(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errWithdrawn) {
			return err
		}
		if isCursorRejected(err) {
			rejections++
			if rejections > 1 {
				return fmt.Errorf("%w: %w", errWithdrawn, err)
			}
			f.recordFeedResult(ctx, err)
			err = f.requestSweepAndAwaitCursor(ctx)
			continue
		}
		if err == nil {
			rejections = 0
			f.returnToCursorFromSweep()
		}
		f.recordFeedResult(ctx, err)
		err = backoff.Sleep(ctx, f.delayUntilNextRead(begin, err))
	}
	return err
}

// awaitCursorFromSweep waits for a cursor from a sweep.
func (f *feed) awaitCursorFromSweep(ctx context.Context) error {
	f.sweepCursor = ""
	select {
	case f.cursor = <-f.follower.cursors:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// takeCursorFromSweep takes the cursor of a sweep that has begun since.
func (f *feed) takeCursorFromSweep() {
	select {
	case f.sweepCursor = <-f.follower.cursors:
	default:
	}
}

// returnToCursorFromSweep moves the feed back to the cursor that it took before it read all changes, so that the cursor
// skips none. The pages of a sweep may be older than the changes that the feed has already read, because the API may
// read them from a standby. The feed reads these changes again, and so corrects what the sweep overwrites.
func (f *feed) returnToCursorFromSweep() {
	if f.sweepCursor != "" {
		f.cursor, f.sweepCursor = f.sweepCursor, ""
	}
}

// requestSweepAndAwaitCursor starts a full sweep to get a new cursor.
func (f *feed) requestSweepAndAwaitCursor(ctx context.Context) error {
	f.sentinel.metrics.resyncs.Inc()
	f.sentinel.log.InfoContext(ctx, "change cursor lost, listing all resources")
	select {
	case <-f.follower.cursors: // It was left by a sweep long ago.
	default:
	}
	select {
	case f.follower.resync <- struct{}{}:
	default:
	}
	return f.awaitCursorFromSweep(ctx)
}

func (f *feed) buildChangesQuery() url.Values {
	query := url.Values{"changed_since": {f.cursor}}
	if labels := f.sentinel.selector.String(); labels != "" {
		query.Set("labels", labels)
	}
	return query
}

// readAndDecideChanges requests all changes since the cursor.
func (f *feed) readAndDecideChanges(ctx context.Context) error {
	for more := true; more; {
		envelope, err := f.readAndDecideChangesPage(ctx)
		if err != nil {
			return err
		}
		if envelope.More && envelope.Cursor == f.cursor {
			return fmt.Errorf("read changes of %s: %w", f.sentinel.cfg.ResourceType, errNoEnd)
		}
		f.cursor, more = envelope.Cursor, envelope.More
	}
	return nil
}

// readAndDecideChangesPage requests one page of changes since the cursor, and decides it.
func (f *feed) readAndDecideChangesPage(ctx context.Context) (source.Envelope, error) {
	p := f.pass
	collection := f.sentinel.cfg.ResourceType
	query := f.buildChangesQuery()
	query.Set("limit", strconv.Itoa(f.sentinel.cfg.HyperfleetAPI.PageSize))

	requesting, cancel := context.WithTimeoutCause(ctx, f.sentinel.cfg.HyperfleetAPI.Timeout, errNoChanges)
	defer cancel()
	requestedAt := time.Now()
	body, err := f.sentinel.api.ListPage(requesting, collection, query, f.buffer)
	if err != nil {
		return source.Envelope{}, fmt.Errorf("read changes of %s: %w", collection, err)
	}
	f.buffer = body

	p.now, p.requestedAt = time.Now(), requestedAt
	p.trustsServer = p.labels.trustsServerFilter(body, true, true)
	envelope, err := p.scanner.ScanPage(body, func(it *source.Item) error { return p.decideAndDispatch(ctx, it) })
	p.metrics.addAndResetTally(&p.tally)
	if err != nil {
		return envelope, fmt.Errorf("read changes of %s: %w", collection, err)
	}
	if envelope.Cursor == "" {
		return envelope, errWithdrawn
	}
	for _, id := range envelope.Removed {
		p.forgetResource(id)
	}
	f.sentinel.metrics.changes.Add(float64(envelope.Items + len(envelope.Removed)))
	return envelope, nil
}

// watchAndDecideChanges reads watch events until the API ends the watch. It reports whether there
// were any. If watching does not work, the feed polls until the next full sweep.
func (f *feed) watchAndDecideChanges(ctx context.Context) (received bool) {
	completedSweeps := f.follower.fullSweeps.Load()
	if f.follower.mode != ModeWatch || f.watchDisabled && completedSweeps == f.disabledAtSweep {
		return false
	}
	f.watchDisabled = false
	begin := time.Now()
	received, unavailable, err := f.watchUntilEnd(ctx)
	if ctx.Err() != nil || errors.Is(err, errNewCursor) {
		return received
	}

	if !received {
		f.sentinel.setMode(ModeCursor)
	}
	f.sentinel.metrics.reconnects.Inc()
	f.watchFailures++
	if time.Since(begin) > lastingWatch {
		f.watchFailures = 0
	}
	switch {
	case unavailable:
		f.watchDisabled, f.disabledAtSweep = true, f.follower.fullSweeps.Load()
		f.sentinel.log.WarnContext(ctx, "watch unavailable, polling for changes", "err", err)
	case err != nil && !errors.Is(err, io.EOF):
		f.sentinel.reporter.warnSampled("watch", func(log *slog.Logger) {
			log.WarnContext(ctx, "watch ended", "err", err)
		})
	}
	return received
}

// watchUntilEnd starts a watch and decides its events until it ends. unavailable says that the API
// does not support watches, or that no event arrived in time.
func (f *feed) watchUntilEnd(ctx context.Context) (received, unavailable bool, err error) {
	query := f.buildChangesQuery()
	query.Set("watch", "true")
	watching, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The API sends a bookmark once it has sent all changes, so the first message arrives soon.
	silent := time.AfterFunc(f.sentinel.cfg.HyperfleetAPI.Timeout, func() { cancel(errSilent) })
	defer silent.Stop()
	stale := time.AfterFunc(staleWatch, func() { cancel(errStale) })
	defer stale.Stop()

	err = f.sentinel.api.Watch(watching, f.sentinel.cfg.ResourceType, query, func(event v1.WatchEvent) error {
		silent.Stop()
		stale.Stop() // From here on a delay is our own processing time.
		defer stale.Reset(staleWatch)
		if !received {
			f.sentinel.setMode(ModeWatch)
		}
		received = true
		return f.decideWatchEvent(ctx, event)
	})
	unavailable = errors.Is(err, errors.ErrUnsupported) || errors.Is(context.Cause(watching), errSilent)
	return received, unavailable, err
}

// delayUntilNextRead returns how long to wait before the next request for changes or the next watch.
func (f *feed) delayUntilNextRead(began time.Time, err error) time.Duration {
	if err != nil {
		return f.sentinel.cfg.delayAfterError(err)
	}
	if f.follower.mode != ModeWatch || f.watchDisabled {
		return max(0, f.sentinel.cfg.PollInterval-time.Since(began))
	}
	return backoff.Policy{Initial: 50 * time.Millisecond, Max: f.sentinel.cfg.PollInterval}.Delay(f.watchFailures)
}

// decideWatchEvent processes one event of a watch.
func (f *feed) decideWatchEvent(ctx context.Context, event v1.WatchEvent) error {
	p := f.pass
	// The time of the request is unknown. With the zero time, a confirmed event about a newer
	// generation always overtakes this one.
	p.now, p.requestedAt = time.Now(), time.Time{}
	var err error
	switch event.Type {
	case v1.WatchChanged:
		p.trustsServer = p.labels.trustsServerFilter(nil, false, true)
		err = p.scanner.ScanResource(event.Data, func(it *source.Item) error { return p.decideAndDispatch(ctx, it) })
		p.metrics.addAndResetTally(&p.tally)
		f.sentinel.metrics.changes.Inc()
	case v1.WatchRemoved:
		err = p.scanner.ScanResource(event.Data, func(it *source.Item) error {
			p.forgetResource(it.ID)
			return nil
		})
		f.sentinel.metrics.changes.Inc()
	case v1.WatchBookmark, v1.WatchError: // A bookmark only moves the cursor. An error is the last event of its watch.
	}
	if err != nil {
		return err
	}
	if event.Cursor != "" {
		f.cursor = event.Cursor
	}
	f.recordFeedResult(ctx, nil)
	if f.sweepCursor != "" || len(f.follower.cursors) > 0 {
		return errNewCursor
	}
	return nil
}

// recordFeedResult records whether the feed is up to date. The first success starts the next poll,
// because a round is complete only with the feed.
func (f *feed) recordFeedResult(ctx context.Context, err error) {
	before := f.sentinel.feeding.load()
	if err == nil {
		f.sentinel.feeding.store(nil)
		if errors.Is(before, errNotFollowed) {
			f.follower.triggerPoll()
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	f.sentinel.reporter.countAndStoreAPIError(&f.sentinel.feeding, err)
	sameAsBefore := before != nil && before.Error() == err.Error()
	if !sameAsBefore {
		f.sentinel.reporter.warnSampled("feed", func(log *slog.Logger) {
			log.WarnContext(ctx, "change feed failed", "err", err)
		})
	}
}
