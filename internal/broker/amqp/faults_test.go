package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest/rabbitmq"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// wantReason waits until b returns its reason for not being ready.
func wantReason(t *testing.T, b *amqp.Broker, parts ...string) {
	t.Helper()
	brokertest.Eventually(t, "the reason "+strings.Join(parts, " … "), func() error {
		err := b.Ready()
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				return fmt.Errorf("Ready() = %w, want %q in it", err, part)
			}
		}
		return nil
	})
}

// newSubscribed returns a running broker with a subscription.
func newSubscribed(t *testing.T, cfg amqp.Config) (*amqp.Broker, *brokertest.EventCollector) {
	t.Helper()
	b := newBroker(t, cfg)
	brokertest.StartBroker(t, b)
	c := brokertest.StartCollector(t, b)
	brokertest.PublishUntilReceived(t, b, c)
	return b, c
}

func TestUnroutable(t *testing.T) {
	b := newBroker(t, amqp.Config{URL: settings.Secret(newServer(t).URL()), Topic: "unroutable"})
	brokertest.StartBroker(t, b)
	brokertest.WantReady(t, b)
	var work sync.WaitGroup
	for n := range 1000 {
		work.Go(func() {
			err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(n))
			if !errors.Is(err, broker.ErrUnroutable) || !errors.Is(err, broker.ErrRefused) {
				t.Errorf("Publish() = %v, want ErrUnroutable, a kind of ErrRefused", err)
			}
		})
	}
	work.Wait()
	err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1))
	for _, part := range []string{`"unroutable"`, `"com.redhat.hyperfleet.cluster.reconcile"`, "bind"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("Publish() = %v, want %s in it", err, part)
		}
	}
	l := brokertest.NewPublishLedger()
	c := brokertest.StartCollector(t, b)
	brokertest.PublishUntilReceived(t, b, c)
	l.RecordOutcome("event-00007", err)
	brokertest.WantReceivedAsReported(t, b, l, c)
}

// TestRouting checks that each type of exchange routes by the configured key.
func TestRouting(t *testing.T) {
	server := newServer(t)
	cases := map[string]struct {
		reason string
		cfg    amqp.Config
		want   bool
	}{
		"TopicAll":     {"a consumer on a topic exchange takes all by default", amqp.Config{ExchangeType: amqp.Topic}, true},
		"TopicPattern": {"the key is the event's type", amqp.Config{ExchangeType: amqp.Topic, BindingKey: "com.redhat.#"}, true},
		"TopicOther":   {"another pattern is not met", amqp.Config{ExchangeType: amqp.Topic, BindingKey: "org.*"}, false},
		"NoKey":        {"the empty key, as the public sentinel sends", amqp.Config{ExchangeType: amqp.Topic, RoutingKey: amqp.NoKey}, true},
		"NoKeyToType":  {"a queue bound with the empty key gets nothing with another", amqp.Config{ExchangeType: amqp.Topic, BindingKey: amqp.NoKey}, false},
		"Direct":       {"both use the key that is set", amqp.Config{ExchangeType: amqp.Direct, RoutingKey: "due"}, true},
		"Headers":      {"no arguments fit all headers", amqp.Config{ExchangeType: amqp.Headers}, true},
		"Quorum":       {"the queue's type can be chosen", amqp.Config{QueueType: "quorum"}, true},
		"Exchange":     {"the exchange's name wins over the topic", amqp.Config{Exchange: "routing-exchange"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := tc.cfg
			cfg.URL, cfg.Topic = settings.Secret(server.URL()), "routing-"+name
			if tc.want {
				newSubscribed(t, cfg)
				return
			}
			b := newBroker(t, cfg)
			brokertest.StartBroker(t, b)
			brokertest.StartCollector(t, b)
			brokertest.WantReady(t, b)
			if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1)); !errors.Is(err, broker.ErrUnroutable) {
				t.Errorf("%s: Publish() = %v, want ErrUnroutable", tc.reason, err)
			}
		})
	}
}

// TestMessage checks the properties that other clients and the server's tools read.
func TestMessage(t *testing.T) {
	server := newServer(t)
	for _, mode := range []cloudevent.Mode{cloudevent.Structured, cloudevent.Binary} {
		t.Run(string(mode), func(t *testing.T) {
			ch := newChannel(t, server)
			exchange := "message-" + string(mode)
			declareBounded(t, ch, exchange, 10)
			b := newBroker(t, amqp.Config{URL: settings.Secret(server.URL()), Topic: exchange, Mode: mode})
			brokertest.StartBroker(t, b)
			brokertest.WantReady(t, b)
			e := brokertest.NewEvent(1)
			if err := brokertest.PublishWithTimeout(t, b, e); err != nil {
				t.Fatal(err)
			}
			d, ok, err := ch.Get(exchange+"-collector", true)
			if err != nil || !ok {
				t.Fatalf("Get() = %v, %v, want the message", ok, err)
			}
			if d.DeliveryMode != amqp091.Persistent || d.MessageId != e.ID || d.Type != e.Type || d.RoutingKey != e.Type || d.Timestamp.Unix() != e.Time.Unix() {
				t.Errorf("message %+v, want it persistent, with id, type and time of the event", d)
			}
			wantType, wantBody := cloudevent.ContentType, string(e.AppendJSON(nil))
			if mode == cloudevent.Binary {
				wantType, wantBody = "application/json", string(e.Data)
				if d.Headers["cloudEvents:id"] != e.ID || d.Headers["cloudEvents:specversion"] != "1.0" {
					t.Errorf("headers %v, want the attributes", d.Headers)
				}
			}
			if d.ContentType != wantType || string(d.Body) != wantBody {
				t.Errorf("content type %q, body %s, want %q, %s", d.ContentType, d.Body, wantType, wantBody)
			}
		})
	}
}

