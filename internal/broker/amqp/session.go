package amqp

import (
	"context"
	"fmt"
	"sync"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/fleetloop/fleetloop/internal/broker"
)

// queueLength is the capacity of the queues between the callers, the writing goroutine and the
// reader of the server's answers.
const queueLength = 256

// A session is one connection in confirm mode and the events sent on it. A delivery tag is valid
// only in its session, so the table of sent events belongs to the session.
type session struct {
	*link
	broker *Broker
	work   sync.WaitGroup

	queue chan *publication // from the callers of Publish to the writer
	stop  chan struct{}     // closed to stop the writer
	ended chan struct{}     // closed when every event of the session has its outcome

	// Notifications from the server.
	confirms chan amqp091.Confirmation
	returns  chan amqp091.Return
	blocks   chan amqp091.Blocking

	mu        sync.Mutex
	lastTag   uint64                  // delivery tag of the last sent event
	sent      map[uint64]*publication // by delivery tag, the events that are not confirmed yet
	returned  map[string]int          // by event id, the returned events that are not confirmed yet
	unblocked chan struct{}           // closed while the server allows publishing
}

// openPublishSession connects, declares the exchange and enables confirms.
func (b *Broker) openPublishSession(ctx context.Context) (*session, error) {
	s := &session{
		broker:    b,
		queue:     make(chan *publication, queueLength),
		stop:      make(chan struct{}),
		ended:     make(chan struct{}),
		sent:      make(map[uint64]*publication),
		returned:  make(map[string]int),
		unblocked: make(chan struct{}),
	}
	close(s.unblocked) // the server allows publishing until it says otherwise
	var err error
	s.link, err = b.dialAndPrepareLink(ctx, b.cfg.ConnectionName, func(l *link) error {
		if err := b.declareExchange(l.conn); err != nil {
			return err
		}
		return l.channel.Confirm(false)
	})
	if err != nil {
		return nil, err
	}
	s.confirms = s.channel.NotifyPublish(make(chan amqp091.Confirmation, queueLength))
	s.returns = s.channel.NotifyReturn(make(chan amqp091.Return, queueLength))
	s.blocks = s.conn.NotifyBlocked(make(chan amqp091.Blocking, 1))
	return s, nil
}

// serveUntilLost runs the session until the connection is lost, and returns the reason, or until
// ctx ends, and returns nil. In the latter case the session continues until closeAndFailSent is called.
func (s *session) serveUntilLost(ctx context.Context) error {
	s.work.Go(s.publishQueuedUntilStopped)
	s.work.Go(s.processConfirmsUntilClosed)
	s.work.Go(s.followBlocksAndSetReadiness)
	err := s.awaitLost(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // told to stop
	}
	return err
}

// closeAndFailSent closes the connection and sets the outcome of every event.
func (s *session) closeAndFailSent() {
	close(s.stop)
	s.closeOrKill() // unblocks the writer, and closes the channels that the others read
	s.work.Wait()
	s.mu.Lock()
	unconfirmed := s.sent
	s.sent = nil
	s.mu.Unlock()
	for _, p := range unconfirmed {
		p.ReportOutcome(fmt.Errorf("%w: connection lost", broker.ErrUnknownOutcome))
	}
	close(s.ended)
}

// publishQueuedUntilStopped is the only goroutine that publishes: a blocked write delays only
// this goroutine, and not the contexts of the callers. While the server blocks publishers no send
// begins, so queued events are known not to be sent.
func (s *session) publishQueuedUntilStopped() {
	for {
		select {
		case p := <-s.queue:
			if !s.awaitUnblocked() {
				return
			}
			s.sendTogetherWithQueue(p)
		case <-s.stop:
			return
		}
	}
}

// sendTogetherWithQueue sends p together with the rest of the queue.
func (s *session) sendTogetherWithQueue(p *publication) {
	s.socket.startBuffering()
	s.sendUnlessAbandoned(p)
	for range len(s.queue) { // only this goroutine receives from it
		s.sendUnlessAbandoned(<-s.queue)
	}
	if err := s.socket.stopBufferingAndFlush(); err != nil {
		s.socket.closeIgnoringError() // the outcome of the buffered events is unknown, like that of all sent events
	}
}

