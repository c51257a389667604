// Package watch streams changes to many watchers, as server-sent events, and reads the changes once for all of them.
// ServeEvents answers a request with a watch, and a Cursor is a place in the feed of changes.
//
// While it has watchers, a Hub reads the feed of all kinds and tenants at a short interval. A nudge
// makes it read at once, unless there are many changes. Each change is encoded as an event once and kept in a ring of bounded
// size. Each watcher has a position and takes the later changes from the ring. It skips those that
// it did not ask for or may not see, and sends the rest in batches, at its own pace. A watcher
// whose position is no longer, or not yet, in the ring reads the feed itself until it is. So a slow
// watcher delays only itself, and nothing queues up for it.
//
// A watcher receives every settled change after its position, in the order of the feed; several
// changes of a resource in between are sent as one. While the feed cannot be read, watches stay
// open and send only keep-alives.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// DefaultMaxWatches is the default for the maximum number of open watches.
const DefaultMaxWatches = 1000

// DefaultMetricPrefix is the default prefix of the metric names.
const DefaultMetricPrefix = "fleetloop_api"

// Intervals of reading the feed.
const (
	// idleInterval is the interval while there are no changes.
	idleInterval = 25 * time.Millisecond
	// busyInterval is the average interval while there are many changes. A nudge does not shorten it, because it
	// is better to send many changes together.
	busyInterval = 12 * time.Millisecond
	// maxPromptReads is the number of reads with changes that may follow each other at minPause. One more is
	// allowed after each busyInterval, so that changes wait for each other only if there are many.
	maxPromptReads = 8
	// minPause is the minimum time from a read that found nothing to the next. A nudged change may not
	// be settled yet, and nudges may be many.
	minPause = 2 * time.Millisecond
	// slowRead is the duration of a read after which watchers no longer count as up to date. A read
	// normally takes milliseconds.
	slowRead = 2 * time.Second
	// longestRead is the timeout of a read. The database would have cancelled the statement before,
	// so the connection is dead.
	longestRead = time.Minute
)

// Bounds of memory and load.
const (
	ringEntries = 8192
	ringBytes   = 32 << 20
	// A page of the feed ends at a number of changes, or at a size: sharedPageBytes for the shared read,
	// and ownPageBytes for a watcher that reads itself.
	pageChanges     = 500
	sharedPageBytes = 4 << 20
	ownPageBytes    = 256 << 10
	// maxOwnReads is the maximum number of watchers that read the feed themselves at the same time.
	// It leaves database connections for ordinary requests.
	maxOwnReads = 4
)

// Errors that a source returns and that end a watch.
var (
	// ErrExpired means that the changes after the cursor are not known.
	ErrExpired = errors.New("the changes after the cursor are no longer retained")
	// ErrUnavailable means that the feed cannot be read at present.
	ErrUnavailable = errors.New("the changes cannot be read")
)

// Errors of a watch that cannot begin.
var (
	// ErrTooMany means that the maximum number of watches is open, in total or of the tenant.
	ErrTooMany = errors.New("too many watches are open")
	// ErrStopping means that the hub is stopping.
	ErrStopping = errors.New("the server is shutting down")
)

// errNoAnswer is the cause of a read that timed out.
var errNoAnswer = fmt.Errorf("no response within %s", longestRead)

// A Change is a resource that changed.
type Change struct {
	At     Position
	Kind   string
	ID     string
	Tenant string
	Labels selector.Labels
	// Relabelled reports whether this change affected the labels, so that a selector may have matched before.
	Relabelled bool
	// Record is the resource as JSON, nil if it no longer exists.
	Record []byte
}

// A Query selects the changes of one kind ("" is all) after a cursor that a tenant may see.
type Query struct {
	Kind   string
	Tenant string
	All    bool // of all tenants
	After  Cursor
	Limit  int
	// Expected skips the check whether there are changes. It is set after a notification of a change.
	Expected bool
}

