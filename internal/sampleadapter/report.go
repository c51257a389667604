package sampleadapter

import (
	"fmt"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A step is the next step of an adapter for a resource.
type step int

const (
	// stepWait means that the precondition is not met.
	stepWait step = iota
	// stepWork means that this generation still needs work.
	stepWork
	// stepConfirm means that this generation is done.
	stepConfirm
	// stepFinalize means that the resource is being deleted.
	stepFinalize
	// stepConfirmFinal means that the resource is being deleted, and that this adapter has nothing
	// left to clean up.
	stepConfirmFinal
)

// An outcome is the content of a report. Its text is a label of a metric.
type outcome string

const (
	outcomeAvailable outcome = "available"
	outcomeWaiting   outcome = "waiting"
	outcomeTransient outcome = "transient_error"
	outcomeFinalized outcome = "finalized"
)

// decideStep returns the next step of cfg's adapter for a resource, based on the last report of
// every adapter.
func decideStep(cfg Config, r v1.Resource, statuses []v1.AdapterStatus) step {
	switch {
	case r.DeletedTime != nil && hasReportedTrue(statuses, cfg.Name, v1.ConditionFinalized, r.Generation):
		return stepConfirmFinal
	case r.DeletedTime != nil:
		return stepFinalize
	case cfg.After != "" && !hasReportedTrue(statuses, cfg.After, v1.ConditionAvailable, r.Generation):
		return stepWait
	case hasReportedTrue(statuses, cfg.Name, v1.ConditionAvailable, r.Generation):
		return stepConfirm
	}
	return stepWork
}

// hasReportedTrue reports whether an adapter's last report is about this generation and its condition
// is true. A report on an older generation concerns another spec and is ignored.
func hasReportedTrue(statuses []v1.AdapterStatus, adapter, condition string, generation int64) bool {
	for _, s := range statuses {
		if s.Adapter != adapter || s.ObservedGeneration != generation {
			continue
		}
		for _, c := range s.Conditions {
			if c.Type == condition {
				return c.Status == v1.ConditionTrue
			}
		}
	}
	return false
}

// newReport returns the report of cfg's adapter on a generation.
func newReport(cfg Config, generation int64, now time.Time, o outcome) v1.Report {
	now = now.UTC()
	available, applied := conditions(cfg, o)
	report := v1.Report{
		Adapter:            cfg.Name,
		ObservedGeneration: generation,
		ObservedTime:       &now,
		Conditions: []v1.ReportCondition{available, applied, {
			Type: v1.ConditionHealth, Status: v1.ConditionTrue, Reason: "NoErrors", Message: "Adapter is healthy",
		}},
	}
	if o == outcomeFinalized {
		report.Conditions = append(report.Conditions, v1.ReportCondition{
			Type: v1.ConditionFinalized, Status: v1.ConditionTrue, Reason: "CleanupComplete", Message: "Cleanup is complete",
		})
	}
	return report
}

func conditions(cfg Config, o outcome) (available, applied v1.ReportCondition) {
	available = v1.ReportCondition{Type: v1.ConditionAvailable, Status: v1.ConditionFalse}
	applied = v1.ReportCondition{Type: v1.ConditionApplied, Status: v1.ConditionFalse}
	switch o {
	case outcomeAvailable:
		available.Status, available.Reason, available.Message = v1.ConditionTrue, "WorkSucceeded", cfg.Name+" is complete"
		applied.Status, applied.Reason, applied.Message = v1.ConditionTrue, "WorkApplied", cfg.Name+" was applied"
	case outcomeWaiting:
		available.Reason, available.Message = "PreconditionsNotMet", fmt.Sprintf("Waiting for %s to complete", cfg.After)
		applied.Reason, applied.Message = "PreconditionsNotMet", fmt.Sprintf("Waiting for %s adapter", cfg.After)
	case outcomeTransient:
		available.Reason, available.Message = "TransientError", cfg.Name+" failed; it is retried at the next event"
		applied.Status, applied.Reason, applied.Message = v1.ConditionTrue, "WorkApplied", cfg.Name+" was applied"
	case outcomeFinalized:
		available.Reason, available.Message = "Deleted", "Resource is being deleted"
		applied.Reason, applied.Message = "Deleted", cfg.Name+" was removed"
	}
	return available, applied
}