// awaitUnblocked waits until the server allows publishing. It returns false if the session ends
// first.
func (s *session) awaitUnblocked() (mayPublish bool) {
	s.mu.Lock()
	unblocked := s.unblocked
	s.mu.Unlock()
	select {
	case <-unblocked:
		return true
	case <-s.stop:
		return false
	}
}

// sendUnlessAbandoned sends one event, unless its caller has given up.
func (s *session) sendUnlessAbandoned(p *publication) {
	defer s.broker.bodies.Put(p.body)
	if !p.BeginUnlessAbandoned() {
		return
	}
	s.mu.Lock()
	s.lastTag++
	s.sent[s.lastTag] = p
	s.mu.Unlock()
	const mandatory, immediate = true, false
	err := s.channel.Publish(s.broker.cfg.Exchange, p.key, mandatory, immediate, p.message)
	if err != nil {
		// Part of the message may have been sent, and the client's count of tags may differ: this
		// connection cannot be used any more.
		s.socket.closeIgnoringError()
	}
}

// processConfirmsUntilClosed processes the server's answers until the channel is closed. It never
// blocks, or the client would drop answers. A returned event comes before its confirm, also in
// the client's buffers, so returns are read before each confirm.
func (s *session) processConfirmsUntilClosed() {
	returns := s.returns
	for {
		select {
		case returned, open := <-returns:
			if !open {
				returns = nil // stop receiving from it
				continue
			}
			s.mu.Lock()
			s.returned[returned.MessageId]++
			s.mu.Unlock()
		case confirm, open := <-s.confirms:
			if !open {
				return
			}
			s.reportConfirmOutcome(confirm)
		}
	}
}

// reportConfirmOutcome reports the outcome of a confirmed event to its caller.
func (s *session) reportConfirmOutcome(confirm amqp091.Confirmation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countReturnsLocked()
	if p := s.sent[confirm.DeliveryTag]; p != nil {
		delete(s.sent, confirm.DeliveryTag)
		p.ReportOutcome(s.takeConfirmOutcomeLocked(p, confirm.Ack))
	}
}

// countReturnsLocked reads the returned events so far. The caller holds the lock.
func (s *session) countReturnsLocked() {
	for {
		select {
		case returned, open := <-s.returns:
			if !open {
				return
			}
			s.returned[returned.MessageId]++
		default:
			return
		}
	}
}

// takeConfirmOutcomeLocked returns the outcome of a confirm. The caller holds the lock.
func (s *session) takeConfirmOutcomeLocked(p *publication, ack bool) error {
	if !ack {
		return fmt.Errorf("%w: a queue is full (x-overflow reject-publish)", broker.ErrRefused)
	}
	if s.returned[p.id] == 0 {
		return nil
	}

	// The event was returned. An event with the same id may have been sent twice.
	s.returned[p.id]--
	if s.returned[p.id] == 0 {
		delete(s.returned, p.id)
	}
	return fmt.Errorf("%w: exchange %q has no queue bound for routing key %q: start a consumer or bind a queue%s",
		broker.ErrUnroutable, s.broker.cfg.Exchange, p.key, s.broker.routingKeyAdvice())
}

// routingKeyAdvice returns a hint at the setting that selects the queues. A fanout exchange ignores
// routing keys.
func (b *Broker) routingKeyAdvice() string {
	if b.cfg.ExchangeType == Fanout {
		return ""
	}
	return ", or set BROKER_ROUTING_KEY to the binding key of the queues (none means the empty key)"
}

// followBlocksAndSetReadiness follows whether the server blocks publishers, until the connection is closed.
func (s *session) followBlocksAndSetReadiness() {
	for block := range s.blocks {
		s.setBlocked(block.Active)
		if block.Active {
			s.broker.status.SetNotReadyReason(fmt.Errorf("blocked by the broker: %s", block.Reason))
			s.broker.log.Warn("broker blocked publishing", "reason", block.Reason)
		} else {
			s.broker.status.SetNotReadyReason(nil)
			s.broker.log.Info("broker unblocked publishing")
		}
	}
}

// setBlocked makes awaitUnblocked wait, or lets it return.
func (s *session) setBlocked(blocked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.unblocked: // the server allowed publishing so far
		if blocked {
			s.unblocked = make(chan struct{})
		}
	default:
		if !blocked {
			close(s.unblocked)
		}
	}
}
