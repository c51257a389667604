package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
	"github.com/fleetloop/fleetloop/internal/broker/pubsub"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),                             // started by an init function, never ends
		goleak.IgnoreTopFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).streamKeepAliveHandler"), // ends with its next tick, 30 s away at most
	)
}

// A fake is Google's fake server, behind a proxy.
type fake struct {
	server *pstest.Server
	proxy  *brokertest.FaultProxy
}

func newFake(t *testing.T, reactors ...pstest.ServerReactorOption) *fake {
	t.Helper()
	server := pstest.NewServer(reactors...)
	t.Cleanup(func() { _ = server.Close() })
	proxy, err := brokertest.StartFaultProxy(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return &fake{server, proxy}
}

func (f *fake) config() pubsub.Config {
	return pubsub.Config{
		ProjectID:       "hyperfleet-test",
		Topic:           "hyperfleet-events",
		EmulatorHost:    f.proxy.Addr(),
		StopTimeout:     brokertest.StopTimeout,
		ConnectTimeout:  2 * time.Second,
		RedeliveryDelay: 50 * time.Millisecond,
	}
}

// stored returns the published events, whether received or not. The fake delivers a hundred
// messages a second.
func (f *fake) stored() []cloudevent.Event {
	var events []cloudevent.Event
	for _, m := range f.server.Messages() {
		events = append(events, cloudevent.Event{ID: m.Attributes["ce-id"]})
	}
	return events
}

func newBroker(t *testing.T, cfg pubsub.Config) *pubsub.Broker {
	t.Helper()
	b, err := pubsub.New(cfg, brokertest.NewTestLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newSubscribed returns a running broker with a subscription.
func newSubscribed(t *testing.T, cfg pubsub.Config) (*pubsub.Broker, *brokertest.EventCollector) {
	t.Helper()
	b := newBroker(t, cfg)
	brokertest.StartBroker(t, b)
	c := brokertest.StartCollector(t, b)
	brokertest.PublishUntilReceived(t, b, c)
	return b, c
}

// wantReason waits until b returns its reason for not being ready.
func wantReason(t *testing.T, b *pubsub.Broker, parts ...string) {
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

// A reactor answers calls to the fake.
type reactor func(request any) (bool, any, error)

// React implements pstest.Reactor.
func (r reactor) React(request any) (handled bool, answer any, err error) { return r(request) }

// limit refuses more than n events.
func limit(n int) pstest.ServerReactorOption {
	return pstest.ServerReactorOption{FuncName: "Publish", Reactor: reactor(func(request any) (bool, any, error) {
		publish, ok := request.(*pubsubpb.PublishRequest)
		if n -= len(publish.GetMessages()); ok && n >= 0 {
			return false, nil, nil
		}
		return true, &pubsubpb.PublishResponse{}, status.Error(codes.ResourceExhausted, "the quota is used up")
	})}
}

// TestSuite kills the server as far as possible: the fake keeps its data in memory, so only its
// address goes away.
func TestSuite(t *testing.T) {
	brokertest.Run(t, func(t *testing.T) *brokertest.Bed {
		t.Helper()
		f := newFake(t)
		return &brokertest.Bed{
			Open: func(t *testing.T, mode cloudevent.Mode) brokertest.Broker {
				t.Helper()
				cfg := f.config()
				cfg.Mode = mode
				return newBroker(t, cfg)
			},
			OpenBounded: func(t *testing.T, n int) brokertest.Broker {
				t.Helper()
				f := newFake(t, limit(n))
				b := newBroker(t, f.config())
				stop := brokertest.StartConsumer(t, b, "collector", func(context.Context, cloudevent.Event) error { return errors.New("not yet") })
				brokertest.StartBroker(t, b)
				brokertest.WantReady(t, b) // there is a subscription now
				stop()
				next := newBroker(t, f.config())
				return next
			},
			Proxy:  f.proxy,
			Stored: f.stored,
			Kill: func(t *testing.T) {
				t.Helper()
				f.proxy.SetRefuseConnections(true)
				f.proxy.ResetConnections()
			},
			Restart: func(t *testing.T) {
				t.Helper()
				f.proxy.SetRefuseConnections(false)
			},
		}
	})
}

func TestMessage(t *testing.T) {
	for _, mode := range []cloudevent.Mode{cloudevent.Structured, cloudevent.Binary} {
		t.Run(string(mode), func(t *testing.T) {
			f := newFake(t)
			cfg := f.config()
			cfg.Mode, cfg.Ordering = mode, true
			b, _ := newSubscribed(t, cfg)
			f.server.ClearMessages()
			e := brokertest.NewEvent(1)
			if err := brokertest.PublishWithTimeout(t, b, e); err != nil {
				t.Fatal(err)
			}
			m := f.server.Messages()[0]
			for name, want := range map[string]string{"ce-id": e.ID, "ce-type": e.Type, "ce-source": e.Source, "ce-subject": e.Subject, "ce-specversion": "1.0", "ce-time": "2025-10-21T12:00:00.123456Z"} {
				if m.Attributes[name] != want {
					t.Errorf("attribute %s is %q, want %q", name, m.Attributes[name], want)
				}
			}
			wantType, wantBody := cloudevent.ContentType, string(e.AppendJSON(nil))
			if mode == cloudevent.Binary {
				wantType, wantBody = "application/json", string(e.Data)
			}
			if m.Attributes["content-type"] != wantType || string(m.Data) != wantBody {
				t.Errorf("content type %q, data %s, want %q, %s", m.Attributes["content-type"], m.Data, wantType, wantBody)
			}
			if m.OrderingKey != e.Subject {
				t.Errorf("ordering key %q, want the subject %q", m.OrderingKey, e.Subject)
			}
		})
	}
}

// TestBatches checks that concurrent events share requests.
func TestBatches(t *testing.T) {
	var mu sync.Mutex
	requests := 0
	f := newFake(t, pstest.ServerReactorOption{FuncName: "Publish", Reactor: reactor(func(any) (bool, any, error) {
		mu.Lock()
		defer mu.Unlock()
		requests++
		return false, nil, nil
	})})
	cfg := f.config()
	cfg.BatchDelay = 20 * time.Millisecond
	b, c := newSubscribed(t, cfg)
	before := requests
	l := brokertest.NewPublishLedger()
	const events = 300
	var work sync.WaitGroup
	for n := range events {
		work.Go(func() {
			l.RecordOutcome(brokertest.NewEvent(n+1).ID, brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(n+1)))
		})
	}
	work.Wait()
	mu.Lock()
	used := requests - before
	mu.Unlock()
	if used > events/10 {
		t.Errorf("%d events took %d requests, want 10 events in a request or more", events, used)
	}
	brokertest.WantReceivedAsReported(t, b, l, c)
}

// TestBadEventDoesNotSpoilItsBatch lets the service refuse a whole request because of one message.
func TestBadEventDoesNotSpoilItsBatch(t *testing.T) {
	f := newFake(t, pstest.ServerReactorOption{FuncName: "Publish", Reactor: reactor(func(request any) (bool, any, error) {
		if publish, ok := request.(*pubsubpb.PublishRequest); ok {
			for _, m := range publish.GetMessages() {
				if m.GetAttributes()["ce-id"] == brokertest.NewEvent(7).ID {
					return true, &pubsubpb.PublishResponse{}, status.Error(codes.InvalidArgument, "seven is unlucky")
				}
			}
		}
		return false, nil, nil
	})})
	cfg := f.config()
	cfg.BatchDelay = 50 * time.Millisecond
	b, c := newSubscribed(t, cfg)
	l := brokertest.NewPublishLedger()
	var work sync.WaitGroup
	for n := range 50 {
		work.Go(func() {
			err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(n))
			l.RecordOutcome(brokertest.NewEvent(n).ID, err)
			if bad := n == 7; bad != errors.Is(err, broker.ErrRefused) || !bad && err != nil {
				t.Errorf("Publish(%d) = %v, want an error for 7 alone", n, err)
			}
		})
	}
	work.Wait()
	brokertest.WantReceivedAsReported(t, b, l, c)
}

func TestTopicWithoutSubscription(t *testing.T) {
	f := newFake(t)
	b := newBroker(t, f.config())
	brokertest.StartBroker(t, b)
	wantReason(t, b, "has no subscription")
	if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1)); !errors.Is(err, broker.ErrNotReady) {
		t.Errorf("Publish() = %v, want ErrNotReady: the event would be lost", err)
	}
	brokertest.PublishUntilReceived(t, b, brokertest.StartCollector(t, b))
}

