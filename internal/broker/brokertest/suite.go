package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// startSubscribedBroker returns a running, ready adapter and its subscription.
func (bed *Bed) startSubscribedBroker(t *testing.T, mode cloudevent.Mode) (Broker, *EventCollector) {
	t.Helper()
	b := bed.Open(t, mode)
	StartBroker(t, b)
	c := StartCollector(t, b)
	PublishUntilReceived(t, b, c)
	c.stored = bed.Stored
	return b, c
}

// PublishUntilReceived waits until an event is received. A broker that returns events without a queue
// then has one.
func PublishUntilReceived(t *testing.T, b Broker, c *EventCollector) {
	t.Helper()
	WantReady(t, b)
	first := NewEvent(0)
	Eventually(t, "the subscription", func() error {
		if err := PublishWithTimeout(t, b, first); err != nil {
			return err
		}
		if _, ok := c.Get(first.ID); !ok {
			return errors.New("the first event did not come")
		}
		return nil
	})
}

func testStructured(t *testing.T, bed *Bed) {
	t.Helper()
	testEventRoundTrip(t, bed, cloudevent.Structured)
}

func testBinary(t *testing.T, bed *Bed) {
	t.Helper()
	testEventRoundTrip(t, bed, cloudevent.Binary)
}

// testEventRoundTrip sends events with all, no and unusual attributes.
func testEventRoundTrip(t *testing.T, bed *Bed, mode cloudevent.Mode) {
	t.Helper()
	b, c := bed.startSubscribedBroker(t, mode)
	full := NewEvent(1)
	full.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	full.TraceState = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
	bare := &cloudevent.Event{ID: "bare", Source: "/s", Type: "t"}
	odd := NewEvent(2)
	odd.ID, odd.Subject, odd.Type = `50% "é" 日本 %41`, "a b/c.d", "com.example.*.> odd"
	large := NewEvent(3)
	large.Data = fmt.Appendf(nil, `{"text":"%0200000d"}`, 1)
	for _, want := range []*cloudevent.Event{full, bare, odd, large} {
		if err := PublishWithTimeout(t, b, want); err != nil {
			t.Errorf("Publish(%s) = %v", want.ID, err)
			continue
		}
		Eventually(t, "receive "+want.ID, func() error {
			if _, ok := c.Get(want.ID); !ok {
				return errors.New("it has not come")
			}
			return nil
		})
		got, _ := c.Get(want.ID)
		if diff := cmp.Diff(*want, got); diff != "" {
			t.Errorf("received event (-sent +received):\n%s", diff)
		}
	}
}

