package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// BookmarkEvery is the interval at which a watcher receives its position. A client takes a connection as
// broken after three intervals, and misses changes until then.
const BookmarkEvery = 4 * time.Second

// maxTakenEntries limits the changes that a watcher takes from the ring before it sends, and
// maxTakenBytes their total size. While its client is slow, the watcher keeps them in memory, even
// if the ring has dropped them.
const (
	maxTakenEntries = 256
	maxTakenBytes   = 4 * batchBytes
)

// errTimeLimit is the cause that ends a watch at its time limit.
var errTimeLimit = errors.New("the watch reached its maximum duration")

// A Request describes the changes that a watcher wants and may see.
type Request struct {
	Kind   string
	Tenant string
	All    bool // tenants
	// Labels selects the changes by label, nil for all.
	Labels Matcher
	// After is the cursor after which the watch begins. Nil begins now.
	After *Cursor
	// Until is the time limit of the watch; zero means none.
	Until time.Time
	// Allowed is called at every bookmark and returns an error if access has ended. The watch then
	// ends with that error and sends nothing more. Nil always allows.
	Allowed func(context.Context) error
}

// A Matcher selects changes by their labels. A selector.Selector is one.
type Matcher interface {
	Matches(labels selector.Labels) bool
}

// A Stream sends events to a client.
type Stream interface {
	// SendEvents returns when the events are written or cannot be written. Once ctx has ended it does not
	// wait long. Nil events begin the answer, so that the client knows that the watch is open.
	SendEvents(ctx context.Context, events []byte) error
}

// A watcher is an open watch.
type watcher struct {
	*Hub
	Request

	batch frameBatch
	pages pageReader
	at    Cursor // all changes up to here are sent or in the batch
	// behind means that the client must receive a bookmark when it is up to date. bookmarkDue means that
	// it must receive a sign of life.
	behind, bookmarkDue bool
	failures            int // consecutive failures to read the feed
	found               [maxTakenEntries]*encodedChange
}

// StreamChanges sends events until ctx ends, the hub stops, the time limit of the request passes, or an
// error occurs. The error is nil if the client can resume from its last cursor. A watch that cannot
// begin fails before it sends anything.
func (h *Hub) StreamChanges(ctx context.Context, request Request, out Stream) error {
	w := &watcher{
		Hub: h, Request: request,
		batch: frameBatch{hub: h, out: out}, pages: newPageReader(h.source, ownPageBytes),
	}
	defer w.batch.resetAndReleaseBuffer()
	ctx, leave, err := h.registerWatcher(ctx, w)
	if err != nil {
		return err
	}
	defer leave()
	err = w.openStreamAndSendFirstPage(ctx)
	begun := err == nil
	if begun {
		err = w.sendChangesUntilEnd(ctx)
	}
	cause := context.Cause(ctx)
	endedByHub := errors.Is(cause, ErrStopping) || errors.Is(cause, errTimeLimit)
	if !endedByHub {
		return err
	}
	if !begun {
		return ErrStopping
	}
	return w.sendBookmark(ctx)
}

// openStreamAndSendFirstPage finds the start of the watch, and checks that all changes since then are still known.
func (w *watcher) openStreamAndSendFirstPage(ctx context.Context) (err error) {
	if w.After == nil {
		if w.at, err = w.source.ReadLatestCursor(ctx); err != nil {
			return err
		}
		return w.sendBookmark(ctx)
	}
	w.at, w.behind = *w.After, true
	if err := w.readAndSendFeedPage(ctx); err != nil {
		return err
	}
	return w.batch.out.SendEvents(ctx, nil)
}

func (w *watcher) sendChangesUntilEnd(ctx context.Context) error {
	ticker := time.NewTicker(BookmarkEvery)
	defer ticker.Stop()
	for {
		wake, err := w.sendAvailableChanges(ctx)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch: %w", context.Cause(ctx))
		case <-ticker.C:
			if err := w.recheckAccess(ctx); err != nil {
				return err
			}
			w.bookmarkDue = true
		case <-wake:
		}
	}
}

