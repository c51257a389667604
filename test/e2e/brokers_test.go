package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest" //nolint:depguard // the vendor's own server is what we publish to
	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/broker/pubsub"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// TestPubSub publishes to the fake of the vendor's library, with the
// specification's settings alone: type and project. The message has the
// attributes of the event, named as the binding has them.
func TestPubSub(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"structured", "binary"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server := pstest.NewServer()
			t.Cleanup(func() { _ = server.Close() })
			subscribe(t, server.Addr)
			f := newFleet(t, oneAdapter())
			s := newSentinel(t, f.url, "resource_type: clusters\npoll_interval: 100ms\nmax_age_not_ready: 1h\nhyperfleet_api: {endpoint: API}\n", map[string]string{
				"BROKER_TYPE": "pubsub", "BROKER_PROJECT_ID": "hyperfleet-prod", "PUBSUB_EMULATOR_HOST": server.Addr, "BROKER_EVENT_MODE": mode,
			})
			s.wantReady(t)
			c := f.create(t, "cluster-1", "")
			f.report(t, c.ID, 1, true)
			f.patch(t, c.ID)
			eventually(t, patience, func() error {
				if n := len(server.Messages()); n < 1 {
					return fmt.Errorf("%d messages, want 1", n)
				}
				return nil
			})
			m := server.Messages()[0]
			if want := "projects/hyperfleet-prod/topics/hyperfleet-events"; m.Topic != want {
				t.Errorf("topic %q, want %q", m.Topic, want)
			}
			e, err := cloudevent.Decode(m.Attributes["content-type"], func(name string) (string, bool) {
				v, ok := m.Attributes["ce-"+name]
				return v, ok
			}, m.Data)
			if err != nil {
				t.Fatalf("%v: attributes %v, data %s", err, m.Attributes, m.Data)
			}
			want := map[string]string{
				"ce-specversion": "1.0", "ce-type": clusterEvent, "ce-source": "hyperfleet-sentinel",
				"ce-id": e.ID, "ce-time": e.Time.Format(time.RFC3339Nano), "ce-subject": c.ID,
				"content-type": map[string]string{"structured": "application/cloudevents+json", "binary": "application/json"}[mode],
			}
			if diff := cmp.Diff(want, m.Attributes); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if want := `{"resource_type":"clusters","resource_id":"` + c.ID + `","reason":"` + reasonGeneration + `"}`; string(e.Data) != want {
				t.Errorf("data %s, want %s", e.Data, want)
			}
			wantMetric(t, s, "hyperfleet_sentinel_events_published_total", 1)
		})
	}
}

// subscribe makes the topic and a subscription to it, as an adapter does: to
// a topic without one the sentinel publishes nothing.
func subscribe(t *testing.T, addr string) {
	t.Helper()
	b, err := pubsub.New(pubsub.Config{ProjectID: "hyperfleet-prod", EmulatorHost: addr}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	consume(t, b, func(cloudevent.Event) {})
}

// A broker is one of our adapters for brokers.
type broker interface {
	Run(ctx context.Context) error
	Ready() error
	Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error
}

// consume runs a broker with one consumer until the test ends.
func consume(t *testing.T, b broker, take func(cloudevent.Event)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var work sync.WaitGroup
	work.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	work.Go(func() {
		_ = b.Consume(ctx, "adapter", func(_ context.Context, e cloudevent.Event) error { // it ends with ctx
			take(e)
			return nil
		})
	})
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	eventually(t, patience, b.Ready)
}

// TestNATS publishes to a JetStream server elsewhere.
func TestNATS(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	server, err := natsserver.NewBrokerStartingServerOnRun(natsserver.Config{Dir: t.TempDir()}, nats.Config{}, log)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var events []cloudevent.Event
	consume(t, server, func(e cloudevent.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	})

	f := newFleet(t, oneAdapter())
	s := newSentinel(t, f.url, "resource_type: clusters\npoll_interval: 100ms\nmax_age_not_ready: 1h\nhyperfleet_api: {endpoint: API}\n",
		map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": server.URL()})
	s.wantReady(t)
	c := f.create(t, "cluster-1", "")
	all := func() []cloudevent.Event {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(events)
	}
	eventually(t, patience, func() error {
		if n := len(all()); n < 1 {
			return fmt.Errorf("%d events, want 1", n)
		}
		return nil
	})
	e := all()[0]
	var data map[string]string
	if err := json.Unmarshal(e.Data, &data); err != nil || e.Type != clusterEvent || e.Subject != c.ID || data["resource_id"] != c.ID || data["reason"] != reasonGeneration {
		t.Errorf("event %+v with data %s: %v", e, e.Data, err)
	}
}
