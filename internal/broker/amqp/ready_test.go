package amqp

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// TestNoReasonAnyMore publishes while a connection is being opened or closed: there is no
// connection, but Ready returns no reason.
func TestNoReasonAnyMore(t *testing.T) {
	b, err := New(Config{Host: "x"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.status.SetNotReadyReason(nil)
	err = b.Publish(t.Context(), &cloudevent.Event{ID: "1", Source: "s", Type: "t", Data: []byte("{}")})
	if !errors.Is(err, broker.ErrNotReady) || strings.Contains(err.Error(), "%!") {
		t.Errorf("Publish() = %v", err)
	}
}