func (w *watcher) recheckAccess(ctx context.Context) error {
	if w.Allowed == nil {
		return nil
	}
	return w.Allowed(ctx)
}

// sendAvailableChanges sends the next changes. The channel wake is closed when it should be called again.
func (w *watcher) sendAvailableChanges(ctx context.Context) (wake <-chan struct{}, err error) {
	v := w.ring.readAfter(w.at, w.found[:], maxTakenBytes)
	wake = v.renewed
	if v.missed || v.more {
		wake = w.alwaysReady
	}
	if v.missed {
		w.metrics.fallbacks.Inc()
		if err := w.sendFeedPageOrBackOff(ctx); err != nil {
			return nil, err
		}
	}
	for _, e := range v.entries {
		w.addToBatchIfVisible(e)
		if len(w.batch.b) < batchBytes {
			continue
		}
		if err := w.batch.flushFrames(ctx); err != nil {
			return nil, err
		}
	}
	clear(v.entries)
	tookAll := v.live && !v.missed && !v.more
	if tookAll && w.at.Compare(v.head.Position) < 0 {
		w.at = v.head
	}
	return wake, w.sendBatchAndDueBookmark(ctx, &v)
}

// sendBatchAndDueBookmark sends the batch, followed by a bookmark if one is due.
func (w *watcher) sendBatchAndDueBookmark(ctx context.Context, v *ringView) error {
	feedUnknown := !v.live || v.unavailable || w.failures > 0
	upToDate := !feedUnknown && !v.missed && !v.more
	switch {
	case upToDate && (w.behind || w.bookmarkDue):
		w.behind, w.bookmarkDue = false, false
		return w.sendBookmark(ctx)
	case w.bookmarkDue && feedUnknown:
		// A bookmark would be correct, but the client could conclude that nothing has changed.
		w.bookmarkDue = false
		w.batch.b = append(w.batch.b, ": the changes cannot be read\n\n"...)
	case w.bookmarkDue:
		w.bookmarkDue = false
		return w.sendBookmark(ctx)
	}
	return w.batch.flushFrames(ctx)
}

// sendBookmark sends the batch followed by the current position.
func (w *watcher) sendBookmark(ctx context.Context) error {
	w.batch.b = appendSSEFrame(w.batch.b, v1.WatchBookmark, w.at.String(), []byte("{}"))
	w.batch.bookmarks++
	return w.batch.flushFrames(ctx)
}

func (w *watcher) addToBatchIfVisible(change *encodedChange) {
	w.at.Position = change.at
	if frame, removed := w.selectFrame(change); frame != nil {
		w.batch.addFrame(frame, removed)
	}
}

// sendFeedPageOrBackOff reads and sends a page of the feed. If the feed is unavailable, it waits for a short time.
func (w *watcher) sendFeedPageOrBackOff(ctx context.Context) error {
	err := w.readAndSendFeedPage(ctx)
	if !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
		w.failures = 0
		return err
	}
	_ = backoff.Sleep(ctx, newFeedRetryPolicy().Delay(w.failures)) // the caller checks ctx
	w.failures++
	return nil
}

// readAndSendFeedPage reads a page of the feed into the batch and sends it.
func (w *watcher) readAndSendFeedPage(ctx context.Context) error {
	select {
	case w.readSlots <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("watch: %w", context.Cause(ctx))
	}
	next, more, err := w.readFeedPageIntoBatch(ctx)
	if err != nil {
		return err
	}
	w.at, w.behind = next, w.behind || more
	return w.batch.flushFrames(ctx)
}

// readFeedPageIntoBatch reads a page into the batch. It frees the read slot before anything is sent, because a
// slow client would hold up other readers.
func (w *watcher) readFeedPageIntoBatch(ctx context.Context) (next Cursor, hasMore bool, err error) {
	defer func() { <-w.readSlots }()
	q := Query{Kind: w.Kind, Tenant: w.Tenant, All: w.All, After: w.at}
	return w.pages.readPage(ctx, q, w.addToBatchIfVisible)
}
