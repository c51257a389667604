package executionapp

import (
	"context"
	"log/slog"
	"maps"
	"strings"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// changeLogger logs changes.
type changeLogger struct{ log *slog.Logger }

// Record writes one line.
func (l changeLogger) Record(ctx context.Context, c execution.Change) {
	l.log.InfoContext(ctx, "change",
		"by", changeevent.SourceExecutionController,
		"action", string(c.Action),
		"execution", c.Execution,
		"uid", c.UID,
		"does", c.Does,
		"target_kind", c.Target.Kind,
		"target_namespace", c.Target.Namespace,
		"target_name", c.Target.Name,
		"who", c.By,
		"agent", c.Agent,
		"dry_run", c.DryRun,
		"reason", c.Reason,
		"message", c.Message,
	)
}

// toChangeEvent converts a change to a change event. The UID of the execution, the action and the time
// make the ID. The time is stored with the change, so an event that is sent again has the same ID.
// A second approval, as after a gap of the admission policies, has another one.
func toChangeEvent(c execution.Change, cluster string) changeevent.ChangeEvent {
	namespace, name, ok := strings.Cut(c.Execution, "/")
	if !ok {
		namespace, name = "", c.Execution
	}
	e := changeevent.ChangeEvent{
		Action:    string(c.Action),
		Source:    changeevent.SourceExecutionController,
		Cluster:   cluster,
		Subject:   "executions/" + name,
		Reason:    formatChangeReason(c),
		Outcome:   changeevent.OutcomeSucceeded,
		DryRun:    c.DryRun,
		Session:   c.UID,
		Timestamp: c.At,
	}
	if c.Action == execution.ChangeFailed {
		e.Outcome = changeevent.OutcomeFailed
	}
	if c.Target.Kind == "Node" {
		e.NodeName = c.Target.Name
	}
	e.ID = changeevent.ID(e)
	details := map[string]string{
		"action":           c.Does,
		"target":           formatTarget(c.Target),
		"actor":            c.By,
		"requestedByAgent": c.Agent,
		"namespace":        namespace,
	}
	maps.DeleteFunc(details, func(_, value string) bool { return value == "" })
	e.Details = details
	return e
}

// formatChangeReason returns the reason in words. A failure has a reason and a message; any other change has
// the reason of a state that is over.
func formatChangeReason(c execution.Change) string {
	if c.Action != execution.ChangeFailed || c.Reason == "" {
		return c.Message
	}
	if c.Message == "" {
		return c.Reason
	}
	return c.Reason + ": " + c.Message
}

// formatTarget returns Kind/namespace/name without the parts that are empty.
func formatTarget(t v1alpha1.PlanTarget) string {
	var parts []string
	for _, part := range []string{t.Kind, t.Namespace, t.Name} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}
