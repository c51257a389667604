package adapter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb" //nolint:depguard // a dead-letter policy on the vendor's own server
	"cloud.google.com/go/pubsub/v2/pstest"         //nolint:depguard // the vendor's own server
	natsgo "github.com/nats-io/nats.go"            //nolint:depguard // advisories, which an operator reads

	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest/rabbitmq"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/broker/pubsub"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// A bed is a broker server with one topic.
type bed struct {
	// env configures an adapter, publisher a sentinel.
	env       map[string]string
	publisher brokertest.Broker

	// deadLetters returns the number of dead letters so far.
	deadLetters func() int

	// expireLeases makes the server redeliver the events of dead consumers at once. Nil means that
	// it does so soon.
	expireLeases func()
}

// TestRabbitMQ runs the suite with a dead-letter exchange that a policy sets.
func TestRabbitMQ(t *testing.T) {
	server, err := rabbitmq.Start(t.Context(), rabbitmq.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	if out, err := server.RunRabbitMQCtl(t.Context(), "set_policy", "--apply-to", "queues", "dead-letters", ".*-adapter-dns$", `{"dead-letter-exchange":"dead"}`); err != nil {
		t.Fatal(err, out)
	}
	open := func(topic string) brokertest.Broker {
		b, err := amqp.New(amqp.Config{URL: settings.Secret(server.URL()), Topic: topic}, brokertest.NewTestLogger(t))
		if err != nil {
			t.Fatal(err)
		}
		brokertest.StartBroker(t, b)
		return b
	}
	runSuite(t, bed{
		env:       map[string]string{"BROKER_TYPE": "rabbitmq", "BROKER_URL": server.URL()},
		publisher: open(""), deadLetters: countEvents(t, open("dead"), "letters"),
	})
}

// TestNATS runs the suite. Dead letters are the server's advisories.
func TestNATS(t *testing.T) {
	b, err := natsserver.NewBrokerStartingServerOnRun(natsserver.Config{Dir: t.TempDir()}, nats.Config{}, brokertest.NewTestLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	brokertest.StartBroker(t, b)
	brokertest.WantReady(t, b)
	conn, err := natsgo.Connect(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	var mu sync.Mutex
	advisories := 0
	if _, err := conn.Subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.hyperfleet-events.adapter-dns", func(*natsgo.Msg) {
		mu.Lock()
		defer mu.Unlock()
		advisories++
	}); err != nil {
		t.Fatal(err)
	}
	runSuite(t, bed{
		env:       map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": b.URL(), "BROKER_ACK_WAIT": "1s"},
		publisher: b,
		deadLetters: func() int {
			mu.Lock()
			defer mu.Unlock()
			return advisories
		},
	})
}

// TestPubSub runs the suite with a subscription that has a dead-letter policy.
func TestPubSub(t *testing.T) {
	server := pstest.NewServer()
	t.Cleanup(func() { _ = server.Close() })
	open := func(topic string) brokertest.Broker {
		b, err := pubsub.New(pubsub.Config{ProjectID: "p", Topic: topic, EmulatorHost: server.Addr}, brokertest.NewTestLogger(t))
		if err != nil {
			t.Fatal(err)
		}
		brokertest.StartBroker(t, b)
		return b
	}
	dead := open("dead")
	letters := countEvents(t, dead, "letters")
	publisher := open("hyperfleet-events")
	countEvents(t, publisher, "another-adapter") // a topic without a subscription is not ready
	brokertest.WantReady(t, publisher)
	brokertest.WantReady(t, dead)
	if _, err := server.GServer.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: "projects/p/subscriptions/adapter-dns", Topic: "projects/p/topics/hyperfleet-events", AckDeadlineSeconds: 10,
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: "projects/p/topics/dead", MaxDeliveryAttempts: 5},
	}); err != nil {
		t.Fatal(err)
	}
	runSuite(t, bed{
		env:       map[string]string{"BROKER_TYPE": "pubsub", "BROKER_PROJECT_ID": "p", "PUBSUB_EMULATOR_HOST": server.Addr},
		publisher: publisher, deadLetters: letters,
		// A last extension of the killed process may arrive after this, so the clock also runs faster.
		expireLeases: func() {
			at := time.Now()
			server.SetTimeNowFunc(func() time.Time { return at.Add(2*time.Minute + 60*time.Since(at)) })
		},
	})
}

