package pubsub

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// TestNoReasonAnyMore publishes while a connection is being opened or closed: there is no
// connection, but Ready returns no reason.
func TestNoReasonAnyMore(t *testing.T) {
	b, err := New(Config{ProjectID: "p"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.status.SetNotReadyReason(nil)
	err = b.Publish(t.Context(), &cloudevent.Event{ID: "1", Source: "s", Type: "t", Data: []byte("{}")})
	if !errors.Is(err, broker.ErrNotReady) || strings.Contains(err.Error(), "%!") {
		t.Errorf("Publish() = %v", err)
	}
}

// TestWithoutCredentials checks that one log line names the missing credentials, however many
// attempts fail.
func TestWithoutCredentials(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none.json"))
	synctest.Test(t, func(t *testing.T) {
		var log processtest.Buffer
		b, err := New(Config{ProjectID: "p"}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 1 || !strings.Contains(lines[0], "GOOGLE_APPLICATION_CREDENTIALS") {
			t.Errorf("%d lines, want one that says where credentials are looked for:\n%s", len(lines), log.String())
		}
	})
}