// A Source reads changes.
type Source interface {
	// VisitChanges calls visit for the settled changes, in order. It may omit changes of a resource that
	// changes again later, except for the last that relabelled it. Records are valid until visit
	// returns; an error of visit ends the call and is returned. It returns the cursor to resume
	// from, and whether there may be more.
	VisitChanges(ctx context.Context, q Query, visit func(Change) error) (next Cursor, hasMore bool, err error)
	// ReadLatestCursor returns the cursor after all settled changes.
	ReadLatestCursor(ctx context.Context) (Cursor, error)
}

// Config is the configuration of a Hub.
type Config struct {
	// MaxWatches is the maximum number of open watches, of which one tenant may have half. Zero means DefaultMaxWatches.
	MaxWatches int
	// MetricPrefix is the prefix of the metric names. Empty means DefaultMetricPrefix; two hubs of
	// a process need different ones.
	MetricPrefix string
}

// Deps holds the dependencies of a Hub.
type Deps struct {
	Source  Source
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// A Hub serves watchers. It is safe for concurrent use.
type Hub struct {
	source     Source
	log        *slog.Logger
	metrics    *metrics
	maxWatches int

	ring        *changeRing
	readSlots   chan struct{} // holds one item for each watcher that reads the feed itself
	buffers     sync.Pool
	nudged      chan struct{} // holds one
	joined      chan struct{} // holds one
	alwaysReady chan struct{} // closed

	mu       sync.Mutex
	watchers map[*watcher]context.CancelCauseFunc
	stopping bool
}

// New returns a hub. It starts nothing.
func New(cfg Config, deps Deps) (*Hub, error) {
	m, err := newMetrics(deps.Metrics, cmp.Or(cfg.MetricPrefix, DefaultMetricPrefix))
	if err != nil {
		return nil, err
	}
	h := &Hub{
		source: deps.Source, log: deps.Log, metrics: m, maxWatches: cfg.MaxWatches,
		ring:        newChangeRing(ringEntries, ringBytes),
		readSlots:   make(chan struct{}, maxOwnReads),
		buffers:     sync.Pool{New: func() any { return new([]byte) }},
		nudged:      make(chan struct{}, 1),
		joined:      make(chan struct{}, 1),
		alwaysReady: make(chan struct{}),

		watchers: map[*watcher]context.CancelCauseFunc{},
	}
	if h.maxWatches <= 0 {
		h.maxWatches = DefaultMaxWatches
	}
	close(h.alwaysReady)
	return h, nil
}

// TriggerRead signals that something changed. It never blocks.
func (h *Hub) TriggerRead() { signalWithoutBlocking(h.nudged) }

// Stop ends every watch with a final cursor, and refuses new ones. It does not wait for them.
func (h *Hub) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
	for _, end := range h.watchers {
		end(ErrStopping)
	}
}

// Run reads the feed while there are watchers, until ctx ends. Then it stops all watches, because
// they would receive nothing.
func (h *Hub) Run(ctx context.Context) error {
	defer h.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.joined:
		}
		h.pollFeedWhileWatched(ctx)
	}
}

// pollFeedWhileWatched reads the feed until there are no watchers, or ctx ends.
func (h *Hub) pollFeedWhileWatched(ctx context.Context) {
	defer h.ring.clearAndDeactivate()
	t := feedReader{Hub: h, pages: newPageReader(h.source, sharedPageBytes)}
	for failures := 0; ctx.Err() == nil && h.hasWatchers(); {
		again, err := t.readPageIntoRing(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures == 0 {
				h.log.WarnContext(ctx, "reading changes failed, retrying", "err", err)
			}
			h.ring.markFeedUnavailable()
			_ = backoff.Sleep(ctx, newFeedRetryPolicy().Delay(failures)) // the loop checks ctx
			failures++
			continue
		case failures > 0:
			h.log.InfoContext(ctx, "reading changes works again", "failures", failures)
			failures = 0
		}
		h.metrics.lastRead.SetToCurrentTime()
		if !again {
			t.waitUntilNextRead(ctx)
		}
	}
}

// newFeedRetryPolicy returns the delays between retries of a failing feed. They are short because watchers
// wait for changes.
func newFeedRetryPolicy() backoff.Policy {
	return backoff.Policy{Initial: 50 * time.Millisecond, Max: time.Second}
}