// countEvents counts the events of b's topic.
func countEvents(t *testing.T, b brokertest.Broker, subscription string) func() int {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	brokertest.StartConsumer(t, b, subscription, func(_ context.Context, e cloudevent.Event) error {
		mu.Lock()
		defer mu.Unlock()
		seen[e.ID] = true
		return nil
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
}

// runSuite is the suite of the three brokers.
func runSuite(t *testing.T, b bed) {
	t.Helper()
	fleet := newHTTPFleet(t)
	b.env = maps.Clone(b.env)
	b.env["HYPERFLEET_API_ENDPOINT"] = fleet.URL
	var mu sync.Mutex
	bad := map[string]bool{"bad": true}
	reconcile := func(_ context.Context, r Resource) (Report, error) {
		mu.Lock()
		defer mu.Unlock()
		if bad[r.ID] {
			return Report{}, errors.New("no zone")
		}
		return Available("done"), nil
	}
	open := func() *Adapter {
		return newAdapter(t, Config{MaxAttempts: 3, RetryDelay: 20 * time.Millisecond}, reconcile, Deps{
			Log: brokertest.NewTestLogger(t), Env: func(name string) (string, bool) { v, ok := b.env[name]; return v, ok },
		})
	}
	a := open()
	stop := start(t, a)
	brokertest.Eventually(t, "ready", a.Ready)

	const trace = "0af7651916cd43dd8448eb211c80319c"
	b.publish(t, "good-1", "good", "00-"+trace+"-b7ad6b7169203331-01")
	b.publish(t, "bad-1", "bad", "")
	brokertest.Eventually(t, "reports", func() error {
		if good, bad := len(fleet.of("good")), len(fleet.of("bad")); good != 1 || bad < 3 {
			return fmt.Errorf("%d good and %d bad reports, want 1 and 3", good, bad)
		}
		return nil
	})
	if r := fleet.of("good")[0]; statusOfCondition(r, "Available") != "True WorkSucceeded" || r.ObservedGeneration != 1 || r.ObservedTime == nil {
		t.Errorf("report %+v, want it available with generation and time", r)
	}
	if got := fleet.traces(trace); got != 1 {
		t.Errorf("%d reports have the trace of the event, want 1", got)
	}
	if got := statusOfCondition(fleet.of("bad")[2], "Health"); got != "False RetriesExhausted" {
		t.Errorf("Health after the last attempt is %q", got)
	}
	brokertest.Eventually(t, "dead letter", func() error {
		if n := b.deadLetters(); n != 1 {
			return fmt.Errorf("%d dead letters, want 1", n)
		}
		return nil
	})
	stop()
	if a.Ready() == nil || a.Run(t.Context()) == nil {
		t.Error("Ready() or a second Run() after the stop = nil, want a reason")
	}

	// A process dies in the middle of its work, and another one takes the event over.
	kill := startProcess(t, b.env)
	b.publish(t, "killed-1", "killed", "")
	brokertest.Eventually(t, "work in the other process", func() error {
		if !fleet.wasRead("killed") {
			return errors.New("the resource was not read")
		}
		return nil
	})
	kill()
	if b.expireLeases != nil {
		b.expireLeases()
	}
	stop = start(t, open())
	brokertest.Eventually(t, "the report of the event of the killed process", func() error {
		if n := len(fleet.of("killed")); n != 1 {
			return fmt.Errorf("%d reports, want 1", n)
		}
		return nil
	})
	stop()
	if n := len(fleet.of("good")); n != 1 {
		t.Errorf("%d reports on the first resource in the end, want 1: its event was acknowledged", n)
	}
}

func (b bed) publish(t *testing.T, eventID, id, traceparent string) {
	t.Helper()
	e := brokertest.NewEvent(1)
	e.ID, e.TraceParent = eventID, traceparent
	e.Data = fmt.Appendf(nil, `{"resource_id":%q,"generation":1}`, id)
	brokertest.Eventually(t, "publish "+eventID, func() error { return brokertest.PublishWithTimeout(t, b.publisher, e) })
}
