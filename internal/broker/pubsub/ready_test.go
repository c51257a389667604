package pubsub

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// TestNoReasonAnyMore publishes while a connection is just being made, or let go
// of: there is none to publish on, and nothing is the matter.
func TestNoReasonAnyMore(t *testing.T) {
	b, err := New(Config{ProjectID: "p"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.status.Set(nil)
	err = b.Publish(t.Context(), &cloudevent.Event{ID: "1", Source: "s", Type: "t", Data: []byte("{}")})
	if !errors.Is(err, broker.ErrNotReady) || strings.Contains(err.Error(), "%!") {
		t.Errorf("Publish() = %v", err)
	}
}
