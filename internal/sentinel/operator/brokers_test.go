package operator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

// Brokers holds brokers by their addresses. All of them exist from the start.
type Brokers struct {
	mu     sync.Mutex
	events []Event
	opened []string
	runs   map[string]int
	state  map[string]*brokerState
}

// An Event is an event that a broker confirmed.
type Event struct {
	URL string
	cloudevent.Event
}

type brokerState struct {
	away, panics, refuses bool
	held                  chan struct{} // closed when held confirmations are released
	waiting               int
	end                   chan error
}

// NewBrokers returns reachable brokers.
func NewBrokers() *Brokers {
	return &Brokers{state: map[string]*brokerState{}, runs: map[string]int{}}
}

func (b *Brokers) stateOf(url string) *brokerState {
	s := b.state[url]
	if s == nil {
		s = &brokerState{end: make(chan error, 1)}
		b.state[url] = s
	}
	return s
}

// setState changes the state of a broker.
func (b *Brokers) setState(url string, change func(*brokerState)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b.stateOf(url))
}

// SetAway makes a broker unreachable, or reachable again.
func (b *Brokers) SetAway(url string, away bool) {
	b.setState(url, func(s *brokerState) { s.away = away })
}

// SetPanic makes the client of a broker panic when it publishes.
func (b *Brokers) SetPanic(url string, panics bool) {
	b.setState(url, func(s *brokerState) { s.panics = panics })
}

// SetRefuse makes Open fail for a broker. The error contains its address.
func (b *Brokers) SetRefuse(url string, refuse bool) {
	b.setState(url, func(s *brokerState) { s.refuses = refuse })
}

// HoldConfirms makes a broker hold its confirmations until release is called.
func (b *Brokers) HoldConfirms(url string) (release func()) {
	held := make(chan struct{})
	b.setState(url, func(s *brokerState) { s.held = held })
	return func() {
		b.setState(url, func(s *brokerState) { s.held = nil })
		close(held)
	}
}

// Waiting returns the number of confirmations that a broker holds.
func (b *Brokers) Waiting(url string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stateOf(url).waiting
}

// End makes the client of a broker return an error.
func (b *Brokers) End(url string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stateOf(url).end <- err
}

// Events returns all confirmed events, in order.
func (b *Brokers) Events() []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

// Opened returns the addresses for which clients were opened, in order.
func (b *Brokers) Opened() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.opened)
}

// Running returns the number of running clients of a broker.
func (b *Brokers) Running(url string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs[url]
}

// Open opens a client.
func (b *Brokers) Open(cfg sentinelconfig.Broker) (operator.Broker, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	url := cfg.URL.Reveal()
	if b.stateOf(url).refuses {
		return nil, fmt.Errorf("%q is no address", url)
	}
	b.opened = append(b.opened, url)
	return &brokerClient{brokers: b, url: url}, nil
}

var errNotRunning = errors.New("not connected: not started")

type brokerClient struct {
	brokers *Brokers
	url     string
	running bool
	under   int
}

// Run runs until ctx ends, or End is called.
func (c *brokerClient) Run(ctx context.Context) error {
	b := c.brokers
	b.mu.Lock()
	c.running = true
	b.runs[c.url]++
	end := b.stateOf(c.url).end
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		c.running = false
		b.runs[c.url]--
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-end:
		return err
	}
}

// Ready returns an error if the broker is unreachable.
func (c *brokerClient) Ready() error {
	b := c.brokers
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !c.running:
		return errNotRunning
	case b.stateOf(c.url).away:
		return fmt.Errorf("%s: %w", c.url, ErrAway)
	}
	return nil
}

// InFlight returns the number of outstanding confirmations.
func (c *brokerClient) InFlight() int {
	c.brokers.mu.Lock()
	defer c.brokers.mu.Unlock()
	return c.under
}

// Publish confirms an event, at once unless the broker holds confirmations.
func (c *brokerClient) Publish(ctx context.Context, e *cloudevent.Event) error {
	if err := c.Ready(); err != nil {
		return err
	}
	b := c.brokers
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stateOf(c.url)
	if s.panics {
		panic("a client of " + c.url + " that panics")
	}
	if held := s.held; held != nil {
		s.waiting++
		c.under++
		b.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
		}
		b.mu.Lock()
		s.waiting--
		c.under--
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if !c.running {
		return errNotRunning
	}
	b.events = append(b.events, Event{URL: c.url, Event: *e})
	return nil
}
