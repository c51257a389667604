package amqp

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestConfigRefuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		cfg    Config
		want   string
	}{
		"Nothing":      {"something has to say where to", Config{}, "BROKER_URL, BROKER_HOST"},
		"Both":         {"two places are one too many", Config{URL: "amqp://x", Host: "y"}, "both set"},
		"URL":          {"a URL has a scheme of ours", Config{URL: "http://user:hunter2@x"}, "must be amqp://"}, //nolint:gosec // nobody has this password
		"Port":         {"a port has 16 bits", Config{Host: "x", Port: 70000}, "port is 70000"},
		"ExchangeType": {"the types are RabbitMQ's", Config{Host: "x", ExchangeType: "random"}, `exchange_type is "random"`},
		"QueueType":    {"so are the queues'", Config{Host: "x", QueueType: "stream"}, `queue_type is "stream"`},
		"LongKey":      {"AMQP has short strings", Config{Host: "x", RoutingKey: strings.Repeat("k", 256)}, "routing_key has 256 bytes"},
		"Negative":     {"time does not run backwards", Config{Host: "x", StopTimeout: -1}, "stop_timeout"},
		"Heartbeat":    {"a heartbeat is counted in seconds", Config{Host: "x", Heartbeat: time.Second}, "heartbeat"},
		"Concurrency":  {"somebody has to handle events", Config{Host: "x", Concurrency: -1}, "concurrency"},
		"Mode":         {"there are two modes", Config{Host: "x", Mode: "xml"}, `event mode "xml"`},
		"PlainTLS":     {"half of TLS is none", Config{URL: "amqp://x", TLS: broker.TLS{On: true}}, "amqps://"},
		"TLSFile":      {"files are looked at early", Config{Host: "x", TLS: broker.TLS{CAFile: "/nowhere"}}, "/nowhere"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := New(tc.cfg, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: New() = %v, want an error with %q", tc.reason, err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

func TestAddress(t *testing.T) {
	cases := map[string]struct {
		reason          string
		cfg             Config
		want, user, pwd string
	}{
		"Host":      {"defaults are RabbitMQ's", Config{Host: "rabbit"}, "amqp://rabbit:5672/", "guest", "guest"},
		"Pieces":    {"the environment gives pieces", Config{Host: "rabbit", Port: 5673, VHost: "fleet", Username: "u", Password: "p"}, "amqp://rabbit:5673/fleet", "u", "p"},
		"TLS":       {"TLS has a port of its own", Config{Host: "rabbit", TLS: broker.TLS{On: true}}, "amqps://rabbit:5671/", "guest", "guest"},
		"URL":       {"a URL has it all", Config{URL: "amqp://u:p@rabbit:5673/fleet"}, "amqp://rabbit:5673/fleet", "u", "p"},                         //nolint:gosec // nobody has this password
		"URLSeed":   {"a vhost is / where the path is", Config{URL: "amqp://guest:guest@rabbitmq:5672/"}, "amqp://rabbitmq:5672/", "guest", "guest"}, //nolint:gosec // nobody has this password
		"Password":  {"a password alone is the default user's", Config{Host: "rabbit", Password: "p"}, "amqp://rabbit:5672/", "guest", "p"},
		"URLsUser":  {"or that of the user in the URL", Config{URL: "amqp://u@rabbit", Password: "p"}, "amqp://rabbit:5672/", "u", "p"},
		"URLAndMap": {"credentials can come from a secret", Config{URL: "amqps://rabbit", Username: "u", Password: "p"}, "amqps://rabbit:5671/", "u", "p"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, addr, err := tc.cfg.withDefaultsValidated()
			if err != nil {
				t.Fatal(err)
			}
			if addr.String() != tc.want || addr.uri.Username != tc.user || addr.uri.Password != tc.pwd {
				t.Errorf("%s: address %s of %q:%q, want %s of %q:%q", tc.reason, addr, addr.uri.Username, addr.uri.Password, tc.want, tc.user, tc.pwd)
			}
		})
	}
}

func TestDefaultNames(t *testing.T) {
	cfg, _, err := Config{Host: "x"}.withDefaultsValidated()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Exchange != DefaultTopic || cfg.queueNameFor("dns") != "hyperfleet-events-dns" || cfg.routingKeyFor("t") != "t" || cfg.BindingKey != "" {
		t.Errorf("exchange %q, queue %q, key %q, binding %q", cfg.Exchange, cfg.queueNameFor("dns"), cfg.routingKeyFor("t"), cfg.BindingKey)
	}
}

func TestNamesThatAMQPCannotTake(t *testing.T) {
	b, err := New(Config{Host: "x"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", strings.Repeat("s", 255)} {
		if err := b.Consume(t.Context(), name, nil); err == nil {
			t.Errorf("Consume(%q) = nil, want an error", name)
		}
	}
}

// TestSecretsFromFiles checks that every secret can come from a file. Otherwise a mounted secret
// would be ignored, and the error would appear only at the broker.
func TestSecretsFromFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("amqp://rabbit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, get := range map[string]func(Config) settings.Secret{
		"BROKER_URL_FILE":      func(c Config) settings.Secret { return c.URL },
		"BROKER_PASSWORD_FILE": func(c Config) settings.Secret { return c.Password },
	} {
		var cfg Config
		env := func(n string) (string, bool) { return file, n == name }
		if _, err := settings.Load(&cfg, settings.Source{Env: env}); err != nil {
			t.Fatal(err)
		}
		if got := get(cfg).Reveal(); got != "amqp://rabbit" {
			t.Errorf("%s: read %q", name, got)
		}
	}
}
