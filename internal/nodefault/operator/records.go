package operator

import (
	"context"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
)

// logAndCountNewRecords logs and counts the new records, once they are written.
func (r *reconciler) logAndCountNewRecords(
	ctx context.Context, before *v1alpha1.NodeFaultStatus, f *v1alpha1.NodeFault,
) {
	for i := range f.Status.History {
		record := &f.Status.History[i]
		if record.Sequence <= before.LastSequence {
			continue
		}
		r.metrics.actions.WithLabelValues(record.Action, outcomeLabel(record)).Inc()
		opened := f.Status.TriggeredBy
		if record.Action == changeevent.ActionCordon && !record.DryRun && opened != nil {
			r.metrics.toCordon.Observe(max(0, record.At.Sub(opened.DetectedAt.Time).Seconds()))
		}
		r.log.InfoContext(ctx, "node change recorded",
			"by", record.Source,
			"action", record.Action,
			"node", f.Name,
			"session", record.Session,
			"check", record.Check,
			"error_codes", record.ErrorCodes,
			"agent", record.Agent,
			"reason", record.Reason,
			"outcome", record.Outcome,
			"dry_run", record.DryRun,
			"change_id", record.ID,
		)
	}
	if before.Phase != f.Status.Phase {
		r.log.InfoContext(ctx, "node fault phase changed",
			"node", f.Name,
			"phase", string(f.Status.Phase),
			"previous_phase", string(before.Phase),
			"message", f.Status.Message,
		)
	}
}

func outcomeLabel(record *v1alpha1.Record) string {
	if record.DryRun {
		return "dry_run"
	}
	return record.Outcome
}