// TestLooks simulates the service's answers to checks of a topic.
func TestLooks(t *testing.T) {
	cases := map[string]struct {
		reason string
		call   string
		code   codes.Code
		want   string // empty means ready
	}{
		"MayNotLook":      {"who may publish need not look", "GetTopic", codes.PermissionDenied, ""},
		"MayNotList":      {"who may look need not list", "ListTopicSubscriptions", codes.PermissionDenied, ""},
		"Unauthenticated": {"wrong credentials are named", "GetTopic", codes.Unauthenticated, "credentials rejected"},
		"Unavailable":     {"an ill service is a reason", "GetTopic", codes.Unavailable, "not connected"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, pstest.WithErrorInjection(tc.call, tc.code, "injected"))
			if _, err := f.server.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/hyperfleet-test/topics/hyperfleet-events"}); err != nil {
				t.Fatal(err)
			}
			b := newBroker(t, f.config())
			brokertest.StartBroker(t, b)
			if tc.want != "" {
				wantReason(t, b, tc.want)
				return
			}
			brokertest.WantReady(t, b)
		})
	}
}

func TestTopicThatDoesNotExist(t *testing.T) {
	f := newFake(t, pstest.WithErrorInjection("CreateTopic", codes.PermissionDenied, "injected"))
	b := newBroker(t, f.config())
	brokertest.StartBroker(t, b)
	wantReason(t, b, "projects/hyperfleet-test/topics/hyperfleet-events", "does not exist")
}