// TestBlocked triggers the server's memory alarm, under which the server accepts nothing from
// publishing connections.
func TestBlocked(t *testing.T) {
	server := newServer(t)
	b, c := newSubscribed(t, amqp.Config{URL: settings.Secret(server.URL()), Topic: "blocked"})
	alarm(t, server, true)

	l := brokertest.NewPublishLedger()
	try := func(n int, bound time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		err := b.Publish(ctx, brokertest.NewEvent(n))
		l.RecordOutcome(brokertest.NewEvent(n).ID, err)
		return err
	}
	if err := try(1, time.Second); !errors.Is(err, context.DeadlineExceeded) { // this event may be what makes the server block the connection
		t.Errorf("Publish() = %v, want the end of its context", err)
	}
	wantReason(t, b, "blocked by the broker", "memory")
	if err := try(2, time.Second); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, broker.ErrUnknownOutcome) {
		t.Errorf("Publish() = %v, want the end of its context and nothing sent", err)
	}
	waits := make(chan error, 1)
	go func() { waits <- try(3, time.Minute) }()
	alarm(t, server, false)
	if err := <-waits; err != nil {
		t.Errorf("Publish() = %v, want nil: it waited until the server took events again", err)
	}
	brokertest.WantReady(t, b)
	brokertest.WantReceivedAsReported(t, b, l, c)
}

// TestStopWhileBlocked relies on the timeout that Start sets for stopping.
func TestStopWhileBlocked(t *testing.T) {
	server := newServer(t)
	b := newBroker(t, amqp.Config{URL: settings.Secret(server.URL()), Topic: "stop-blocked"})
	stop := brokertest.StartBroker(t, b)
	brokertest.PublishUntilReceived(t, b, brokertest.StartCollector(t, b))
	alarm(t, server, true)
	defer alarm(t, server, false)
	var work sync.WaitGroup
	for n := range 200 {
		work.Go(func() {
			if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(n+1)); err == nil {
				t.Error("Publish() = nil, want an error: the server takes nothing")
			}
		})
	}
	wantReason(t, b, "blocked by the broker")
	stop()
	work.Wait()
}

func alarm(t *testing.T, server *rabbitmq.Server, on bool) {
	t.Helper()
	mark := "0.4"
	if on {
		mark = "0"
	}
	if _, err := server.RunRabbitMQCtl(context.WithoutCancel(t.Context()), "set_vm_memory_high_watermark", mark); err != nil {
		t.Fatal(err)
	}
}

// TestExchangeOfAnotherType checks that Ready returns the reason and the remedy, and that the
// broker recovers once the exchange is gone.
func TestExchangeOfAnotherType(t *testing.T) {
	server := newServer(t)
	ch := newChannel(t, server)
	if err := ch.ExchangeDeclare("other-type", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	b := newBroker(t, amqp.Config{URL: settings.Secret(server.URL()), Topic: "other-type"})
	brokertest.StartBroker(t, b)
	wantReason(t, b, `"other-type"`, `"fanout"`, "exchange_type", "inequivalent arg 'type'")
	if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1)); !errors.Is(err, broker.ErrNotReady) {
		t.Errorf("Publish() = %v, want ErrNotReady", err)
	}
	if err := ch.ExchangeDelete("other-type", false, false); err != nil {
		t.Fatal(err)
	}
	brokertest.WantReady(t, b)
}

func TestExchangeDeletedWhileWePublish(t *testing.T) {
	server := newServer(t)
	b, c := newSubscribed(t, amqp.Config{URL: settings.Secret(server.URL()), Topic: "deleted"})
	ch := newChannel(t, server)
	if err := ch.ExchangeDelete("deleted", false, false); err != nil {
		t.Fatal(err)
	}
	if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1)); err == nil {
		t.Error("Publish() = nil, want an error: the exchange is gone")
	}
	if _, err := ch.QueueDelete("deleted-collector", false, false, false); err != nil {
		t.Fatal(err)
	}
	// Both sides declare their objects again.
	brokertest.Eventually(t, "an event to come again", func() error {
		if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(2)); err != nil {
			return err
		}
		if _, ok := c.Get(brokertest.NewEvent(2).ID); !ok {
			return errors.New("it has not come")
		}
		return nil
	})
}

