// Package brokertest is the test suite for broker adapters. It includes the faults of brokers:
// servers that die, hang, answer late or are full, and connections that break (Proxy).
//
// All tests check one rule. An event that was reported published is in the broker. An event that
// was reported as not published is not. Only an event whose outcome is unknown may or may not be.
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// A Broker is an adapter, as its users see it.
type Broker interface {
	Consumer
	Run(ctx context.Context) error
	Ready() error
	Publish(ctx context.Context, e *cloudevent.Event) error
	InFlight() int
}

// A Consumer is the part of an adapter that receives events.
type Consumer interface {
	Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error
	SubscriptionReady(subscription string) error
}

// A Bed is the broker server of one test, with a separate topic.
type Bed struct {
	// Open returns an adapter that is not running yet and connects through Proxy. Its StopTimeout
	// is StopTimeout.
	Open func(t *testing.T, mode cloudevent.Mode) Broker

	// OpenBounded is like Open, for a queue that accepts n events and refuses more. Nil if the
	// broker has no such queues.
	OpenBounded func(t *testing.T, n int) Broker

	// Proxy is the proxy between the adapters and the server.
	Proxy *FaultProxy

	// Stored returns the events that the server has stored. It is for servers that deliver too
	// slowly but can be queried; nil means that delivered events count.
	Stored func() []cloudevent.Event

	// Kill ends the server without warning, Restart starts it again on the same data.
	Kill, Restart func(t *testing.T)
}

// StopTimeout is the StopTimeout of adapters. Run may take twice as long, plus a margin, to stop
// from any state.
const StopTimeout = 2 * time.Second

// Timeouts of the suite. They are long because the machine may be busy.
const (
	patience    = 60 * time.Second
	stopBound   = 2*StopTimeout + 3*time.Second
	publishTime = 10 * time.Second
)

// Run runs the suite. It calls open for each test.
func Run(t *testing.T, open func(t *testing.T) *Bed) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, bed *Bed)
	}{
		{"Structured", testStructured},
		{"Binary", testBinary},
		{"InvalidEvent", testUnsendableEvents},
		{"ManyPublishers", testManyPublishers},
		{"Redelivery", testRedelivery},
		{"SubscriptionReady", testSubscriptionReady},
		{"DownAtStart", testDownAtStart},
		{"ConnectionCut", testConnectionCut},
		{"ServerKilled", testServerKilled},
		{"SlowConfirms", testPublishesShareLatency},
		{"HungServer", testHungServer},
		{"QueueFull", testQueueFull},
		{"StopWhileDown", testStopWhileDown},
		{"StopAwaitsConfirms", testStopAwaitsConfirms},
		{"NotStarted", testNotStarted},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// NewTestLogger returns a logger that writes to the test's log.
func NewTestLogger(tb testing.TB) *slog.Logger {
	tb.Helper()
	return slog.New(slog.NewTextHandler(testWriter{tb}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type testWriter struct{ tb testing.TB }

// Write implements io.Writer.
func (w testWriter) Write(b []byte) (int, error) {
	w.tb.Logf("%s", b)
	return len(b), nil
}

// NewEvent returns the n-th event of a test.
func NewEvent(n int) *cloudevent.Event {
	return &cloudevent.Event{
		ID:      fmt.Sprintf("event-%05d", n),
		Source:  "hyperfleet-sentinel",
		Type:    "com.redhat.hyperfleet.cluster.reconcile",
		Subject: fmt.Sprintf("cls-%d", n),
		Time:    time.Date(2025, 10, 21, 12, 0, 0, 123456000, time.UTC),
		Data:    fmt.Appendf(nil, `{"resource_id":"cls-%d","resource_type":"cluster","reason":"generation changed - new spec to reconcile"}`, n),
	}
}

// StartBroker runs b and returns the func that stops it, which fails the test if that takes too
// long. It is called at the end of the test if not before.
func StartBroker(t *testing.T, b Broker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		timer := time.NewTimer(stopBound)
		defer timer.Stop()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run() = %v, want nil", err)
			}
		case <-timer.C:
			t.Errorf("Run did not return within %s after the stop", stopBound)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Eventually waits until check returns nil.
func Eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	bound := time.NewTimer(patience)
	defer bound.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-bound.C:
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
	}
}

// WantReady waits until b is ready.
func WantReady(t *testing.T, b Broker) {
	t.Helper()
	Eventually(t, "ready", b.Ready)
}

// PublishWithTimeout publishes e with a timeout.
func PublishWithTimeout(t *testing.T, b Broker, e *cloudevent.Event) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), publishTime)
	defer cancel()
	return b.Publish(ctx, e)
}

