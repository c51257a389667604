package hosts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fleetloop/fleetloop/internal/console"
)

// An AuditEvent is an event of an execution's audit.
type AuditEvent struct {
	Position int64     `json:"position"` // in the chain of all events
	At       time.Time `json:"at"`
	Type     string    `json:"type"`
	Actor    string    `json:"actor"`
	Outcome  string    `json:"outcome,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	PlanHash string    `json:"plan_hash,omitempty"`
}

// MaxAuditEvents limits the events of an answer. An execution has far fewer.
const MaxAuditEvents = 500

// ReadAuditFunc returns the newest audit events of an execution, the newest first, at most
// MaxAuditEvents.
type ReadAuditFunc func(ctx context.Context, executionUID string) ([]AuditEvent, error)

var errNoAudit = errors.New("the console is not connected to the audit of this host cluster")

// serveAuditEvents serves the audit events of an execution that the person may get. They are selected by UID,
// because host clusters can share a database.
func (h *Host) serveAuditEvents(w http.ResponseWriter, r *http.Request) error {
	ke, err := h.getExecutionIfAllowed(r)
	if err != nil {
		return err
	}
	if h.deps.ReadAudit == nil {
		return errNoAudit
	}
	answer := page[AuditEvent]{Items: []AuditEvent{}, AsOf: time.Now().UTC()}
	events, err := h.deps.ReadAudit(r.Context(), string(ke.UID))
	if err != nil {
		return fmt.Errorf("%w: %w", errAuditUnavailable, err)
	}
	answer.Items = append(answer.Items, events...)
	console.WriteJSON(w, http.StatusOK, answer)
	return nil
}

var errAuditUnavailable = errors.New("read the audit")
