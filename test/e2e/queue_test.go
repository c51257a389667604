package e2e

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go" //nolint:depguard // reads the queue as other teams' adapters do; our own adapter must not vouch for itself

	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// A received is a cloud event as it came out of a queue.
type received struct {
	cloudevent.Event
	data     map[string]any
	delivery amqp091.Delivery
}

// str is a text in the event's data.
func (r received) str(key string) string {
	s, _ := r.data[key].(string)
	return s
}

// A queue holds all that came out of a RabbitMQ queue so far.
type queue struct {
	name string

	mu     sync.Mutex
	events []received
	bad    []error
}

// A binding says which queue to read and how it is bound.
type binding struct {
	url          string
	exchange     string
	exchangeType string // empty is fanout
	queue        string
	key          string
}

// declareQueue makes a durable queue and binds it.
func declareQueue(t *testing.T, b binding) (*amqp091.Connection, *amqp091.Channel) {
	t.Helper()
	if b.exchangeType == "" {
		b.exchangeType = "fanout"
	}
	conn, err := amqp091.Dial(b.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the server may be gone
	ch, err := conn.Channel()
	if err == nil {
		err = ch.ExchangeDeclare(b.exchange, b.exchangeType, true, false, false, false, nil)
	}
	if err == nil {
		_, err = ch.QueueDeclare(b.queue, true, false, false, false, nil)
	}
	if err == nil {
		err = ch.QueueBind(b.queue, b.key, b.exchange, false, nil)
	}
	if err != nil {
		t.Fatalf("declare queue %q: %v", b.queue, err)
	}
	return conn, ch
}

// openQueue makes a durable queue, binds it and reads it until the test ends
// or the server goes away.
func openQueue(t *testing.T, b binding) *queue {
	t.Helper()
	conn, ch := declareQueue(t, b)
	deliveries, err := ch.ConsumeWithContext(t.Context(), b.queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatalf("consume %q: %v", b.queue, err)
	}
	q := &queue{name: b.queue}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for d := range deliveries {
			q.take(d)
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-read
		for _, err := range q.bad {
			t.Errorf("queue %q: %v", q.name, err)
		}
	})
	return q
}

// take reads one message in either mode.
func (q *queue) take(d amqp091.Delivery) {
	e, err := cloudevent.Decode(d.ContentType, func(name string) (string, bool) {
		s, ok := d.Headers["cloudEvents:"+name].(string)
		return s, ok
	}, d.Body)
	r := received{Event: e, delivery: d}
	if err == nil {
		err = json.Unmarshal(e.Data, &r.data)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.bad = append(q.bad, fmt.Errorf("message %q: %w", d.Body, err))
		return
	}
	q.events = append(q.events, r)
}

// all gives the events so far, in their order.
func (q *queue) all() []received {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]received(nil), q.events...)
}

// of gives the events about one resource.
func (q *queue) of(id string) []received {
	var out []received
	for _, e := range q.all() {
		if e.Subject == id {
			out = append(out, e)
		}
	}
	return out
}

// wantEvents waits until there are at least n events about a resource.
func (q *queue) wantEvents(t *testing.T, id string, n int, within time.Duration) []received {
	t.Helper()
	var got []received
	eventually(t, within, func() error {
		if got = q.of(id); len(got) < n {
			return fmt.Errorf("%d cloud events about %s, want %d", len(got), id, n)
		}
		return nil
	})
	return got
}
