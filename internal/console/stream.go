package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/console/session"
)

// The topics of a stream.
const (
	TopicClusters   = "clusters"
	TopicNodePools  = "nodepools"
	TopicChanges    = "changes"
	TopicExecutions = "executions"
	TopicNodes      = "nodes"
	TopicSentinels  = "sentinels"
)

// The operations of an event.
const (
	OpChanged = "changed"
	OpRemoved = "removed"
)

// A Source is one of the streams that a page's stream merges.
type Source struct {
	// Name is unique and the same in all replicas.
	Name   string
	Topics []string
	// Follow passes on the events after the cursor of the subscription, or from now on, until ctx or
	// the stream ends. Soon after its start it passes an event with its cursor. It returns ErrExpired
	// if the cursor is too old, and ErrToken if the session must end.
	Follow func(ctx context.Context, s Subscription, emit func(StreamEvent) error) error
}

// A Subscription is what a page wants of a source.
type Subscription struct {
	Who    Person
	Topics []string
	Cursor string
}

// HasTopic reports whether a subscription has a topic.
func (s Subscription) HasTopic(topic string) bool { return slices.Contains(s.Topics, topic) }

// A StreamEvent is an event of a source.
type StreamEvent struct {
	Topic string `json:"-"` // empty: only the cursor advances
	Op    string `json:"op,omitempty"`
	Host  string `json:"host,omitempty"`
	Item  any    `json:"item,omitempty"`
	// Cursor is the position after the event; empty means that it is not known yet.
	Cursor string `json:"-"`
}

// ErrExpired means that a cursor is too old: the page must list again.
var ErrExpired = errors.New("the cursor has expired")

const (
	bookmarkEvery = 4 * time.Second
	maxStreams    = 2000
)

// followPolicy returns the delays after a source has failed.
func followPolicy() backoff.Policy { return backoff.Policy{Initial: time.Second} }

var errNoSession = errors.New("the session has ended")

// serveEventStream serves one stream for a page.
//
// The id of an event has the cursors of all sources, so that a browser that reconnects, to this or
// another replica, misses nothing. A reset means that the page must list a topic again: at the
// start, and where a cursor has expired. It comes after the source has been connected, so that
// nothing is lost between the list and the stream.
func (c *Console) serveEventStream(w http.ResponseWriter, r *http.Request) {
	if c.openStreams.Add(1) > maxStreams {
		c.openStreams.Add(-1)
		WriteProblemJSON(w, http.StatusServiceUnavailable, "The console has too many open streams.", "Try again later.")
		return
	}
	c.metrics.streams.Inc()
	defer func() {
		c.openStreams.Add(-1)
		c.metrics.streams.Dec()
	}()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.streams.ended, cancel)() //nolint:contextcheck // either of the two ends it

	m := &streamMerger{
		console:   c,
		w:         w,
		control:   http.NewResponseController(w),
		sessionID: c.cookies.readSessionID(r),
		topics:    []string{TopicClusters, TopicNodePools, TopicChanges, TopicExecutions, TopicNodes, TopicSentinels},
		events:    make(chan sourceEvent),
		cursors:   decodeCursorsOrEmpty(r.Header.Get("Last-Event-ID")),
		connected: map[string]bool{},
		person:    PersonFromContext(ctx),
	}
	if topics := r.URL.Query().Get("topics"); topics != "" {
		m.topics = strings.Split(topics, ",")
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	m.followSourcesAndForward(ctx, cancel)
}

// A sourceEvent is an event with its source.
type sourceEvent struct {
	StreamEvent

	source *Source
	reset  bool // the source begins anew, at Cursor
	lost   bool // the source is not connected
}

// A streamMerger merges sources into one stream. Each source has a goroutine, followSourceUntilDone, which
// sends its events to followSourcesAndForward. Only that one writes to the page:
//
//	reset     the page must list a topic again
//	TOPIC     an object of a topic has changed
//	bookmark  the cursors so far, and the topics of sources that are not connected ("behind")
type streamMerger struct {
	console   *Console
	w         http.ResponseWriter
	control   *http.ResponseController
	sessionID string
	topics    []string
	events    chan sourceEvent

	// Only followSourcesAndForward uses these, by the name of the source.
	cursors   map[string]string
	connected map[string]bool // of the followed sources

	mu     sync.Mutex
	person Person // with the current token
}

func (m *streamMerger) followSourcesAndForward(ctx context.Context, cancel context.CancelFunc) {
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	for _, source := range m.console.sources {
		topics := m.requestedTopics(source)
		if len(topics) == 0 {
			continue
		}
		m.connected[source.Name] = false
		cursor := m.cursors[source.Name]
		following.Go(func() { m.followSourceUntilDone(ctx, source, topics, cursor) })
	}
	ticker := time.NewTicker(bookmarkEvery)
	defer ticker.Stop()
	err := m.writeBookmark()
	for err == nil {
		select {
		case <-ctx.Done():
			_ = m.writeBookmark() // the last cursor; the client may be gone
			return
		case e := <-m.events:
			err = m.writeSourceEvent(e)
		case <-ticker.C:
			if err = m.reloadSession(ctx); err == nil {
				err = m.writeBookmark()
			}
		}
	}
}

