package operator

import (
	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
)

// NewChangeEvent converts a record to a change event.
func NewChangeEvent(node string, r v1alpha1.Record) changeevent.ChangeEvent {
	e := changeevent.ChangeEvent{
		Action: r.Action, NodeName: node, CheckName: r.Check, ErrorCodes: r.ErrorCodes, Agent: r.Agent, IsFatal: r.Fatal, Message: r.Message,
		Reason: r.Reason, Timestamp: r.At.Time, DryRun: r.DryRun, ID: r.ID, Outcome: r.Outcome, Session: r.Session, Source: r.Source,
	}
	if r.Object != "" {
		e.Details = map[string]string{"object": r.Object}
	}
	return e
}
