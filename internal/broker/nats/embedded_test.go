package nats_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func newEmbedded(t *testing.T, dir string) *nats.Broker {
	t.Helper()
	return newEmbeddedOn(t, natsserver.Config{Dir: dir})
}

func newEmbeddedOn(t *testing.T, cfg natsserver.Config) *nats.Broker {
	t.Helper()
	b, err := natsserver.NewBrokerStartingServerOnRun(cfg, nats.Config{StopTimeout: brokertest.StopTimeout}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wantReason waits until b returns its reason for not being ready.
func wantReason(t *testing.T, b *nats.Broker, parts ...string) {
	t.Helper()
	brokertest.Eventually(t, "the reason "+strings.Join(parts, " … "), func() error {
		err := b.Ready()
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				return errors.Join(errors.New("Ready() lacks "+part), err)
			}
		}
		return nil
	})
}

func TestEmbeddedKeepsEvents(t *testing.T) {
	dir := t.TempDir()
	b := newEmbedded(t, dir)
	stop := brokertest.StartBroker(t, b)
	brokertest.WantReady(t, b)
	for n := range 50 {
		if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(n)); err != nil {
			t.Fatal(err)
		}
	}
	stop()

	again := newEmbedded(t, dir)
	brokertest.StartBroker(t, again)
	brokertest.WantReady(t, again)
	l := brokertest.NewPublishLedger()
	for n := range 50 {
		l.RecordOutcome(brokertest.NewEvent(n).ID, nil)
	}
	brokertest.WantReceivedAsReported(t, again, l, brokertest.StartCollector(t, again))
}

func TestEmbeddedIsReachedByOthers(t *testing.T) {
	owner := newEmbedded(t, t.TempDir())
	brokertest.StartBroker(t, owner)
	brokertest.WantReady(t, owner)
	guest := newBroker(t, nats.Config{URL: settings.Secret(owner.URL())})
	brokertest.StartBroker(t, guest)
	brokertest.WantReady(t, guest)
	l := brokertest.NewPublishLedger()
	l.RecordOutcome(brokertest.NewEvent(1).ID, brokertest.PublishWithTimeout(t, guest, brokertest.NewEvent(1)))
	brokertest.WantReceivedAsReported(t, guest, l, brokertest.StartCollector(t, owner))
}

func TestEmbeddedFolderThatCannotBeUsed(t *testing.T) {
	locked := t.TempDir()
	owner := newEmbedded(t, locked)
	brokertest.StartBroker(t, owner)
	brokertest.WantReady(t, owner)

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		dir    string
		want   string
	}{
		"Locked": {"two servers on one folder would destroy it", locked, "directory in use by another process"},
		"File":   {"the error names the folder", file, file},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newEmbedded(t, tc.dir)
			err := b.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: Run() = %v, want an error with %q", tc.reason, err, tc.want)
			}
			if b.Ready() == nil {
				t.Errorf("%s: Ready() = nil, want the error", tc.reason)
			}
		})
	}
}

func TestEmbeddedTakesNoAddress(t *testing.T) {
	_, err := natsserver.NewBrokerStartingServerOnRun(natsserver.Config{Dir: t.TempDir()}, nats.Config{URL: "nats://x"}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "either an external or an embedded server") {
		t.Errorf("NewEmbeddedBroker() = %v, want an error: two places are one too many", err)
	}
}

func TestEmbeddedPortInUse(t *testing.T) {
	proxy := newProxy(t, "127.0.0.1:1")
	_, port, _ := strings.Cut(proxy.Addr(), ":")
	n := 0
	for _, c := range port {
		n = n*10 + int(c-'0')
	}
	b := newEmbeddedOn(t, natsserver.Config{Dir: t.TempDir(), Port: n})
	if err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("Run() = %v, want an error that says that the port is in use", err)
	}
}

