package nats

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestConfig(t *testing.T) {
	cases := map[string]struct {
		reason string
		cfg    Config
		want   string // empty means accepted
	}{
		"Nothing":     {"something has to say where to", Config{}, "BROKER_URL"},
		"URL":         {"an address is enough", Config{URL: "nats://x"}, ""},
		"DottedTopic": {"a topic is a subject", Config{URL: "nats://x", Topic: "fleet.events"}, ""},
		"Topic":       {"a subject has no wildcards", Config{URL: "nats://x", Topic: "a.*"}, `topic "a.*"`},
		"Subject":     {"nor empty words", Config{URL: "nats://x", Subject: "a..b"}, `subject "a..b"`},
		"Stream":      {"a stream's name has no dots", Config{URL: "nats://x", Stream: "a.b"}, `stream "a.b"`},
		"Negative":    {"time does not run backwards", Config{URL: "nats://x", AckWait: -1}, "ack_wait"},
		"AckWait":     {"nobody could tell in time that work goes on", Config{URL: "nats://x", AckWait: 2}, "at least 100ms"},
		"Window":      {"the server refuses that", Config{URL: "nats://x", MaxAge: time.Minute, DuplicateWindow: time.Hour}, "duplicate_window"},
		"Replicas":    {"the server refuses that too", Config{URL: "nats://x", Replicas: 6}, "replicas is 6"},
		"Bounds":      {"less than nothing is no bound", Config{URL: "nats://x", MaxBytes: -1}, "must not be negative"},
		"Mode":        {"there are two modes", Config{URL: "nats://x", Mode: "xml"}, `event mode "xml"`},
		"Password":    {"it would be left out of what is sent", Config{URL: "nats://x", Password: "p"}, "BROKER_USERNAME"},
		"TLS":         {"files are looked at early", Config{URL: "nats://x", TLS: broker.TLS{CAFile: "/nowhere"}}, "/nowhere"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := New(tc.cfg, slog.New(slog.DiscardHandler))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: New() = %v, want an error with %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestSubjectOf checks that every type has a subject that the stream accepts.
func TestSubjectOf(t *testing.T) {
	cfg, err := Config{URL: "nats://x"}.withDefaultsValidated()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		eventType := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune(". *>a")))).Draw(t, "type")
		if s := cfg.subjectFor(eventType); !isPublishSubject(s) || !strings.HasPrefix(s, cfg.Topic+".") {
			t.Errorf("subjectOf(%q) = %q, which nobody can publish to", eventType, s)
		}
	})
	cfg.Subject = "one.for.all"
	if s := cfg.subjectFor("t"); s != "one.for.all" || cfg.newStreamSubjects()[0] != s {
		t.Errorf("subjectOf() = %q, want the configured one, and the stream to take it", s)
	}
}

func TestEscape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "value")
		escaped := escapeHeader(want)
		for _, c := range []byte(escaped) {
			if c <= ' ' || c >= 0x7f || c == '"' {
				t.Errorf("escape(%q) = %q, which has %q", want, escaped, c)
			}
		}
		if got := unescapeHeader(escaped); got != want {
			t.Errorf("unescape(escape(%q)) = %q", want, got)
		}
	})
	if got := unescapeHeader("100% plain"); got != "100% plain" {
		t.Errorf("unescape(%q) = %q, want it as it is", "100% plain", got)
	}
}

// TestDecodeWithoutHeaders decodes messages from before NATS had headers.
func TestDecodeWithoutHeaders(t *testing.T) {
	e, err := decodeMessage(nil, []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t"}`))
	if err != nil || e.ID != "1" {
		t.Errorf("decode() = %+v, %v, want the event", e, err)
	}
	e, err = decodeMessage(map[string][]string{"Content-Type": {"application/json"}, "Ce-Id": {"2"}, "CE-Type": {"t"}, "ce-source": {"/s"}, "ce-specversion": {"1.0"}}, []byte("{}"))
	if err != nil || e.ID != "2" {
		t.Errorf("decode() = %+v, %v, want the event, whatever the case of its headers", e, err)
	}
}

func TestSubscriptionNames(t *testing.T) {
	b, err := New(Config{URL: "nats://x"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a b", "a.b", "a>"} {
		if err := b.Consume(t.Context(), name, nil); err == nil {
			t.Errorf("Consume(%q) = nil, want an error: a durable consumer cannot have that name", name)
		}
	}
}

// TestSecretsFromFiles checks that every secret can come from a file. Otherwise a mounted secret
// would be ignored, and the error would appear only at the broker.
func TestSecretsFromFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("nats://x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, get := range map[string]func(Config) settings.Secret{
		"BROKER_URL_FILE":      func(c Config) settings.Secret { return c.URL },
		"BROKER_TOKEN_FILE":    func(c Config) settings.Secret { return c.Token },
		"BROKER_PASSWORD_FILE": func(c Config) settings.Secret { return c.Password },
	} {
		var cfg Config
		env := func(n string) (string, bool) { return file, n == name }
		if _, err := settings.Load(&cfg, settings.Source{Env: env}); err != nil {
			t.Fatal(err)
		}
		if got := get(cfg).Reveal(); got != "nats://x" {
			t.Errorf("%s: read %q", name, got)
		}
	}
}
