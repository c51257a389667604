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
	// if the cursor is too old.
	Follow func(ctx context.Context, s Subscription, emit func(StreamEvent) error) error
}

// A Subscription is what a page wants of a source.
type Subscription struct {
	Who    Person
	Topics []string
	Cursor string
}

// Wants reports whether a subscription has a topic.
func (s Subscription) Wants(topic string) bool { return slices.Contains(s.Topics, topic) }

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
	followAgain   = time.Second // after a source has failed
	maxStreams    = 2000
)

var errNoSession = errors.New("the session has ended")

// serveStream serves one stream for a page.
//
// The id of an event has the cursors of all sources, so that a browser that reconnects, to this or
// another replica, misses nothing. A reset means that the page must list a topic again: at the
// start, and where a cursor has expired. It comes after the source has been connected, so that
// nothing is lost between the list and the stream.
func (c *Console) serveStream(w http.ResponseWriter, r *http.Request) {
	if c.openStreams.Add(1) > maxStreams {
		c.openStreams.Add(-1)
		WriteProblem(w, http.StatusServiceUnavailable, "The console has too many open streams.", "Try again later.")
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

	m := &merger{
		console: c, control: http.NewResponseController(w), w: w, sessionID: c.cookies.sessionID(r),
		topics:  strings.Split(r.URL.Query().Get("topics"), ","),
		cursors: decodeCursors(r.Header.Get("Last-Event-ID")),
		events:  make(chan sourceEvent), live: map[string]bool{},
	}
	if r.URL.Query().Get("topics") == "" {
		m.topics = []string{TopicClusters, TopicNodePools, TopicChanges, TopicExecutions, TopicNodes, TopicSentinels}
	}
	m.state, _ = ctx.Value(personKey{}).(session.Session)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	m.run(ctx, cancel)
}

// A sourceEvent is an event with its source.
type sourceEvent struct {
	StreamEvent

	source *Source
	reset  bool // the source begins anew, at Cursor
	lost   bool // the source is not connected
}

// A merger merges sources into one stream. Each source has a goroutine, follow, which sends its events to
// run. Only run writes to the page:
//
//	reset     the page must list a topic again
//	TOPIC     an object of a topic has changed
//	bookmark  the cursors so far, and the topics of sources that are not connected ("behind")
type merger struct {
	console   *Console
	w         http.ResponseWriter
	control   *http.ResponseController
	sessionID string
	topics    []string

	events  chan sourceEvent
	cursors map[string]string // by source; used by run alone
	live    map[string]bool   // whether a followed source is connected; used by run alone

	mu    sync.Mutex
	state session.Session // the current token
}

func (m *merger) run(ctx context.Context, cancel context.CancelFunc) {
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	for _, s := range m.console.sources {
		wanted := slices.DeleteFunc(slices.Clone(s.Topics), func(t string) bool { return !slices.Contains(m.topics, t) })
		if len(wanted) == 0 {
			continue
		}
		m.live[s.Name] = false
		cursor := m.cursors[s.Name]
		following.Go(func() { m.follow(ctx, s, wanted, cursor) })
	}
	ticker := time.NewTicker(bookmarkEvery)
	defer ticker.Stop()
	err := m.bookmark()
	for err == nil {
		select {
		case <-ctx.Done():
			_ = m.bookmark() // the last cursor; the client may be gone
			return
		case e := <-m.events:
			err = m.forwardEvent(e)
		case <-ticker.C:
			if err = m.checkSession(ctx); err == nil {
				err = m.bookmark()
			}
		}
	}
}

// checkSession ends the stream of a person who is no longer signed in. It does not count as a request
// of the person.
func (m *merger) checkSession(ctx context.Context) error {
	if m.console.cfg.Mode == ModeNone {
		return nil
	}
	state, err := m.console.deps.Sessions.Peek(ctx, m.sessionID)
	switch {
	case errors.Is(err, session.ErrNone):
		return errNoSession
	case err != nil:
		return nil // the store is away, and the session was valid before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = state
	return nil
}

func (m *merger) person() Person {
	m.mu.Lock()
	defer m.mu.Unlock()
	return newPerson(m.state)
}

// follow follows a source until ctx ends. It connects again after an error. The first event after a start
// without a cursor is a reset.
func (m *merger) follow(ctx context.Context, s *Source, topics []string, cursor string) {
	needsReset := cursor == ""
	for {
		err := s.Follow(ctx, Subscription{Who: m.person(), Topics: topics, Cursor: cursor}, func(e StreamEvent) error {
			out := sourceEvent{StreamEvent: e, source: s}
			if e.Cursor != "" {
				cursor = e.Cursor
				out.reset, needsReset = needsReset, false
			}
			return m.send(ctx, out)
		})
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, ErrExpired) {
			cursor, needsReset = "", true
			continue
		}
		if m.send(ctx, sourceEvent{source: s, lost: true}) != nil {
			return
		}
		m.console.log.DebugContext(ctx, "stream of a page interrupted, connecting again", "stream", s.Name, "err", err)
		timer := time.NewTimer(followAgain)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

func (m *merger) send(ctx context.Context, e sourceEvent) error {
	select {
	case m.events <- e:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forwardEvent writes an event of a source. A page learns at once that a source is lost or back.
func (m *merger) forwardEvent(e sourceEvent) error {
	wasConnected, isConnected := m.live[e.source.Name], !e.lost
	m.live[e.source.Name] = isConnected
	var out bytes.Buffer
	if e.reset {
		m.cursors[e.source.Name] = e.Cursor
		for _, topic := range e.source.Topics {
			if slices.Contains(m.topics, topic) {
				if err := m.appendEvent(&out, "reset", map[string]string{"topic": topic}); err != nil {
					return err
				}
			}
		}
	}
	if e.Cursor != "" {
		m.cursors[e.source.Name] = e.Cursor
	}
	if e.Topic != "" {
		if err := m.appendEvent(&out, e.Topic, e.StreamEvent); err != nil {
			return err
		}
	}
	if err := m.write(out.Bytes()); err != nil || wasConnected == isConnected {
		return err
	}
	return m.bookmark()
}

// bookmark writes the current cursors. behind has the topics that are not up to date.
func (m *merger) bookmark() error {
	body := struct {
		AsOf   time.Time `json:"as_of"`
		Behind []string  `json:"behind"`
	}{time.Now().UTC(), []string{}}
	for _, s := range m.console.sources {
		if live, followed := m.live[s.Name]; followed && !live {
			for _, topic := range s.Topics {
				if !slices.Contains(body.Behind, topic) { // those of host clusters are the same
					body.Behind = append(body.Behind, topic)
				}
			}
		}
	}
	var out bytes.Buffer
	if err := m.appendEvent(&out, "bookmark", body); err != nil {
		return err
	}
	return m.write(out.Bytes())
}

func (m *merger) appendEvent(out *bytes.Buffer, event string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	fmt.Fprintf(out, "id: %s\nevent: %s\ndata: %s\n\n", encodeCursors(m.cursors), event, data)
	return nil
}

func (m *merger) write(text []byte) error {
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

// decodeCursors returns the cursors of a Last-Event-ID. An invalid one has none.
func decodeCursors(id string) map[string]string {
	cursors := map[string]string{}
	text, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || json.Unmarshal(text, &cursors) != nil {
		return map[string]string{}
	}
	return cursors
}