func TestTopicGoesAwayAndComesBack(t *testing.T) {
	f := newFake(t)
	b, _ := newSubscribed(t, f.config())
	const topic = "projects/hyperfleet-test/topics/hyperfleet-events"
	if _, err := f.server.GServer.DeleteTopic(t.Context(), &pubsubpb.DeleteTopicRequest{Topic: topic}); err != nil {
		t.Fatal(err)
	}
	if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1)); !errors.Is(err, broker.ErrRefused) {
		t.Errorf("Publish() = %v, want ErrRefused", err)
	}
	brokertest.Eventually(t, "the emulator's topic to be made again", func() error {
		return brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1))
	})
}

func TestEventThatPubSubCannotTake(t *testing.T) {
	b, _ := newSubscribed(t, newFake(t).config())
	long := brokertest.NewEvent(1)
	long.Subject = strings.Repeat("s", 1025)
	large := brokertest.NewEvent(2)
	large.Data = []byte(`"` + strings.Repeat("x", 10<<20) + `"`)
	for name, e := range map[string]*cloudevent.Event{"attribute": long, "data": large} {
		if err := brokertest.PublishWithTimeout(t, b, e); !backoff.IsPermanent(err) {
			t.Errorf("Publish(too long %s) = %v, want a permanent error", name, err)
		}
	}
}

func TestMessageThatIsNoEvent(t *testing.T) {
	f := newFake(t)
	b, c := newSubscribed(t, f.config())
	id := f.server.Publish("projects/hyperfleet-test/topics/hyperfleet-events", []byte("hello"), nil)
	brokertest.Eventually(t, "the message to be settled", func() error {
		if m := f.server.Message(id); m == nil || m.Acks == 0 {
			return errors.New("not acknowledged")
		}
		return nil
	})
	brokertest.WantReceivedAsReported(t, b, brokertest.NewPublishLedger(), c)
}

// TestSubscriptionOfAnotherTopic subscribes with a name that another topic uses.
func TestSubscriptionOfAnotherTopic(t *testing.T) {
	f := newFake(t)
	const project = "projects/hyperfleet-test/"
	if _, err := f.server.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: project + "topics/other"}); err != nil {
		t.Fatal(err)
	}
	other := &pubsubpb.Subscription{Name: project + "subscriptions/second", Topic: project + "topics/other", AckDeadlineSeconds: 10}
	if _, err := f.server.GServer.CreateSubscription(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	b, _ := newSubscribed(t, f.config())
	brokertest.StartConsumer(t, b, "second", func(context.Context, cloudevent.Event) error { return nil })
	brokertest.WantSubscriptionReason(t, b, "second", "belongs to topic")
	if _, err := f.server.GServer.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: other.GetName()}); err != nil {
		t.Fatal(err)
	}
	brokertest.WantSubscriptionReady(t, b, "second")
}

func TestConfig(t *testing.T) {
	cases := map[string]struct {
		reason string
		cfg    pubsub.Config
		want   string
	}{
		"NoProject":  {"a topic lives in a project", pubsub.Config{}, "BROKER_PROJECT_ID"},
		"BadTopic":   {"the service has rules for names", pubsub.Config{ProjectID: "p", Topic: "1"}, `topic "1"`},
		"HalfName":   {"a full name is whole", pubsub.Config{ProjectID: "p", Topic: "projects/x/events"}, `topic "projects/x/events"`},
		"FullName":   {"a topic may be in another project", pubsub.Config{ProjectID: "p", Topic: "projects/x/topics/events"}, ""},
		"Goog":       {"the service keeps that prefix", pubsub.Config{ProjectID: "p", Topic: "google"}, `topic "google"`},
		"BatchCount": {"the service's limit is 1000", pubsub.Config{ProjectID: "p", BatchCount: 1001}, "batch_count is 1001"},
		"BatchBytes": {"the service's limit is 10 MB", pubsub.Config{ProjectID: "p", BatchBytes: 10 << 20}, "batch_bytes"},
		"Negative":   {"time does not run backwards", pubsub.Config{ProjectID: "p", StopTimeout: -1}, "stop_timeout"},
		"Mode":       {"there are two modes", pubsub.Config{ProjectID: "p", Mode: "xml"}, `event mode "xml"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := pubsub.New(tc.cfg, brokertest.NewTestLogger(t))
			if tc.want == "" {
				if err != nil {
					t.Errorf("%s: New() = %v, want nil", tc.reason, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: New() = %v, want an error with %q", tc.reason, err, tc.want)
			}
		})
	}
}
