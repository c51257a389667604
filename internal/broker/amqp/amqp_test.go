package amqp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest/rabbitmq"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shared is the server of all tests of this package. It ends with the process.
var shared struct {
	once   sync.Once
	server *rabbitmq.Server
	err    error
}

func newServer(t *testing.T) *rabbitmq.Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = rabbitmq.Start(t.Context(), rabbitmq.Options{}) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// newProxy returns a proxy for addr until the end of the test.
func newProxy(t *testing.T, addr string) *brokertest.FaultProxy {
	t.Helper()
	proxy, err := brokertest.StartFaultProxy(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

func newBroker(t *testing.T, cfg amqp.Config) *amqp.Broker {
	t.Helper()
	cfg.StopTimeout = brokertest.StopTimeout
	b, err := amqp.New(cfg, brokertest.NewTestLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newChannel returns a separate client.
func newChannel(t *testing.T, server *rabbitmq.Server) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func TestSuite(t *testing.T) {
	server := newServer(t)
	n := 0
	brokertest.Run(t, func(t *testing.T) *brokertest.Bed {
		t.Helper()
		n++
		proxy := newProxy(t, server.Addr())
		cfg := amqp.Config{
			URL:             settings.Secret("amqp://guest:guest@" + proxy.Addr() + "/"),
			Topic:           fmt.Sprintf("suite-%d", n),
			RedeliveryDelay: 50 * time.Millisecond,
		}
		return &brokertest.Bed{
			Open: func(t *testing.T, mode cloudevent.Mode) brokertest.Broker {
				t.Helper()
				cfg := cfg
				cfg.Mode = mode
				return newBroker(t, cfg)
			},
			OpenBounded: func(t *testing.T, n int) brokertest.Broker {
				t.Helper()
				declareBounded(t, newChannel(t, server), cfg.Topic, n)
				return newBroker(t, cfg)
			},
			Proxy: proxy,
			Kill: func(t *testing.T) {
				t.Helper()
				if err := server.Kill(); err != nil {
					t.Error(err)
				}
			},
			Restart: func(t *testing.T) {
				t.Helper()
				if err := server.Restart(t.Context()); err != nil {
					t.Error(err)
				}
			},
		}
	})
}

// declareBounded declares a queue that accepts n events and refuses more.
func declareBounded(t *testing.T, ch *amqp091.Channel, exchange string, n int) {
	t.Helper()
	if err := ch.ExchangeDeclare(exchange, "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	args := amqp091.Table{"x-max-length": n, "x-overflow": "reject-publish"}
	if _, err := ch.QueueDeclare(exchange+"-collector", true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind(exchange+"-collector", "", exchange, false, nil); err != nil {
		t.Fatal(err)
	}
}

// TestQueueOfAnotherConnection subscribes to a queue that another connection declared as its own.
func TestQueueOfAnotherConnection(t *testing.T) {
	server := newServer(t)
	ch := newChannel(t, server)
	const durable, autoDelete, exclusive = false, false, true
	if _, err := ch.QueueDeclare("owned-queue", durable, autoDelete, exclusive, false, nil); err != nil {
		t.Fatal(err)
	}
	b := newBroker(t, amqp.Config{URL: settings.Secret(server.URL()), Topic: "owned"})
	brokertest.StartBroker(t, b)
	brokertest.StartConsumer(t, b, "queue", func(context.Context, cloudevent.Event) error { return nil })
	brokertest.WantReady(t, b)
	brokertest.WantSubscriptionReason(t, b, "queue", "owned-queue")
	if _, err := ch.QueueDelete("owned-queue", false, false, false); err != nil {
		t.Fatal(err)
	}
	brokertest.WantSubscriptionReady(t, b, "queue")
}