// requestedTopics returns the topics of a source that the page wants.
func (m *streamMerger) requestedTopics(source *Source) []string {
	var topics []string
	for _, topic := range source.Topics {
		if slices.Contains(m.topics, topic) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// reloadSession reads the session again. Its error ends the stream of a person who is no longer signed
// in. It does not count as a request of the person.
func (m *streamMerger) reloadSession(ctx context.Context) error {
	if m.console.cfg.Mode == ModeNone {
		return nil
	}
	current, err := m.console.deps.Sessions.GetWithoutRecordingUse(ctx, m.sessionID)
	switch {
	case errors.Is(err, session.ErrNone):
		return errNoSession
	case err != nil:
		return nil // the store is away, and the session was valid before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.person = personOfSession(current)
	return nil
}

func (m *streamMerger) currentPerson() Person {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.person
}

// followSourceUntilDone follows a source until ctx ends. It connects again after an error. The first event after a start
// without a cursor is a reset.
func (m *streamMerger) followSourceUntilDone(ctx context.Context, source *Source, topics []string, cursor string) {
	needsReset := cursor == ""
	failures := 0 // since the last event
	forward := func(e StreamEvent) error {
		isReset := needsReset && e.Cursor != ""
		if e.Cursor != "" {
			cursor, needsReset = e.Cursor, false
		}
		failures = 0
		return m.queueEvent(ctx, sourceEvent{StreamEvent: e, source: source, reset: isReset})
	}
	for {
		hadCursor := cursor != ""
		who := m.currentPerson()
		err := source.Follow(ctx, Subscription{Who: who, Topics: topics, Cursor: cursor}, forward)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, ErrToken) { // then reloadSession ends the stream, or has a newer token
			err = errors.Join(err, m.console.endSessionWithToken(ctx, m.sessionID, who.Token))
		}
		if errors.Is(err, ErrExpired) {
			cursor, needsReset = "", true
			if hadCursor {
				continue
			}
		}
		if m.queueEvent(ctx, sourceEvent{source: source, lost: true}) != nil {
			return
		}
		m.console.log.DebugContext(ctx, "stream of a page interrupted, connecting again", "stream", source.Name, "err", err)
		retryAfter, _ := backoff.RetryAfter(err)
		if backoff.Sleep(ctx, followPolicy().Delay(failures)+min(retryAfter, backoff.MaxRetryAfter)) != nil {
			return
		}
		failures++
	}
}

func (m *streamMerger) queueEvent(ctx context.Context, event sourceEvent) error {
	select {
	case m.events <- event:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeSourceEvent writes an event of a source. A page learns at once that a source is lost or back.
func (m *streamMerger) writeSourceEvent(event sourceEvent) error {
	wasConnected, isConnected := m.connected[event.source.Name], !event.lost
	m.connected[event.source.Name] = isConnected
	if event.Cursor != "" {
		m.cursors[event.source.Name] = event.Cursor
	}
	var out bytes.Buffer
	if event.reset {
		for _, topic := range m.requestedTopics(event.source) {
			if err := m.appendSSEEvent(&out, "reset", map[string]string{"topic": topic}); err != nil {
				return err
			}
		}
	}
	if event.Topic != "" {
		if err := m.appendSSEEvent(&out, event.Topic, event.StreamEvent); err != nil {
			return err
		}
	}
	if err := m.writeAndFlush(out.Bytes()); err != nil || wasConnected == isConnected {
		return err
	}
	return m.writeBookmark()
}

// writeBookmark writes the current cursors.
func (m *streamMerger) writeBookmark() error {
	body := struct {
		AsOf   time.Time `json:"as_of"`
		Behind []string  `json:"behind"`
	}{time.Now().UTC(), m.listDisconnectedTopics()}
	var out bytes.Buffer
	if err := m.appendSSEEvent(&out, "bookmark", body); err != nil {
		return err
	}
	return m.writeAndFlush(out.Bytes())
}

// listDisconnectedTopics returns the topics that are not up to date, because a source of theirs is not connected.
func (m *streamMerger) listDisconnectedTopics() []string {
	behind := []string{}
	for _, source := range m.console.sources {
		if connected, followed := m.connected[source.Name]; connected || !followed {
			continue
		}
		for _, topic := range source.Topics {
			if !slices.Contains(behind, topic) { // host clusters have the same topics
				behind = append(behind, topic)
			}
		}
	}
	return behind
}

func (m *streamMerger) appendSSEEvent(buf *bytes.Buffer, eventName string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	fmt.Fprintf(buf, "id: %s\nevent: %s\ndata: %s\n\n", encodeCursors(m.cursors), eventName, data)
	return nil
}

func (m *streamMerger) writeAndFlush(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	_ = m.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // connections of a server support it
	if _, err := m.w.Write(text); err != nil {
		return fmt.Errorf("write to the page: %w", err)
	}
	return m.control.Flush()
}

// encodeCursors returns the cursors of all sources as one.
func encodeCursors(cursors map[string]string) string {
	text, err := json.Marshal(cursors)
	if err != nil {
		return "" // texts can always be encoded
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// decodeCursorsOrEmpty returns the cursors of a Last-Event-ID. An invalid one has none.
func decodeCursorsOrEmpty(lastEventID string) map[string]string {
	cursors := map[string]string{}
	text, err := base64.RawURLEncoding.DecodeString(lastEventID)
	if err != nil || json.Unmarshal(text, &cursors) != nil {
		return map[string]string{}
	}
	return cursors
}