// TestEmbeddedDamagedStream checks that damage is reported, and not hidden by a new, empty stream.
func TestEmbeddedDamagedStream(t *testing.T) {
	dir := t.TempDir()
	b := newEmbedded(t, dir)
	stop := brokertest.StartBroker(t, b)
	brokertest.WantReady(t, b)
	stop()
	meta, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "meta.inf"))
	if err != nil || len(meta) != 1 {
		t.Fatalf("found %v, %v, want the description of one stream", meta, err)
	}
	if err := os.WriteFile(meta[0], []byte("damage"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := newEmbedded(t, dir)
	brokertest.StartBroker(t, again)
	wantReason(t, again, "is corrupt", dir)
}

func TestPublishAgainIsStoredOnce(t *testing.T) {
	b := newEmbedded(t, t.TempDir())
	brokertest.StartBroker(t, b)
	brokertest.WantReady(t, b)
	for range 3 {
		if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1)); err != nil {
			t.Fatalf("Publish() = %v, want nil: the broker has the event", err)
		}
	}
	js := newJetStream(t, b.URL())
	stream, err := js.Stream(t.Context(), nats.DefaultTopic)
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("the stream has %d messages, want 1", n)
	}
}

// newJetStream returns a separate client.
func newJetStream(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	conn, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestStreamThatDoesNotFit(t *testing.T) {
	owner := newEmbedded(t, t.TempDir())
	brokertest.StartBroker(t, owner)
	brokertest.WantReady(t, owner)
	js := newJetStream(t, owner.URL())
	cases := map[string]struct {
		reason string
		stream jetstream.StreamConfig
		want   string
	}{
		"OtherSubject": {"our subject goes nowhere", jetstream.StreamConfig{Subjects: []string{"elsewhere"}}, "does not have the subject"},
		"NoAck":        {"nothing is ever confirmed", jetstream.StreamConfig{Subjects: []string{"noack.>"}, NoAck: true}, "no_ack"},
		"Interest":     {"it confirms what it drops", jetstream.StreamConfig{Subjects: []string{"interest.>"}, Retention: jetstream.InterestPolicy}, "does not store"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.stream.Name = strings.ToLower(name)
			if _, err := js.CreateStream(t.Context(), tc.stream); err != nil {
				t.Fatal(err)
			}
			b := newBroker(t, nats.Config{URL: settings.Secret(owner.URL()), Topic: tc.stream.Name, ConnectTimeout: 2e9})
			brokertest.StartBroker(t, b)
			wantReason(t, b, tc.want)
			if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1)); !errors.Is(err, broker.ErrNotReady) {
				t.Errorf("%s: Publish() = %v, want ErrNotReady", tc.reason, err)
			}
		})
	}
}

// TestStreamDeletedWhileWePublish checks that an event without a stream is reported as such, and
// that the stream is created again.
func TestStreamDeletedWhileWePublish(t *testing.T) {
	b := newEmbedded(t, t.TempDir())
	brokertest.StartBroker(t, b)
	brokertest.WantReady(t, b)
	if err := newJetStream(t, b.URL()).DeleteStream(t.Context(), nats.DefaultTopic); err != nil {
		t.Fatal(err)
	}
	// Or the broker has already noticed it.
	if err := brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1)); !errors.Is(err, broker.ErrUnroutable) && !errors.Is(err, broker.ErrNotReady) {
		t.Errorf("Publish() = %v, want ErrUnroutable or ErrNotReady", err)
	}
	brokertest.Eventually(t, "the stream to be created again", func() error {
		return brokertest.PublishWithTimeout(t, b, brokertest.NewEvent(1))
	})
}

// TestStreamDeletedWhileOthersListen checks that a deleted stream is noticed although another
// subscriber receives the events, so that the server does not report missing responders. Unanswered
// publications are removed.
func TestStreamDeletedWhileOthersListen(t *testing.T) {
	b := newEmbedded(t, t.TempDir())
	brokertest.StartBroker(t, b)
	brokertest.WantReady(t, b)
	conn, err := natsgo.Connect(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if _, err := conn.Subscribe(nats.DefaultTopic+".>", func(*natsgo.Msg) {}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := newJetStream(t, b.URL()).DeleteStream(t.Context(), nats.DefaultTopic); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the stream to be created again", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return b.Publish(ctx, brokertest.NewEvent(1))
	})
	if n := b.Unanswered(); n != 0 {
		t.Errorf("%d publications are still kept", n)
	}
}