// A PublishLedger records the outcome of each event, by id.
type PublishLedger struct {
	mu        sync.Mutex
	published map[string]bool
	refused   map[string]error
	unknown   map[string]bool
}

// NewPublishLedger returns an empty ledger.
func NewPublishLedger() *PublishLedger {
	return &PublishLedger{published: map[string]bool{}, refused: map[string]error{}, unknown: map[string]bool{}}
}

// RecordOutcome records the outcome of one publish.
func (l *PublishLedger) RecordOutcome(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.published[id] = true
	case errors.Is(err, broker.ErrUnknownOutcome):
		l.unknown[id] = true
	default:
		l.refused[id] = err
	}
}

// Counts returns the number of events with each outcome.
func (l *PublishLedger) Counts() (published, refused, unknown int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.published), len(l.refused), len(l.unknown)
}

// A EventCollector records the events of a subscription.
type EventCollector struct {
	stored func() []cloudevent.Event

	mu  sync.Mutex
	got map[string]cloudevent.Event
}

// StartCollector subscribes until the end of the test.
func StartCollector(t *testing.T, b Broker) *EventCollector {
	t.Helper()
	c := &EventCollector{got: map[string]cloudevent.Event{}}
	StartConsumer(t, b, "collector", func(_ context.Context, e cloudevent.Event) error {
		c.addEvent(e)
		return nil
	})
	return c
}

func (c *EventCollector) addEvent(e cloudevent.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[e.ID] = e
}

// StartConsumer consumes until stop is called or the test ends.
func StartConsumer(
	t *testing.T, b Broker, subscription string, handle func(context.Context, cloudevent.Event) error,
) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- b.Consume(ctx, subscription, handle) }()
	stop = sync.OnceFunc(func() {
		cancel()
		timer := time.NewTimer(stopBound)
		defer timer.Stop()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Consume() = %v, want nil", err)
			}
		case <-timer.C:
			t.Errorf("Consume did not return within %s", stopBound)
		}
	})
	t.Cleanup(stop)
	return stop
}

// addStoredByServer adds the events that the server reports as stored.
func (c *EventCollector) addStoredByServer() {
	if c.stored == nil {
		return
	}
	for _, e := range c.stored() {
		c.addEvent(e)
	}
}

// Get returns a received event.
func (c *EventCollector) Get(id string) (cloudevent.Event, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.got[id]
	return e, ok
}

// Len returns the number of different events received.
func (c *EventCollector) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

// WantReceivedAsReported checks the rule of the suite. It waits for the published events, then
// publishes and awaits a last event, and checks that no refused event was received.
func WantReceivedAsReported(t *testing.T, b Broker, ledger *PublishLedger, received *EventCollector) {
	t.Helper()
	last := NewEvent(99999)
	Eventually(t, "publish the last event", func() error { return PublishWithTimeout(t, b, last) })
	ledger.RecordOutcome(last.ID, nil)
	Eventually(t, "receive what was published", func() error {
		received.addStoredByServer()
		ledger.mu.Lock()
		defer ledger.mu.Unlock()
		for id := range ledger.published {
			if _, ok := received.Get(id); !ok {
				return fmt.Errorf("%s was reported published and has not come (%d of %d came)", id, received.Len(), len(ledger.published))
			}
		}
		return nil
	})
	ledger.mu.Lock()
	defer ledger.mu.Unlock()
	for id, err := range ledger.refused {
		if _, ok := received.Get(id); ok && !ledger.published[id] && !ledger.unknown[id] {
			t.Errorf("%s was reported as not published (%v) and came", id, err)
		}
	}
	if n := b.InFlight(); n != 0 {
		t.Errorf("InFlight() = %d after all publishes, want 0", n)
	}
}
