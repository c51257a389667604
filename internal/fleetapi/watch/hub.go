// Package watch tells many watchers what changes and reads the changes once
// for all of them.
//
// While there are watchers, a Hub reads the feed of all kinds and tenants at a
// short interval, and at once when it is nudged. Each change is turned into the
// bytes of its event once and kept in a ring of bounded size. Each watcher
// holds a position, takes from the ring what comes behind it, leaves out what
// it did not ask for or may not see, and sends the rest in batches, at its own
// pace. One whose position is not in the ring any more, or not yet, reads the
// feed itself until it is. So a slow watcher costs itself time and the others
// nothing, and nothing queues up for it.
//
// A watcher is sent every settled change behind its position, in the order of
// the feed; what changed several times in between is told once. While the feed
// cannot be read, watches stay open and say nothing but that they live.
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
	"github.com/fleetloop/fleetloop/internal/fleetapi/feed"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// DefaultMaxWatches is how many watches may be open at once.
const DefaultMaxWatches = 1000

// DefaultMetricPrefix begins the names of the metrics.
const DefaultMetricPrefix = "fleetloop_api"

// How often the feed is read.
const (
	// idleEvery is the interval while nothing comes.
	idleEvery = 25 * time.Millisecond
	// busyEvery is the interval while changes come. They are the better for
	// being sent together, so a nudge does not shorten it.
	busyEvery = 10 * time.Millisecond
	// gap is the least time from a read that found nothing to the next. A
	// change that was nudged for may not be settled yet, and many may be.
	gap = 2 * time.Millisecond
	// slowRead is how long a read may take, which needs milliseconds, until
	// nobody is called up to date any more.
	slowRead = 2 * time.Second
	// longestRead is when a read is given up. A database would have given up
	// the statement before, so nobody is at the other end of the connection.
	longestRead = time.Minute
)

// Bounds of memory and load.
const (
	ringEntries = 8192
	ringBytes   = 32 << 20
	// A page of the feed ends at a number of changes, or when it is as large
	// as this: for all watchers, and for one that reads by itself.
	pageLines = 500
	tailBytes = 4 << 20
	ownBytes  = 256 << 10
	// readsAtOnce is how many watchers may read the feed by themselves at a
	// time. It leaves connections to the database for ordinary requests.
	readsAtOnce = 4
)

// Errors that a source returns and a watch ends with.
var (
	// ErrExpired means that the changes behind the cursor are not known.
	ErrExpired = errors.New("the changes after the cursor are no longer retained")
	// ErrUnavailable means that the feed cannot be read just now.
	ErrUnavailable = errors.New("the changes cannot be read")
)

// Errors of a watch that cannot begin.
var (
	// ErrTooMany means that as many watches are open as may be.
	ErrTooMany = errors.New("too many watches are open")
	// ErrStopping means that the hub ends.
	ErrStopping = errors.New("the server is shutting down")
)

// errNoAnswer is the cause that ends a read.
var errNoAnswer = fmt.Errorf("no response within %s", longestRead)

// errEnough ends the reading of a page that is large enough.
var errEnough = errors.New("enough")

// A Change is a resource that changed.
type Change struct {
	At     feed.Position
	Kind   string
	ID     string
	Tenant string
	Labels selector.Labels
	// Relabelled says that this changed the labels, so that a selector may have
	// matched before.
	Relabelled bool
	// Record is the resource as JSON, nil if it is gone.
	Record []byte
}

// A Query asks a Source for the changes of one kind ("" is all) that a tenant
// may see, behind a cursor.
type Query struct {
	Kind   string
	Tenant string
	All    bool // of all tenants
	After  feed.Cursor
	Limit  int
}

// A Source is where the changes come from.
type Source interface {
	// Changes calls visit for the settled changes, in order. It may leave out
	// changes of a resource that changes again behind them, but for the last that
	// relabelled it. Records are valid until visit returns; an error of visit
	// ends it and is returned. It returns where to go on, and whether there may
	// be more.
	Changes(ctx context.Context, q Query, visit func(Change) error) (next feed.Cursor, more bool, err error)
	// Now is the place behind all that is settled.
	Now(ctx context.Context) (feed.Cursor, error)
}

// Config is what an operator settles.
type Config struct {
	// MaxWatches bounds the watches that are open at once. Zero means
	// DefaultMaxWatches.
	MaxWatches int
	// MetricPrefix begins the names of the metrics. Empty means
	// DefaultMetricPrefix; two hubs of a process need different ones.
	MetricPrefix string
}

