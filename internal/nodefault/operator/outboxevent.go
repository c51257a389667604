package operator

import (
	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
)

// NewChangeEvent converts a record to a change event.
func NewChangeEvent(node string, r v1alpha1.Record) changeevent.ChangeEvent {
	e := changeevent.ChangeEvent{
		ID:         r.ID,
		Source:     r.Source,
		Session:    r.Session,
		Action:     r.Action,
		Outcome:    r.Outcome,
		Reason:     r.Reason,
		DryRun:     r.DryRun,
		Timestamp:  r.At.Time,
		NodeName:   node,
		CheckName:  r.Check,
		ErrorCodes: r.ErrorCodes,
		Agent:      r.Agent,
		IsFatal:    r.Fatal,
		Message:    r.Message,
	}
	if r.Object != "" {
		e.Details = map[string]string{"object": r.Object}
	}
	return e
}
