package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

var (
	errRefusedEvent = errors.New("the broker refuses the event")
	errLost         = errors.New("connection to the broker lost")
	errKilled       = errors.New("the process is dead")
)

// A BrokerConfig configures the broker.
type BrokerConfig struct {
	Latency  time.Duration // maximum latency of a confirmation
	Schedule *Schedule
	Dice     Dice

	// Deliver is called for each stored event.
	Deliver func(*Event)
}

// A Broker stores events.
type Broker struct {
	cfg     BrokerConfig
	history *History

	mu       sync.Mutex
	attempts map[string]int // by event id
}

// NewBroker returns a broker without events.
func NewBroker(cfg BrokerConfig, h *History) *Broker {
	return &Broker{cfg: cfg, history: h, attempts: map[string]int{}}
}

// Connect returns the publisher of one life of the sentinel.
func (b *Broker) Connect(life int) *Publisher {
	return &Publisher{broker: b, life: life, killed: make(chan struct{}), first: map[string]time.Time{}}
}

// A Publisher is a life's connection to a broker.
type Publisher struct {
	broker *Broker
	life   int
	killed chan struct{}
	once   sync.Once

	mu       sync.Mutex
	inFlight int
	most     int
	first    map[string]time.Time // first attempt, by event id
}

// Kill simulates the death of the process: it sends nothing more, and no confirmation reaches it.
func (p *Publisher) Kill() { p.once.Do(func() { close(p.killed) }) }

// InFlight returns the number of unconfirmed events.
func (p *Publisher) InFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inFlight
}

// Most returns the maximum number of unconfirmed events at one time.
func (p *Publisher) Most() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// Ready returns an error if the broker is unreachable.
func (p *Publisher) Ready() error {
	if _, away := p.broker.cfg.Schedule.DrawFault(p.broker.cfg.Dice.For("ready"), BrokerAway); away {
		return errLost
	}
	return nil
}

// beginAttempt counts an attempt.
func (p *Publisher) beginAttempt(id string) (attempt int, first time.Time) {
	p.mu.Lock()
	p.inFlight++
	p.most = max(p.most, p.inFlight)
	if p.first[id].IsZero() {
		p.first[id] = time.Now()
	}
	first = p.first[id]
	p.mu.Unlock()
	p.broker.mu.Lock()
	defer p.broker.mu.Unlock()
	p.broker.attempts[id]++
	return p.broker.attempts[id], first
}

// Publish stores an event and confirms it, or applies a fault.
func (p *Publisher) Publish(ctx context.Context, e *cloudevent.Event) error {
	if err := e.Validate(); err != nil {
		p.broker.history.RecordFault("event that is none: %v", err)
		return err
	}
	attempt, first := p.beginAttempt(e.ID)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.inFlight--
	}()
	b := p.broker
	dice := b.cfg.Dice.For("publish", e.ID, attempt)
	latency := Between(dice, b.cfg.Latency/4, b.cfg.Latency)
	fault, struck := b.cfg.Schedule.DrawFault(dice, BrokerLosesConfirm, BrokerRefuses, BrokerBlocks, BrokerAway)
	begin := time.Now()
	if struck {
		b.history.Note(e.Subject, "%s: attempt %d of %s", fault.Kind, attempt, e.ID)
		defer func() { b.history.RecordStrike(fault.Kind.String(), begin, time.Now()) }()
	}
	if err := p.applyFault(ctx, fault, struck, latency/2); err != nil {
		return err
	}
	if err := p.sleepFor(ctx, latency/2); err != nil {
		return err
	}
	stored := b.storeEvent(p.life, first, e)
	if struck && fault.Kind == BrokerLosesConfirm {
		// The connection breaks, or stays open without data.
		if err := p.sleepFor(ctx, Between(dice, 0, 4*time.Second)); err != nil {
			return err
		}
		return errLost
	}
	if err := p.sleepFor(ctx, latency/2); err != nil {
		return err // the broker has the event, and the publisher does not know it
	}
	b.history.RecordConfirm(stored, time.Now())
	return nil
}

// applyFault applies a fault that keeps an event from being stored.
func (p *Publisher) applyFault(ctx context.Context, f Fault, struck bool, latency time.Duration) error {
	if !struck {
		return nil
	}
	switch f.Kind {
	case BrokerBlocks:
		return p.sleepFor(ctx, p.broker.cfg.Schedule.remaining(f))
	case BrokerRefuses:
		return errors.Join(errRefusedEvent, p.sleepFor(ctx, latency))
	case BrokerAway:
		return errLost
	case APIError, APIBusy, APIGone, APISlow, APIReset, APIGarbage, APIDown, StreamCut, StreamDead, StreamEnd,
		CursorGone, Withdrawn, BrokerLosesConfirm, NumKinds:
	}
	return nil
}

// sleepFor waits, and returns early when ctx or the process ends.
func (p *Publisher) sleepFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.killed:
		return errKilled
	}
}

// storeEvent records an event.
func (b *Broker) storeEvent(life int, first time.Time, e *cloudevent.Event) *Event {
	var data struct {
		Generation  int64     `json:"generation,string"`
		Reason      string    `json:"reason"`
		Phase       string    `json:"phase"`
		Updated     time.Time `json:"updated"`
		LastUpdated time.Time `json:"reported"`
		Decided     time.Time `json:"decided"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		b.history.RecordFault("data of %s: %v", e.ID, err)
	}
	stored := &Event{
		At: time.Now(), Life: life, Attempted: first,
		ID: e.ID, Resource: e.Subject, Decided: data.Decided, Reason: data.Reason, Generation: data.Generation,
		Phase: data.Phase, Updated: data.Updated, LastUpdated: data.LastUpdated,
	}
	b.history.RecordEvent(stored)
	if b.cfg.Deliver != nil {
		b.cfg.Deliver(stored)
	}
	return stored
}
