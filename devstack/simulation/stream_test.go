package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	bookmarkEvery = 10 * time.Second
	// silence is how long a client may take to detect a dead watch: three missing bookmarks.
	silence = 3 * bookmarkEvery
)

// A stream is a watch in progress.
type stream struct {
	*request
	server *Server
	number int
	at     int64 // everything up to this position was sent
	marked time.Time
}

// serveWatch sends the changes since a cursor, and then new changes.
func (s *Server) serveWatch(ctx context.Context, q *request) {
	from := q.r.Header.Get("Last-Event-ID")
	if from == "" {
		from = q.r.URL.Query().Get("changed_since")
	}
	_, at := s.fleet.stateTag()
	if from != "" {
		var err error
		if at, err = s.fleet.parseCursor(from); err != nil {
			s.refuseCursor(q, err)
			return
		}
	}
	s.mu.Lock()
	s.streams++
	w := &stream{request: q, server: s, number: s.streams, at: at}
	s.mu.Unlock()
	q.w.Header().Set("Content-Type", "text/event-stream")
	q.w.WriteHeader(http.StatusOK)
	w.flushEvents()
	for w.sendStep(ctx) {
	}
	s.history.Note("", "watch %d has ended", w.number)
}

// sendStep sends the available changes and waits for more. It returns false when the watch has
// ended.
func (w *stream) sendStep(ctx context.Context) (more bool) {
	f, struck := w.server.cfg.Schedule.DrawFault(
		w.server.cfg.Dice.For("stream", w.number, time.Since(w.server.cfg.Schedule.Begin)), StreamCut, StreamDead, StreamEnd)
	if struck {
		return w.applyFault(ctx, f)
	}
	b, err := w.server.fleet.changesSince(w.selector, w.at, 500)
	if err != nil {
		problem, _ := json.Marshal(v1.Problem{Type: "about:blank", Title: "Gone", Status: http.StatusGone, Code: "cursor_expired"})
		w.writeEvent(v1.WatchError, problem)
		w.flushEvents()
		return false
	}
	for _, n := range b.news {
		w.at = n.seq
		if n.resource == nil {
			w.writeEvent(v1.WatchRemoved, fmt.Appendf(nil, `{"id":%q}`, n.id))
			continue
		}
		data, err := json.Marshal(n.resource)
		if err != nil {
			w.server.history.RecordFault("encode an event: %v", err)
		}
		w.writeEvent(v1.WatchChanged, data)
	}
	w.at = b.seq
	if !b.more && time.Since(w.marked) >= bookmarkEvery {
		w.marked = time.Now()
		w.writeEvent(v1.WatchBookmark, []byte("{}"))
	}
	if !w.flushEvents() {
		return false
	}
	return b.more || w.waitForChange(ctx, b.wake)
}

// waitForChange waits until something changes or the next bookmark is due.
func (w *stream) waitForChange(ctx context.Context, wake <-chan struct{}) bool {
	timer := time.NewTimer(time.Until(w.marked.Add(bookmarkEvery)))
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

func (w *stream) writeEvent(kind v1.WatchEventType, data []byte) {
	epoch, _ := w.server.fleet.stateTag()
	_, _ = fmt.Fprintf(w.w, "event: %s\nid: %s\ndata: %s\n\n", kind, formatCursor(epoch, w.at), data)
}

func (w *stream) flushEvents() bool { return http.NewResponseController(w.w).Flush() == nil }

// applyFault applies a fault to a watch, which ends the watch.
func (w *stream) applyFault(ctx context.Context, f Fault) bool {
	begin := time.Now()
	switch f.Kind {
	case StreamDead:
		// No client may trust the watch for longer than that.
		_ = backoff.Sleep(ctx, silence)
		w.server.history.RecordStrike(f.Kind.String(), begin, time.Now())
		<-ctx.Done()
	case StreamCut:
		w.server.history.RecordStrike(f.Kind.String(), begin, begin)
		_, _ = fmt.Fprintf(w.w, "event: changed\nid: ")
		w.flushEvents()
		panic(http.ErrAbortHandler)
	case StreamEnd:
		w.server.history.RecordStrike(f.Kind.String(), begin, begin)
		w.writeEvent(v1.WatchBookmark, []byte("{}"))
		w.flushEvents()
	case APIError, APIBusy, APIGone, APISlow, APIReset, APIGarbage, APIDown, CursorGone, Withdrawn,
		BrokerLosesConfirm, BrokerRefuses, BrokerBlocks, BrokerAway, NumKinds:
	}
	return false
}