// Deps are what a Hub works with.
type Deps struct {
	Source  Source
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// A Hub serves watchers. It is safe for concurrent use.
type Hub struct {
	source  Source
	log     *slog.Logger
	metrics *metrics
	most    int

	ring    *ring
	reads   chan struct{} // holds those who read the feed by themselves
	buffers sync.Pool
	nudged  chan struct{} // holds one
	joined  chan struct{} // holds one
	ready   chan struct{} // is closed

	mu       sync.Mutex
	watchers map[*watcher]context.CancelCauseFunc
	stopping bool
}

// New makes a hub. It starts nothing.
func New(cfg Config, deps Deps) (*Hub, error) {
	m, err := newMetrics(deps.Metrics, cmp.Or(cfg.MetricPrefix, DefaultMetricPrefix))
	if err != nil {
		return nil, err
	}
	h := &Hub{
		source: deps.Source, log: deps.Log, metrics: m, most: cfg.MaxWatches,
		ring:    newRing(ringEntries, ringBytes),
		reads:   make(chan struct{}, readsAtOnce),
		buffers: sync.Pool{New: func() any { return new([]byte) }},
		nudged:  make(chan struct{}, 1),
		joined:  make(chan struct{}, 1),
		ready:   make(chan struct{}),

		watchers: map[*watcher]context.CancelCauseFunc{},
	}
	if h.most <= 0 {
		h.most = DefaultMaxWatches
	}
	close(h.ready)
	return h, nil
}

// Nudge says that something changed. It never blocks.
func (h *Hub) Nudge() { signalChannel(h.nudged) }

// Stop lets every watch say where it got to and end, and takes no new ones. It
// does not wait for them.
func (h *Hub) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
	for _, end := range h.watchers {
		end(ErrStopping)
	}
}

// Run reads the feed while there are watchers, until ctx ends. No watch
// outlives it for long: nobody would feed it.
func (h *Hub) Run(ctx context.Context) error {
	defer h.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.joined:
		}
		h.followFeed(ctx)
	}
}

// followFeed reads the feed until nobody watches, or ctx ends.
func (h *Hub) followFeed(ctx context.Context) {
	defer h.ring.clearAll()
	t := tail{Hub: h}
	for failures := 0; ctx.Err() == nil && h.hasWatchers(); {
		again, err := t.readPage(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures == 0 {
				h.log.WarnContext(ctx, "reading changes failed, retrying", "err", err)
			}
			h.ring.markUnavailable()
			_ = backoff.Sleep(ctx, retryPolicy().Delay(failures)) // ctx is looked at above
			failures++
			continue
		case failures > 0:
			h.log.InfoContext(ctx, "reading changes works again", "failures", failures)
			failures = 0
		}
		h.metrics.lastRead.SetToCurrentTime()
		if !again {
			t.waitForChanges(ctx)
		}
	}
}

// retryPolicy says how long to wait for a feed that cannot be read. Who waits for
// it waits for changes, so it is asked often.
func retryPolicy() backoff.Policy {
	return backoff.Policy{Initial: 50 * time.Millisecond, Max: time.Second}
}

// A tail is what reads the feed for all watchers.
type tail struct {
	*Hub

	begun  bool
	at     feed.Cursor
	found  int  // by the last read
	nudged bool // before the last read
}

// readPage reads one page and adds it to the ring. It says whether there is more.
func (t *tail) readPage(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longestRead, errNoAnswer)
	defer cancel()
	defer time.AfterFunc(slowRead, t.ring.markUnavailable).Stop()
	if !t.begun {
		if t.at, err = t.source.Now(ctx); err != nil {
			return false, err
		}
		t.begun, t.found = true, 0
		t.ring.resetAt(t.at)
		return false, nil
	}
	var entries []*entry
	next, more, err := t.readFeedPage(ctx, Query{All: true, After: t.at}, tailBytes, func(e *entry) { entries = append(entries, e) })
	if errors.Is(err, ErrExpired) {
		// Too much happened while the feed was away. We go on from now; each
		// watcher who is behind finds out what it missed, or that it cannot.
		t.begun = false
	}
	if err != nil {
		return false, err
	}
	t.found, t.at = len(entries), next
	t.ring.appendEntries(entries, next)
	return more, nil
}

// waitForChanges waits until the feed is to be read again.
func (t *tail) waitForChanges(ctx context.Context) {
	least, most := gap, idleEvery
	if t.found > 0 {
		least = busyEvery
	}
	if t.found > 0 || t.nudged {
		most = busyEvery
	}
	t.nudged = false
	if backoff.Sleep(ctx, least) != nil {
		return
	}
	timer := time.NewTimer(most - least)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-t.Hub.nudged:
		t.nudged = true
	}
}

// hasWatchers says whether anybody watches.
func (h *Hub) hasWatchers() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers) > 0
}

// addWatcher counts a watcher in, until it leaves. The context that it gives ends
// when the watch has to.
func (h *Hub) addWatcher(ctx context.Context, w *watcher) (joined context.Context, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stopping:
		return nil, nil, ErrStopping
	case len(h.watchers) >= h.most:
		return nil, nil, ErrTooMany
	}
	inTime := func() {}
	if !w.Until.IsZero() {
		ctx, inTime = context.WithDeadlineCause(ctx, w.Until, errOver)
	}
	ctx, end := context.WithCancelCause(ctx)
	h.watchers[w] = end
	h.metrics.watchers.Inc()
	signalChannel(h.joined)
	return ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, w)
		h.metrics.watchers.Dec()
		end(nil)
		inTime()
	}, nil
}

// readFeedPage reads a page of the feed. Records may be large, so it ends early when
// the entries together have reached a size.
func (h *Hub) readFeedPage(ctx context.Context, q Query, most int, take func(*entry)) (next feed.Cursor, more bool, err error) {
	q.Limit = pageLines
	last, size := q.After, 0
	next, more, err = h.source.Changes(ctx, q, func(c Change) error {
		e := newEntry(&c, q.After)
		take(e)
		last.Position = c.At
		if size += e.sizeBytes(); size >= most {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return last, true, nil
	}
	return next, more, err
}

// signalChannel leaves a mark for whoever reads the channel next.
func signalChannel(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
