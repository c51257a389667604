package nats

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// A publication is one event with its subject in the stream.
type publication struct {
	*broker.PendingSend
	token   uint64 // key in publications
	subject string
	header  nats.Header
	body    *[]byte
}

// publications holds the publications that wait for their acknowledgement, by token.
type publications struct {
	mu   sync.Mutex
	sent map[uint64]*publication
}

// addUnlessAbandoned begins a publication and adds it, unless its caller has given up.
func (s *publications) addUnlessAbandoned(p *publication) (begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.BeginUnlessAbandoned() {
		return false
	}
	s.sent[p.token] = p
	return true
}

// remove removes and returns a publication, nil if it does not wait.
func (s *publications) remove(token uint64) *publication {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.sent[token]
	delete(s.sent, token)
	return p
}

// finishAll sets the outcome of all publications, when their connection is lost.
func (s *publications) finishAll(outcome error) {
	s.mu.Lock()
	lost := s.sent
	s.sent = make(map[uint64]*publication)
	s.mu.Unlock()
	for _, p := range lost {
		p.ReportOutcome(outcome)
	}
}

// encodePublication encodes e as a message, in a body of the pool.
func (b *Broker) encodePublication(e *cloudevent.Event) *publication {
	body, _ := b.bodies.Get().(*[]byte) // the pool has no other type
	p := &publication{
		PendingSend: broker.NewPendingSend(),
		token:       b.lastToken.Add(1),
		subject:     b.cfg.subjectFor(e.Type),
		header:      make(nats.Header, headersOfBinary),
		body:        body,
	}
	p.header[nats.MsgIdHdr] = []string{escapeHeader(e.ID)}
	if b.cfg.Mode == cloudevent.Binary {
		p.header[contentTypeHeader] = []string{cloudevent.DataContentType}
		for name, value := range e.Attributes {
			p.header[attributePrefix+name] = []string{escapeHeader(value)}
		}
		*body = append((*body)[:0], e.DataOrNull()...)
		return p
	}
	p.header[contentTypeHeader] = []string{cloudevent.ContentType}
	*body = e.AppendJSON((*body)[:0])
	return p
}

// publishQueuedUntilStopped is the only goroutine that publishes on the connection: a blocked
// write delays only this goroutine, and not the contexts of the callers.
func (b *Broker) publishQueuedUntilStopped(conn *nats.Conn, stop <-chan struct{}) {
	for {
		select {
		case p := <-b.queue:
			b.sendUnlessAbandoned(conn, p)
		case <-stop:
			return
		}
	}
}

// sendUnlessAbandoned sends one event, unless its caller has given up.
func (b *Broker) sendUnlessAbandoned(conn *nats.Conn, p *publication) {
	defer b.bodies.Put(p.body)
	if !b.unanswered.addUnlessAbandoned(p) {
		return
	}
	err := conn.PublishMsg(&nats.Msg{
		Subject: p.subject,
		Reply:   b.replyPrefix + strconv.FormatUint(p.token, 36),
		Header:  p.header,
		Data:    *p.body,
	})
	if err == nil {
		return
	}
	b.unanswered.remove(p.token)
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		p.ReportOutcome(backoff.Permanent(fmt.Errorf("%w: %w", broker.ErrRefused, err)))
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed):
		p.ReportOutcome(fmt.Errorf("%w: %w", broker.ErrNotReady, err))
	default:
		p.ReportOutcome(fmt.Errorf("%w: %w", broker.ErrUnknownOutcome, err))
	}
}

// removeAbandoned removes a publication whose caller no longer waits. A connected server that
// does not answer may never do so: its stream may be deleted while another subscriber of the
// subject hides that. So the stream is verified.
func (b *Broker) removeAbandoned(p *publication) {
	if b.unanswered.remove(p.token) != nil {
		b.signalConnectionCheck()
	}
}

// handlePublishReply is called for each message on the reply subjects.
func (b *Broker) handlePublishReply(reply *nats.Msg) {
	token, err := strconv.ParseUint(strings.TrimPrefix(reply.Subject, b.replyPrefix), 36, 64)
	if err != nil {
		return // not a reply to a publication
	}
	p := b.unanswered.remove(token)
	if p == nil {
		return // its caller no longer waits
	}
	outcome := outcomeOfReply(b.cfg.Stream, p.subject, reply)
	if errors.Is(outcome, broker.ErrUnroutable) {
		b.signalConnectionCheck() // so that the stream is verified, and created if it is missing
	}
	p.ReportOutcome(outcome)
}

// outcomeOfReply returns the outcome in the stream's answer.
func outcomeOfReply(stream, subject string, reply *nats.Msg) error {
	if len(reply.Data) == 0 && reply.Header.Get("Status") == "503" {
		return fmt.Errorf("%w: stream %q was deleted or no longer has the subject %q",
			broker.ErrUnroutable, stream, subject)
	}
	var answer struct {
		Stream string `json:"stream"`
		Error  *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return fmt.Errorf("%w: read acknowledgement: %w", broker.ErrUnknownOutcome, err)
	}
	switch {
	case answer.Error != nil && strings.Contains(answer.Error.Description, "maximum"):
		return fmt.Errorf("%w: stream %q is full: %s (code %d): check max_age, max_bytes and max_messages",
			broker.ErrRefused, stream, answer.Error.Description, answer.Error.Code)
	case answer.Error != nil:
		return fmt.Errorf("%w: %s (code %d)", broker.ErrRefused, answer.Error.Description, answer.Error.Code)
	case answer.Stream != stream:
		return fmt.Errorf("%w: event stored in stream %q instead of %q: configure the subject in only one stream",
			broker.ErrUnroutable, answer.Stream, stream)
	}
	return nil
}