// A feedReader is the shared reader of the feed.
type feedReader struct {
	*Hub

	pages pageReader
	begun bool
	at    Cursor
	found int // number of changes in the last read
	// nudged reports whether a nudge led to the last read, or to one before it since which none has found changes.
	// misses counts these.
	nudged bool
	misses int
	// promptReads is the number of reads with changes that need not wait, at promptAt. A read that waits owes a part of one.
	promptReads float64
	promptAt    time.Time
}

// readPageIntoRing reads one page and adds it to the ring. It reports whether there is more.
func (t *feedReader) readPageIntoRing(ctx context.Context) (hasMore bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longestRead, errNoAnswer)
	defer cancel()
	defer time.AfterFunc(slowRead, t.ring.markFeedUnavailable).Stop()
	if !t.begun {
		if t.at, err = t.source.ReadLatestCursor(ctx); err != nil {
			return false, err
		}
		t.begun, t.found = true, 0
		t.ring.resetToCursor(t.at)
		return false, nil
	}
	var entries []*encodedChange
	next, hasMore, err := t.pages.readPage(
		ctx,
		Query{All: true, After: t.at, Expected: t.nudged && t.misses == 0},
		func(e *encodedChange) { entries = append(entries, e) },
	)
	if errors.Is(err, ErrExpired) {
		// Too many changes were made while the feed was unavailable. The tail continues from now;
		// each watcher that is behind rereads what it missed, or finds that it cannot.
		t.begun = false
	}
	if err != nil {
		return false, err
	}
	t.found, t.at = len(entries), next
	t.ring.appendAndEvictOldest(entries, next)
	return hasMore, nil
}

func (t *feedReader) waitUntilNextRead(ctx context.Context) {
	least, most := t.updateAndChooseNextPause(time.Now())
	if backoff.Sleep(ctx, least) != nil {
		return
	}
	timer := time.NewTimer(most - least)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-t.Hub.nudged:
		t.nudged, t.misses = true, 0
	}
}

// updateAndChooseNextPause returns the pause until the next read, with a nudge and without one.
func (t *feedReader) updateAndChooseNextPause(now time.Time) (least, most time.Duration) {
	earned := now.Sub(t.promptAt).Seconds() / busyInterval.Seconds()
	t.promptReads, t.promptAt = min(t.promptReads+earned, maxPromptReads), now
	if t.found > 0 {
		t.nudged, t.misses = false, 0
		t.promptReads--
		owed := time.Duration(-t.promptReads * float64(busyInterval))
		return max(minPause, owed), max(busyInterval, owed)
	}
	if !t.nudged {
		return minPause, idleInterval
	}
	// The nudged change waits for an earlier transaction, which may be of another process and not nudge.
	most = minPause << t.misses
	if t.misses++; most > busyInterval {
		t.nudged, t.misses = false, 0
		most = idleInterval
	}
	return minPause, most
}

func (h *Hub) hasWatchers() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers) > 0
}

// registerWatcher registers a watcher until unregister is called. The returned context ends when the watch must end.
func (h *Hub) registerWatcher(ctx context.Context, w *watcher) (watchCtx context.Context, unregister func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stopping:
		return nil, nil, ErrStopping
	case len(h.watchers) >= h.maxWatches, !w.All && h.countWatchersOf(w.Tenant) >= max(1, h.maxWatches/2):
		return nil, nil, ErrTooMany
	}
	stopTimer := func() {}
	if !w.Until.IsZero() {
		ctx, stopTimer = context.WithDeadlineCause(ctx, w.Until, errTimeLimit)
	}
	ctx, end := context.WithCancelCause(ctx)
	h.watchers[w] = end
	h.metrics.watchers.Inc()
	signalWithoutBlocking(h.joined)
	return ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, w)
		h.metrics.watchers.Dec()
		end(nil)
		stopTimer()
	}, nil
}

// countWatchersOf returns the number of watches that are limited to a tenant. The caller holds the mutex.
func (h *Hub) countWatchersOf(tenant string) (n int) {
	for w := range h.watchers {
		if !w.All && w.Tenant == tenant {
			n++
		}
	}
	return n
}

// signalWithoutBlocking leaves a signal for the next receiver and never blocks.
func signalWithoutBlocking(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