// testUnsendableEvents requires a permanent error for an event that no retry can publish.
func testUnsendableEvents(t *testing.T, bed *Bed) {
	t.Helper()
	b, _ := bed.startSubscribedBroker(t, "")
	e := NewEvent(1)
	e.Type = ""
	if err := PublishWithTimeout(t, b, e); !backoff.IsPermanent(err) {
		t.Errorf("Publish(event without type) = %v, want a permanent error", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("never mind"))
	if err := b.Publish(ctx, NewEvent(2)); err == nil || errors.Is(err, broker.ErrUnknownOutcome) {
		t.Errorf("Publish(ended context) = %v, want an error and nothing sent", err)
	}
}

// A stretch is a range of events and the number of goroutines that publish them.
type eventRange struct{ from, to, publishers int }

// publishEachOnceAndRecord publishes each event once and records its outcome.
func publishEachOnceAndRecord(t *testing.T, b Broker, l *PublishLedger, events eventRange) {
	t.Helper()
	var work sync.WaitGroup
	var next atomic.Int64
	next.Store(int64(events.from))
	for range events.publishers {
		work.Go(func() {
			for n := int(next.Add(1) - 1); n < events.to; n = int(next.Add(1) - 1) {
				e := NewEvent(n)
				err := PublishWithTimeout(t, b, e)
				l.RecordOutcome(e.ID, err)
				if err != nil {
					pause(t, 50*time.Millisecond) // so that an outage does not use up all events
				}
			}
		})
	}
	work.Wait()
}

func testManyPublishers(t *testing.T, bed *Bed) {
	t.Helper()
	b, c := bed.startSubscribedBroker(t, "")
	l := NewPublishLedger()
	publishEachOnceAndRecord(t, b, l, eventRange{1, 3000, 200})
	if published, refused, unknown := l.Counts(); refused+unknown != 0 {
		t.Errorf("%d published, %d refused, %d unknown, want nothing but published on a calm day", published, refused, unknown)
	}
	WantReceivedAsReported(t, b, l, c)
}

// testRedelivery uses a handler that fails at first.
func testRedelivery(t *testing.T, bed *Bed) {
	t.Helper()
	b := bed.Open(t, "")
	StartBroker(t, b)
	const failures = 2
	var mu sync.Mutex
	var calls []time.Time // of the event
	seen := &EventCollector{got: map[string]cloudevent.Event{}}
	e := NewEvent(1)
	StartConsumer(t, b, "fails-at-first", func(_ context.Context, got cloudevent.Event) error {
		if got.ID != e.ID {
			seen.addEvent(got)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if calls = append(calls, time.Now()); len(calls) <= failures {
			return errors.New("not yet")
		}
		return nil
	})
	PublishUntilReceived(t, b, seen)
	if err := PublishWithTimeout(t, b, e); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the event and its redeliveries", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(calls) <= failures {
			return fmt.Errorf("handled %d times, want %d", len(calls), failures+1)
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	for i := range failures {
		if wait := calls[i+1].Sub(calls[i]); wait < 20*time.Millisecond {
			t.Errorf("the event came again after %s, want a delay", wait)
		}
	}
}

// testDownAtStart requires a broker to wait for its server and to report that in Ready.
func testDownAtStart(t *testing.T, bed *Bed) {
	t.Helper()
	bed.Proxy.SetRefuseConnections(true)
	bed.Proxy.ResetConnections()
	b := bed.Open(t, "")
	StartBroker(t, b)
	c := StartCollector(t, b)
	Eventually(t, "a reason", func() error {
		if err := b.Ready(); err == nil || err.Error() == "not connected: not started" {
			return fmt.Errorf("Ready() = %w", err)
		}
		return nil
	})
	begin := time.Now()
	if err := PublishWithTimeout(t, b, NewEvent(1)); !errors.Is(err, broker.ErrNotReady) {
		t.Errorf("Publish() = %v, want ErrNotReady", err)
	}
	if took := time.Since(begin); took > publishTime/2 {
		t.Errorf("Publish took %s without a server, want it to fail at once", took)
	}
	bed.Proxy.SetRefuseConnections(false)
	PublishUntilReceived(t, b, c)
	if _, ok := c.Get(NewEvent(1).ID); ok {
		t.Error("received an event that was rejected")
	}
}

// publishDuringFaults publishes while faults occur, and checks that the content of the broker
// afterwards matches the reported outcomes. Faults can wait until events are in progress, and learn
// whether a publish has failed so far.
func publishDuringFaults(t *testing.T, b Broker, c *EventCollector, faults func(underWay func() (felt bool))) {
	t.Helper()
	l := NewPublishLedger()
	calm, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		const portion, most, publishers = 500, 90_000, 100
		for n := 1; n < most; n += portion {
			publishEachOnceAndRecord(t, b, l, eventRange{n, n + portion, publishers})
			select {
			case <-calm:
				return
			default:
			}
		}
	}()
	faults(func() bool {
		before, _, _ := l.Counts()
		Eventually(t, "events under way", func() error {
			if now, _, _ := l.Counts(); now < before+200 {
				return fmt.Errorf("%d published since", now-before)
			}
			return nil
		})
		_, refused, unknown := l.Counts()
		return refused+unknown > 0
	})
	WantReady(t, b)
	close(calm)
	<-done
	published, refused, unknown := l.Counts()
	t.Logf("%d published, %d not published, %d unknown", published, refused, unknown)
	if published == 0 || refused+unknown == 0 {
		t.Error("the faults were not felt: want some events published and some not")
	}
	WantReceivedAsReported(t, b, l, c)
}

// pause waits for a fault to take effect.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	if err := backoff.Sleep(t.Context(), d); err != nil {
		t.Error(err)
	}
}

func testConnectionCut(t *testing.T, bed *Bed) {
	t.Helper()
	b, c := bed.startSubscribedBroker(t, "")
	publishDuringFaults(t, b, c, func(underWay func() bool) {
		const least, most = 5, 100 // a reset between two requests harms none
		for resets := range most {
			if felt := underWay(); felt && resets >= least {
				return
			}
			bed.Proxy.ResetConnections()
		}
	})
}

func testServerKilled(t *testing.T, bed *Bed) {
	t.Helper()
	b, c := bed.startSubscribedBroker(t, "")
	publishDuringFaults(t, b, c, func(underWay func() bool) {
		underWay()
		bed.Kill(t)
		Eventually(t, "the loss to be noticed", func() error {
			if b.Ready() == nil {
				return errors.New("still ready")
			}
			return nil
		})
		bed.Restart(t)
	})
}

// testPublishesShareLatency checks that many publishes share one slow round trip.
func testPublishesShareLatency(t *testing.T, bed *Bed) {
	t.Helper()
	b, c := bed.startSubscribedBroker(t, "")
	const latency, events = 100 * time.Millisecond, 200
	bed.Proxy.SetLatency(latency)
	l := NewPublishLedger()
	begin := time.Now()
	publishEachOnceAndRecord(t, b, l, eventRange{1, events, events})
	if took := time.Since(begin); took > events*latency/4 {
		t.Errorf("%d publishes with a latency of %s took %s: they wait for one another", events, latency, took)
	}
	bed.Proxy.SetLatency(0)
	WantReceivedAsReported(t, b, l, c)
}

