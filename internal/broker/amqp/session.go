package amqp

import (
	"context"
	"fmt"
	"sync"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/fleetloop/fleetloop/internal/broker"
)

// queueLength lets the callers run ahead of the goroutine that writes, and the
// server's answers ahead of the one that reads them.
const queueLength = 256

// A session is one connection in confirm mode and the events sent on it. A
// delivery tag means something within its session alone, which is why the
// table of what was sent lives and dies with it.
type session struct {
	*link
	broker *Broker
	work   sync.WaitGroup

	queue    chan *publication
	stop     chan struct{} // closed to stop the writer
	ended    chan struct{} // closed when every event of the session has its outcome
	confirms chan amqp091.Confirmation
	returns  chan amqp091.Return
	blocks   chan amqp091.Blocking

	mu        sync.Mutex
	tag       uint64
	sent      map[uint64]*publication
	returned  map[string]int // by event id, what came back and is not confirmed yet
	unblocked chan struct{}  // closed while the server lets us publish
}

// openSession connects, declares the exchange and asks for confirms.
func (b *Broker) openSession(ctx context.Context) (*session, error) {
	s := &session{
		broker:    b,
		queue:     make(chan *publication, queueLength),
		stop:      make(chan struct{}),
		ended:     make(chan struct{}),
		sent:      make(map[uint64]*publication),
		returned:  make(map[string]int),
		unblocked: make(chan struct{}),
	}
	close(s.unblocked)
	var err error
	s.link, err = b.dialLink(ctx, b.cfg.ConnectionName, func(l *link) error {
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

// serveUntilLost works until the connection is lost, and says why, or until ctx ends,
// and says nil; then the session still works until end is called.
func (s *session) serveUntilLost(ctx context.Context) error {
	s.work.Go(s.writeLoop)
	s.work.Go(s.settleLoop)
	s.work.Go(s.watchBlocks)
	err := s.waitLost(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // told to stop
	}
	return err
}

// endSession closes the connection and gives every event its outcome.
func (s *session) endSession() {
	close(s.stop)
	s.closeLink() // frees the writer if it is stuck, and closes the channels that the others read
	s.work.Wait()
	s.mu.Lock()
	lost := s.sent
	s.sent = nil
	s.mu.Unlock()
	for _, p := range lost {
		p.Finish(fmt.Errorf("%w: connection lost", broker.ErrUnknownOutcome))
	}
	close(s.ended)
}

// writeLoop is the only goroutine that publishes: a write that is stuck holds up
// itself, and not the contexts of the callers. While the server blocks us
// nothing begins, so that what waits has definitely not been sent.
func (s *session) writeLoop() {
	for {
		select {
		case p := <-s.queue:
			if !s.awaitUnblocked() {
				return
			}
			s.sendWith(p)
		case <-s.stop:
			return
		}
	}
}

// sendWith sends p, and with it what else is in the queue.
func (s *session) sendWith(p *publication) {
	s.socket.startBuffering()
	s.sendPublication(p)
	for range len(s.queue) { // this goroutine alone takes from it
		s.sendPublication(<-s.queue)
	}
	if err := s.socket.flushBuffered(); err != nil {
		s.socket.killConnection() // the outcome of what was kept is unknown, like that of all that was sent
	}
}

// awaitUnblocked reports false if the session ends first.
func (s *session) awaitUnblocked() bool {
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

func (s *session) sendPublication(p *publication) {
	defer s.broker.bodies.Put(p.body)
	if !p.Begin() {
		return
	}
	s.mu.Lock()
	s.tag++
	tag := s.tag
	s.sent[tag] = p
	s.mu.Unlock()
	const mandatory, immediate = true, false
	if err := s.channel.Publish(s.broker.cfg.Exchange, p.key, mandatory, immediate, p.message); err != nil {
		// Part of it may have left, and the client's count of tags is not ours
		// any more: this connection is done for.
		s.socket.killConnection()
	}
}

// settleLoop hands out the server's answers until the channel is closed. It never
// blocks, or the client would drop answers. An event that comes back does so
// before its confirm, also in what the client has read for us: so the returns
// are looked at before each confirm.
func (s *session) settleLoop() {
	returns := s.returns
	for {
		select {
		case r, ok := <-returns:
			if !ok {
				returns = nil
				continue
			}
			s.mu.Lock()
			s.returned[r.MessageId]++
			s.mu.Unlock()
		case c, ok := <-s.confirms:
			if !ok {
				return
			}
			s.settleOne(c)
		}
	}
}

func (s *session) settleOne(c amqp091.Confirmation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteReturns()
	if p := s.sent[c.DeliveryTag]; p != nil {
		delete(s.sent, c.DeliveryTag)
		p.Finish(s.confirmOutcome(p, c.Ack))
	}
}

// noteReturns takes what came back so far. Call it with the lock held.
func (s *session) noteReturns() {
	for {
		select {
		case r, ok := <-s.returns:
			if !ok {
				return
			}
			s.returned[r.MessageId]++
		default:
			return
		}
	}
}

// confirmOutcome says what a confirm means. Call it with the lock held.
func (s *session) confirmOutcome(p *publication, ack bool) error {
	switch {
	case !ack:
		return fmt.Errorf("%w: a queue is full (x-overflow reject-publish)", broker.ErrRefused)
	case s.returned[p.id] == 0:
		return nil
	}
	if s.returned[p.id]--; s.returned[p.id] == 0 {
		delete(s.returned, p.id)
	}
	return fmt.Errorf("%w: exchange %q has no queue bound for routing key %q: start a consumer or bind a queue%s",
		broker.ErrUnroutable, s.broker.cfg.Exchange, p.key, s.broker.adviseOnKey())
}

// adviseOnKey says which setting decides the queues. A fanout exchange does not
// look at routing keys.
func (b *Broker) adviseOnKey() string {
	if b.cfg.ExchangeType == Fanout {
		return ""
	}
	return ", or set BROKER_ROUTING_KEY to the binding key of the queues (none means the empty key)"
}

// watchBlocks follows the server's blocking of publishers until the connection
// is closed.
func (s *session) watchBlocks() {
	for block := range s.blocks {
		s.mu.Lock()
		select {
		case <-s.unblocked:
			if block.Active {
				s.unblocked = make(chan struct{})
			}
		default:
			if !block.Active {
				close(s.unblocked)
			}
		}
		s.mu.Unlock()
		if block.Active {
			s.broker.status.Set(fmt.Errorf("blocked by the broker: %s", block.Reason))
			s.broker.log.Warn("broker blocked publishing", "reason", block.Reason)
		} else {
			s.broker.status.Set(nil)
			s.broker.log.Info("broker unblocked publishing")
		}
	}
}