func TestRights(t *testing.T) {
	server := newServer(t)
	for _, args := range [][]string{
		{"add_user", "publisher", "secret"},
		{"set_permissions", "publisher", "", "^rights", ""},
	} {
		if _, err := server.RunRabbitMQCtl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	with := func(userinfo string) settings.Secret {
		return settings.Secret(strings.Replace(server.URL(), "guest:guest", userinfo, 1))
	}
	t.Run("ExchangeIsThere", func(t *testing.T) {
		declareBounded(t, newChannel(t, server), "rights-there", 10)
		b := newBroker(t, amqp.Config{URL: with("publisher:secret"), Topic: "rights-there"})
		brokertest.StartBroker(t, b)
		brokertest.WantReady(t, b)
		if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1)); err != nil {
			t.Errorf("Publish() = %v, want nil: who may not declare the exchange may use it", err)
		}
	})
	t.Run("ExchangeIsMissing", func(t *testing.T) {
		b := newBroker(t, amqp.Config{URL: with("publisher:secret"), Topic: "rights-missing"})
		brokertest.StartBroker(t, b)
		wantReason(t, b, `"rights-missing"`, `"publisher"`, "is not allowed to declare it")
	})
	t.Run("WrongPassword", func(t *testing.T) {
		b := newBroker(t, amqp.Config{URL: with("publisher:hunter2"), Topic: "rights"})
		brokertest.StartBroker(t, b)
		wantReason(t, b, "username or password not allowed")
		if text := b.Ready().Error(); strings.Contains(text, "hunter2") {
			t.Errorf("Ready() = %q shows the password", text)
		}
	})
	t.Run("NoVHost", func(t *testing.T) {
		b := newBroker(t, amqp.Config{URL: with("guest:guest"), VHost: "nowhere", Topic: "rights"})
		brokertest.StartBroker(t, b)
		wantReason(t, b, "no access to this vhost", "/nowhere")
	})
}

func TestConnectionsAreNamed(t *testing.T) {
	server := newServer(t)
	newSubscribed(t, amqp.Config{URL: settings.Secret(server.URL()), Topic: "named", ConnectionName: "sentinel-clusters"})
	out, err := server.RunRabbitMQCtl(t.Context(), "list_connections", "client_properties")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"sentinel-clusters"`, `"sentinel-clusters collector"`} {
		if !strings.Contains(out, want) {
			t.Errorf("list_connections lacks %s:\n%s", want, out)
		}
	}
}

// TestMessageThatIsNoEvent checks that a message that is not an event goes to the queue's
// dead-letter exchange.
func TestMessageThatIsNoEvent(t *testing.T) {
	server := newServer(t)
	ch := newChannel(t, server)
	if _, err := ch.QueueDeclare("dead-letters", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	args := amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead-letters"}
	if _, err := ch.QueueDeclare("poison-collector", true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	b, c := newSubscribed(t, amqp.Config{URL: settings.Secret(server.URL()), Topic: "poison"})
	for _, m := range []amqp091.Publishing{
		{ContentType: "text/plain", Body: []byte("hello")},
		{ContentType: cloudevent.ContentType, Body: []byte(`{"specversion":"1.0"}`)},
	} {
		if err := ch.PublishWithContext(t.Context(), "poison", "", false, false, m); err != nil {
			t.Fatal(err)
		}
	}
	brokertest.Eventually(t, "the dead letters", func() error {
		q, err := ch.QueueDeclarePassive("dead-letters", true, false, false, false, nil)
		if err == nil && q.Messages != 2 {
			err = fmt.Errorf("%d dead letters, want 2", q.Messages)
		}
		return err
	})
	brokertest.WantReceivedAsReported(t, b, brokertest.NewPublishLedger(), c)
}

// TestNativeTimestamp decodes the binding's native type, and the prefix without a colon, which
// other clients may write.
func TestNativeTimestamp(t *testing.T) {
	server := newServer(t)
	_, c := newSubscribed(t, amqp.Config{URL: settings.Secret(server.URL()), Topic: "native"})
	at := time.Date(2025, 10, 21, 12, 0, 0, 0, time.UTC)
	m := amqp091.Publishing{ContentType: "application/json", Body: []byte("{}"), Headers: amqp091.Table{
		"cloudEvents_specversion": "1.0", "cloudEvents_id": "native-1", "cloudEvents_type": "t", "cloudEvents_source": "/s", "cloudEvents_time": at,
	}}
	if err := newChannel(t, server).PublishWithContext(t.Context(), "native", "", false, false, m); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the event", func() error {
		e, ok := c.Get("native-1")
		if !ok || !e.Time.Equal(at) {
			return fmt.Errorf("got %+v", e)
		}
		return nil
	})
}
