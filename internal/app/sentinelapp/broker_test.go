package sentinelapp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func newLookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

// TestOpen opens each kind of broker from the environment, in both spellings.
func TestOpen(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		env    map[string]string
		want   sentinelapp.BrokerType
	}{
		"RabbitMQ": {
			"the specification's settings, an adapter's among them",
			map[string]string{
				"BROKER_TYPE": "rabbitmq", "BROKER_HOST": "127.0.0.1", "BROKER_PORT": "1", "BROKER_VHOST": "/",
				"BROKER_EXCHANGE": "e", "BROKER_EXCHANGE_TYPE": "fanout", "BROKER_SUBSCRIPTION_ID": "of an adapter",
			},
			sentinelapp.RabbitMQ,
		},
		"PubSub":     {"the short spelling", map[string]string{"BROKER_TYPE": "pubsub", "BROKER_PROJECT_ID": "p"}, sentinelapp.PubSub},
		"GCPPubSub":  {"the long one is the same", map[string]string{"BROKER_TYPE": "gcp-pubsub", "BROKER_PROJECT_ID": "p"}, sentinelapp.PubSub},
		"NATS":       {"elsewhere", map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://127.0.0.1:1"}, sentinelapp.NATS},
		"NATSOthers": {"settings of other brokers do not matter", map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://127.0.0.1:1", "BROKER_PROJECT_ID": "p"}, sentinelapp.NATS},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := sentinelapp.LoadBrokerConfig(newLookup(tc.env))
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			b, err := cfg.BuildBroker(slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if cfg.Type() != tc.want || b.Type != tc.want {
				t.Errorf("%s: type %q and %q, want %q", tc.reason, cfg.Type(), b.Type, tc.want)
			}
			if b.Ready() == nil || b.Part().Ready() == nil {
				t.Error("it is ready although it never connected")
			}
			if len(cfg.Reports()) != 2 || cfg.Reports()[0].Origins()[0].Value != string(tc.want) {
				t.Errorf("want a report of the choice and one of its settings, got %d", len(cfg.Reports()))
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for _, env := range []map[string]string{nil, {"BROKER_TYPE": ""}, {"BROKER_HOST": "h"}} {
		if _, err := sentinelapp.LoadBrokerConfig(newLookup(env)); !errors.Is(err, sentinelapp.ErrNoBrokerType) {
			t.Errorf("%v: got %v, want %v", env, err, sentinelapp.ErrNoBrokerType)
		}
	}
	cases := map[string]struct {
		reason string
		env    map[string]string
		want   []string
	}{
		"Unknown":   {"names it and what there is", map[string]string{"BROKER_TYPE": "kafka"}, []string{"BROKER_TYPE", `"kafka"`, "rabbitmq", "pubsub", "gcp-pubsub", "nats"}},
		"UpperCase": {"names are as they are written", map[string]string{"BROKER_TYPE": "RabbitMQ"}, []string{`"RabbitMQ"`}},
		"Port":      {"names the variable", map[string]string{"BROKER_TYPE": "rabbitmq", "BROKER_PORT": "x"}, []string{"BROKER_PORT"}},
		"NoHost":    {"says what is missing", map[string]string{"BROKER_TYPE": "rabbitmq"}, []string{"open broker rabbitmq", "host"}},
		"NoProject": {"says what is missing", map[string]string{"BROKER_TYPE": "pubsub"}, []string{"open broker gcp-pubsub", "project_id"}},
		"NoURL":     {"says what is missing", map[string]string{"BROKER_TYPE": "nats"}, []string{"open broker nats", "url"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := sentinelapp.LoadBrokerConfig(newLookup(tc.env))
			if err == nil {
				_, err = cfg.BuildBroker(slog.New(slog.DiscardHandler))
			}
			if err == nil {
				t.Fatalf("%s: got no error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the error lacks %q: %v", tc.reason, want, err)
				}
			}
		})
	}
}

func TestSecretsStayInReports(t *testing.T) {
	t.Parallel()
	const secret = "canary"
	cfg, err := sentinelapp.LoadBrokerConfig(newLookup(map[string]string{
		"BROKER_TYPE": "rabbitmq", "BROKER_HOST": "h", "BROKER_USERNAME": "u", "BROKER_PASSWORD": secret,
	}))
	if err != nil {
		t.Fatal(err)
	}
	hidden := false
	for _, r := range cfg.Reports() {
		var out strings.Builder
		if err := r.WriteYAML(&out, true); err != nil {
			t.Fatal(err)
		}
		hidden = hidden || strings.Contains(out.String(), "password: '***' # env BROKER_PASSWORD")
		if strings.Contains(out.String(), secret) {
			t.Errorf("the password is shown:\n%s", out.String())
		}
	}
	if !hidden {
		t.Error("no report has the password's line")
	}
}

// A fake is a broker that was opened elsewhere.
type fake struct{ err error }

func (f fake) Run(context.Context) error                        { return f.err }
func (f fake) Ready() error                                     { return f.err }
func (f fake) Publish(context.Context, *cloudevent.Event) error { return f.err }
func (f fake) InFlight() int                                    { return 0 }
func (f fake) Consume(context.Context, string, func(context.Context, cloudevent.Event) error) error {
	return f.err
}

func TestNew(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	b := sentinelapp.NewBroker(sentinelapp.NATS, fake{boom})
	p := b.Part()
	if b.Type != sentinelapp.NATS || p.Name != "broker" || !errors.Is(p.Ready(), boom) || !errors.Is(p.Run(t.Context()), boom) {
		t.Errorf("a broker of type %q with the part %q does not pass on what its broker says", b.Type, p.Name)
	}
}

// TestTypeReadsItself verifies that the text of a type can be parsed again.
func TestTypeReadsItself(t *testing.T) {
	t.Parallel()
	for _, want := range []sentinelapp.BrokerType{sentinelapp.RabbitMQ, sentinelapp.PubSub, sentinelapp.NATS} {
		var c sentinelapp.BrokerChoice
		if _, err := settings.Load(&c, settings.Source{Env: newLookup(map[string]string{"BROKER_TYPE": string(want)})}); err != nil || c.Type != want {
			t.Errorf("%q is read as %q: %v", want, c.Type, err)
		}
	}
}

// TestLoadExplicit verifies that given settings override the environment. A given address replaces
// all address variables, and the environment supplies the rest.
func TestLoadExplicit(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"BROKER_TYPE": "kafka", "BROKER_HOST": "elsewhere", "BROKER_PORT": "1", "BROKER_USERNAME": "u", "BROKER_PASSWORD": "canary",
		"BROKER_TOPIC": "of-the-environment", "BROKER_PROJECT_ID": "p", "BROKER_EXCHANGE_TYPE": "topic",
	}
	cases := map[string]struct {
		reason string
		given  sentinelapp.ExplicitBroker
		want   string // in the error; empty opens
	}{
		"RabbitMQ":      {"the given address replaces host and port", sentinelapp.ExplicitBroker{Type: sentinelapp.RabbitMQ, Topic: "t", URL: "amqp://a:b@127.0.0.1:1/"}, ""}, //nolint:gosec // no secret
		"RabbitMQByEnv": {"the whole address comes from the environment", sentinelapp.ExplicitBroker{Type: sentinelapp.RabbitMQ, Topic: "t"}, ""},
		"BadAddress":    {"the error does not show the address", sentinelapp.ExplicitBroker{Type: sentinelapp.RabbitMQ, URL: "canary"}, "open broker rabbitmq"},
		"NATS":          {"the given address is used", sentinelapp.ExplicitBroker{Type: sentinelapp.NATS, Topic: "t", URL: "nats://127.0.0.1:1"}, ""},
		"NATSNoAddress": {"BROKER_HOST does not apply to NATS", sentinelapp.ExplicitBroker{Type: sentinelapp.NATS, Topic: "t"}, "url is required"},
		"PubSub":        {"the project comes from the environment", sentinelapp.ExplicitBroker{Type: sentinelapp.PubSub, Topic: "hyperfleet-events", KeyJSON: "{}"}, ""},
		"BadTopic":      {"the given topic is used", sentinelapp.ExplicitBroker{Type: sentinelapp.PubSub, Topic: "x"}, `topic "x"`},
		"Unknown":       {"the type does not exist", sentinelapp.ExplicitBroker{Type: "kafka"}, `unknown broker type "kafka"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := sentinelapp.LoadExplicitBrokerConfig(tc.given, newLookup(env))
			var b *sentinelapp.Broker
			if err == nil {
				b, err = cfg.BuildBroker(slog.New(slog.DiscardHandler))
			}
			switch {
			case tc.want == "" && (err != nil || b.Type != tc.given.Type || cfg.Type() != tc.given.Type):
				t.Errorf("%s: %v", tc.reason, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "canary")):
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// scripted is a broker with scripted responses.
type scripted struct {
	notReady error
	answer   func() error
}

func (s *scripted) Run(context.Context) error { return nil }
func (s *scripted) Ready() error              { return s.notReady }
func (s *scripted) InFlight() int             { return 0 }

func (s *scripted) Publish(context.Context, *cloudevent.Event) error { return s.answer() }

func (s *scripted) Consume(context.Context, string, func(context.Context, cloudevent.Event) error) error {
	return nil
}

// TestReadyFollowsPublishing holds which outcome makes a broker ready or not.
func TestReadyFollowsPublishing(t *testing.T) {
	t.Parallel()
	client := &scripted{}
	b := sentinelapp.NewBroker(sentinelapp.RabbitMQ, client)
	publish := func(ctx context.Context, err error) {
		t.Helper()
		client.answer = func() error { return err }
		if got := b.Publish(ctx, &cloudevent.Event{}); !errors.Is(got, err) {
			t.Fatalf("Publish() = %v, want %v", got, err)
		}
	}
	wantReady := func(when string, want error) {
		t.Helper()
		if got := b.Ready(); !errors.Is(got, want) || got != nil && want == nil {
			t.Errorf("%s: Ready() = %v, want %v", when, got, want)
		}
	}
	refused := fmt.Errorf("%w: too many", broker.ErrRefused)

	wantReady("nothing was tried", nil)
	publish(t.Context(), refused)
	wantReady("the last attempt failed", broker.ErrRefused)
	client.notReady = broker.ErrNotReady
	wantReady("there is no connection", broker.ErrNotReady)
	client.notReady = nil
	publish(t.Context(), nil)
	wantReady("an event was confirmed", nil)

	publish(t.Context(), broker.ErrNotReady)
	wantReady("there was no connection for a moment", nil)
	publish(t.Context(), backoff.Permanent(refused))
	wantReady("the event was unfit", nil)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	publish(stopped, refused)
	wantReady("the sentinel stopped", nil)

	// Another event is confirmed while one fails.
	client.answer = func() error {
		publish(t.Context(), nil)
		return refused
	}
	if err := b.Publish(t.Context(), &cloudevent.Event{}); !errors.Is(err, broker.ErrRefused) {
		t.Fatal(err)
	}
	wantReady("the broker took another event meanwhile", nil)
}
