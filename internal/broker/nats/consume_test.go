package nats_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// A handleCounter counts how often each event was handled.
type handleCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *handleCounter) add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[id]++
}

// wantHandled returns an error until n events were handled.
func (c *handleCounter) wantHandled(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.counts) < n {
		return fmt.Errorf("%d events handled, want %d", len(c.counts), n)
	}
	return nil
}

// TestSharedSubscription has two consumers work longer on the events than the server waits for an acknowledgement.
func TestSharedSubscription(t *testing.T) {
	const events, concurrency = 8, 2
	b, err := natsserver.NewBrokerStartingServerOnRun(natsserver.Config{Dir: t.TempDir()},
		nats.Config{StopTimeout: brokertest.StopTimeout, AckWait: 3 * time.Second, Concurrency: concurrency}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	brokertest.StartBroker(t, b)
	brokertest.WantReady(t, b)
	for n := range events {
		if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(n)); err != nil {
			t.Fatal(err)
		}
	}
	var handled handleCounter
	for range 2 {
		brokertest.StartConsumer(t, b, "shared", func(ctx context.Context, e cloudevent.Event) error {
			handled.add(e.ID)
			work := time.NewTimer(2100 * time.Millisecond)
			defer work.Stop()
			select {
			case <-work.C:
			case <-ctx.Done():
			}
			return nil
		})
	}
	brokertest.Eventually(t, "all events", func() error { return handled.wantHandled(events) })
	handled.mu.Lock()
	defer handled.mu.Unlock()
	for id, n := range handled.counts {
		if n != 1 {
			t.Errorf("%s was handled %d times, want once", id, n)
		}
	}
}

// TestSlowHandlerDelaysNoOther has the subscription fail while an event is being handled.
func TestSlowHandlerDelaysNoOther(t *testing.T) {
	b := newEmbedded(t, t.TempDir())
	brokertest.StartBroker(t, b)
	brokertest.WantReady(t, b)
	slow, other := brokertest.NewEvent(1), brokertest.NewEvent(2)
	var handled handleCounter
	release := make(chan struct{})
	stop := brokertest.StartConsumer(t, b, "slow", func(_ context.Context, e cloudevent.Event) error {
		handled.add(e.ID)
		if e.ID == slow.ID {
			<-release
		}
		return nil
	})
	defer stop()
	defer close(release)
	if err := brokertest.PublishWithTimeout(t, b, slow); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the slow event", func() error { return handled.wantHandled(1) })
	if err := newJetStream(t, b.URL()).DeleteConsumer(t.Context(), nats.DefaultTopic, "slow"); err != nil {
		t.Fatal(err)
	}
	if err := brokertest.PublishWithTimeout(t, b, other); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the other event, while the slow one is being handled", func() error { return handled.wantHandled(2) })
}

// TestSubscriptionNameInUse subscribes with the name of a consumer that the server pushes to.
func TestSubscriptionNameInUse(t *testing.T) {
	b := newEmbedded(t, t.TempDir())
	brokertest.StartBroker(t, b)
	brokertest.WantReady(t, b)
	js := newJetStream(t, b.URL())
	pushed := jetstream.ConsumerConfig{Durable: "pushed", DeliverSubject: "elsewhere", AckPolicy: jetstream.AckExplicitPolicy}
	if _, err := js.CreatePushConsumer(t.Context(), nats.DefaultTopic, pushed); err != nil {
		t.Fatal(err)
	}
	brokertest.StartConsumer(t, b, "pushed", func(context.Context, cloudevent.Event) error { return nil })
	brokertest.WantSubscriptionReason(t, b, "pushed", "create consumer")
	if err := b.Ready(); err != nil {
		t.Errorf("Ready() = %v, want nil: events can be published", err)
	}
	if err := js.DeleteConsumer(t.Context(), nats.DefaultTopic, "pushed"); err != nil {
		t.Fatal(err)
	}
	brokertest.WantSubscriptionReady(t, b, "pushed")
}