// testHungServer uses a server that accepts bytes and never answers.
func testHungServer(t *testing.T, bed *Bed) {
	t.Helper()
	b, _ := bed.startSubscribedBroker(t, "")
	bed.Proxy.PauseTraffic()
	defer bed.Proxy.ResumeTraffic()
	var work sync.WaitGroup
	for n := range 300 {
		work.Go(func() {
			const bound = time.Second
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			e := NewEvent(n + 1)
			e.Data = fmt.Appendf(nil, `"%050000d"`, 1) // more than the socket buffers hold
			begin := time.Now()
			err := b.Publish(ctx, e)
			if err == nil {
				t.Errorf("Publish() = nil, want an error: the broker did not respond")
			}
			if took := time.Since(begin); took > 5*bound {
				t.Errorf("Publish took %s, its context ended after %s", took, bound)
			}
		})
	}
	work.Wait()
	if n := b.InFlight(); n != 0 {
		t.Errorf("InFlight() = %d after all publishes, want 0", n)
	}
	// The clean-up stops the adapter while the server still hangs.
}

// testQueueFull requires that refusals of a full queue are reported as such.
func testQueueFull(t *testing.T, bed *Bed) {
	t.Helper()
	if bed.OpenBounded == nil {
		t.Log("this broker has no bounded queue")
		return
	}
	const room = 20
	b := bed.OpenBounded(t, room)
	StartBroker(t, b)
	WantReady(t, b)
	l := NewPublishLedger()
	for n := range 2 * room {
		err := PublishWithTimeout(t, b, NewEvent(n+1))
		l.RecordOutcome(NewEvent(n+1).ID, err)
		if err != nil && !errors.Is(err, broker.ErrRefused) {
			t.Errorf("Publish() = %v, want nil or ErrRefused", err)
		}
	}
	published, refused, _ := l.Counts()
	if published != room || refused != room {
		t.Errorf("%d published and %d refused, want %d of each", published, refused, room)
	}
	c := StartCollector(t, b)
	Eventually(t, "receive what was published", func() error {
		if n := c.Len(); n < room {
			return fmt.Errorf("%d came", n)
		}
		return nil
	})
	for id, err := range l.refused {
		if _, ok := c.Get(id); ok {
			t.Errorf("%s was refused (%v) and came", id, err)
		}
	}
}

func testStopWhileDown(t *testing.T, bed *Bed) {
	t.Helper()
	b, _ := bed.startSubscribedBroker(t, "")
	bed.Proxy.SetRefuseConnections(true)
	bed.Proxy.ResetConnections()
	Eventually(t, "the loss to be noticed", func() error {
		if b.Ready() == nil {
			return errors.New("still ready")
		}
		return nil
	})
	// The clean-up stops the adapter.
}

// testStopAwaitsConfirms stops the adapter while events are in progress.
func testStopAwaitsConfirms(t *testing.T, bed *Bed) {
	t.Helper()
	b := bed.Open(t, "")
	stop := StartBroker(t, b)
	c := StartCollector(t, b)
	PublishUntilReceived(t, b, c)
	bed.Proxy.SetLatency(200 * time.Millisecond)
	l := NewPublishLedger()
	const events = 100
	var work sync.WaitGroup
	for n := range events {
		work.Go(func() { l.RecordOutcome(NewEvent(n+1).ID, PublishWithTimeout(t, b, NewEvent(n+1))) })
	}
	Eventually(t, "events under way", func() error {
		if n := b.InFlight(); n < events {
			return fmt.Errorf("%d in flight", n)
		}
		return nil
	})
	stop()
	work.Wait()
	if published, refused, unknown := l.Counts(); published != events {
		t.Errorf("%d published, %d refused, %d unknown, want %d published: stopping waits for confirms", published, refused, unknown, events)
	}
	if err := PublishWithTimeout(t, b, NewEvent(events+1)); !errors.Is(err, broker.ErrNotReady) {
		t.Errorf("Publish() after the stop = %v, want ErrNotReady", err)
	}
	if b.Ready() == nil {
		t.Error("Ready() after the stop = nil, want a reason")
	}
}

// testNotStarted requires an adapter that was not started to fail at once.
func testNotStarted(t *testing.T, bed *Bed) {
	t.Helper()
	b := bed.Open(t, "")
	if err := PublishWithTimeout(t, b, NewEvent(1)); !errors.Is(err, broker.ErrNotReady) {
		t.Errorf("Publish() = %v, want ErrNotReady", err)
	}
	if b.Ready() == nil {
		t.Error("Ready() = nil, want a reason")
	}
}
