package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/fleetapi/feed"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// BookmarkEvery is how often a watcher is told where it is.
const BookmarkEvery = 10 * time.Second

// lookedAtOnce is how many changes of the ring a watcher looks at before it
// sends what it found, and lookedAtBytes how large they are together. While its
// client is slow to take them it holds them, though the ring may have gone on.
const (
	lookedAtOnce  = 256
	lookedAtBytes = 4 * batchBytes
)

// errOver is the cause that ends a watch whose time is over.
var errOver = errors.New("the watch reached its maximum duration")

// A Request is what a watcher wants to know and may.
type Request struct {
	Kind   string
	Tenant string
	All    bool // tenants
	// Labels is what the changes are to match, nil for all.
	Labels Matcher
	// After is where to begin: behind it. Nil begins now.
	After *feed.Cursor
	// Until is when the watch ends by itself; zero is never.
	Until time.Time
	// Allowed is asked as often as there are bookmarks whether the watch may
	// go on. It ends with the error, and sends nothing more. Nil is always.
	Allowed func(context.Context) error
}

// A Matcher says whether a watcher wants to know of what has some labels. A
// selector.Selector is one.
type Matcher interface {
	Matches(labels selector.Labels) bool
}

// A Stream takes events on their way to a client.
type Stream interface {
	// Send returns when the events are on their way, or cannot be sent any
	// more. Once ctx has ended it does not wait long for that. Nil begins the
	// answer, so that the client knows that it watches.
	Send(ctx context.Context, events []byte) error
}

// A watcher is a watch while it is open.
type watcher struct {
	*Hub
	Request

	batch batch
	at    feed.Cursor // everything up to here is sent or in the batch
	// behind says that the client has to be told when it is up to date, ticked
	// that it has to be told something.
	behind, ticked bool
	failures       int // to read the feed, in a row
	found          [lookedAtOnce]*entry
}

// Watch sends events until ctx ends, the hub is stopped, the time of the
// request is over or something fails. The error is nil if nothing is wrong and
// the client knows where to go on. A watch that cannot begin fails before
// anything is sent.
func (h *Hub) Watch(ctx context.Context, r Request, out Stream) error {
	w := &watcher{Hub: h, Request: r, batch: batch{hub: h, out: out}}
	defer w.batch.releaseFrames()
	ctx, leave, err := h.addWatcher(ctx, w)
	if err != nil {
		return err
	}
	defer leave()
	begun := false
	if err = w.findStart(ctx); err == nil {
		begun, err = true, w.runWatch(ctx)
	}
	switch cause := context.Cause(ctx); {
	case !errors.Is(cause, ErrStopping) && !errors.Is(cause, errOver):
		return err
	case !begun:
		return ErrStopping
	}
	return w.sendBookmark(ctx)
}

// findStart finds out where the watch begins, and whether all that changed since
// then is still known.
func (w *watcher) findStart(ctx context.Context) (err error) {
	if w.After == nil {
		if w.at, err = w.source.Now(ctx); err != nil {
			return err
		}
		return w.sendBookmark(ctx)
	}
	w.at, w.behind = *w.After, true
	if err := w.readFeed(ctx); err != nil {
		return err
	}
	return w.batch.out.Send(ctx, nil)
}

func (w *watcher) runWatch(ctx context.Context) error {
	ticker := time.NewTicker(BookmarkEvery)
	defer ticker.Stop()
	for {
		news, err := w.sendNext(ctx)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch: %w", context.Cause(ctx))
		case <-ticker.C:
			if err := w.checkAccess(ctx); err != nil {
				return err
			}
			w.ticked = true
		case <-news:
		}
	}
}

func (w *watcher) checkAccess(ctx context.Context) error {
	if w.Allowed == nil {
		return nil
	}
	return w.Allowed(ctx)
}

// sendNext sends what comes next. It returns a channel that is closed when it is
// worth calling it again.
func (w *watcher) sendNext(ctx context.Context) (<-chan struct{}, error) {
	v := w.ring.viewAfter(w.at, w.found[:], lookedAtBytes)
	news := v.renewed
	switch {
	case v.missed:
		w.metrics.fallbacks.Inc()
		if err := w.rereadFeed(ctx); err != nil {
			return nil, err
		}
		news = w.ready
	case v.more:
		news = w.ready
	}
	for _, e := range v.entries {
		w.addChange(e)
		if len(w.batch.b) < batchBytes {
			continue
		}
		if err := w.batch.sendFrames(ctx); err != nil {
			return nil, err
		}
	}
	clear(v.entries)
	if v.live && !v.missed && !v.more && w.at.Compare(v.head.Position) < 0 {
		w.at = v.head
	}
	return news, w.finishBatch(ctx, &v)
}

// finishBatch sends the batch, with a word at its end on where the client is, if it
// is time for that.
func (w *watcher) finishBatch(ctx context.Context, v *view) error {
	blind := !v.live || v.away || w.failures > 0
	upToDate := !blind && !v.missed && !v.more
	switch {
	case upToDate && (w.behind || w.ticked):
		w.behind, w.ticked = false, false
		return w.sendBookmark(ctx)
	case w.ticked && blind:
		// A bookmark would not lie, but who gets it may think that nothing
		// has changed.
		w.ticked = false
		w.batch.b = append(w.batch.b, ": the changes cannot be read\n\n"...)
	case w.ticked:
		w.ticked = false
		return w.sendBookmark(ctx)
	}
	return w.batch.sendFrames(ctx)
}

// sendBookmark sends the batch and where it leads.
func (w *watcher) sendBookmark(ctx context.Context) error {
	w.batch.b = appendFrame(w.batch.b, v1.WatchBookmark, w.at.String(), []byte("{}"))
	w.batch.bookmarks++
	return w.batch.sendFrames(ctx)
}

// addChange puts a change into the batch if it is for this watcher.
func (w *watcher) addChange(e *entry) {
	w.at.Position = e.at
	if frame, removed := w.frameFor(e); frame != nil {
		w.batch.addFrame(frame, removed)
	}
}

// rereadFeed reads a page of the feed. If the feed is away, it waits a little.
func (w *watcher) rereadFeed(ctx context.Context) error {
	err := w.readFeed(ctx)
	if !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
		w.failures = 0
		return err
	}
	_ = backoff.Sleep(ctx, retryPolicy().Delay(w.failures)) // whoever called looks at ctx
	w.failures++
	return nil
}

// readFeed reads a page of the feed into the batch and sends it.
func (w *watcher) readFeed(ctx context.Context) error {
	select {
	case w.reads <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("watch: %w", context.Cause(ctx))
	}
	next, more, err := w.readPage(ctx)
	if err != nil {
		return err
	}
	w.at, w.behind = next, w.behind || more
	return w.batch.sendFrames(ctx)
}

// readPage reads a page into the batch and makes room for others to read.
// Nothing is sent before that: a slow client would hold them up.
func (w *watcher) readPage(ctx context.Context) (next feed.Cursor, more bool, err error) {
	defer func() { <-w.reads }()
	q := Query{Kind: w.Kind, Tenant: w.Tenant, All: w.All, After: w.at}
	return w.readFeedPage(ctx, q, ownBytes, w.addChange)
}
