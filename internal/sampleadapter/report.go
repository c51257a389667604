package sampleadapter

import (
	"fmt"

	"github.com/fleetloop/fleetloop/adapter"
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

// Reasons of the condition Available.
const (
	reasonWaiting   = "PreconditionsNotMet"
	reasonTransient = "TransientError"
	reasonDeleted   = "Deleted"
)

// decideStep returns the next step of cfg's adapter for a resource, based on the last report of
// every adapter.
func decideStep(cfg Config, r adapter.Resource) step {
	switch {
	case r.Deleting() && r.HasReported(cfg.Name, v1.ConditionFinalized):
		return stepConfirmFinal
	case r.Deleting():
		return stepFinalize
	case cfg.After != "" && !r.IsAvailable(cfg.After):
		return stepWait
	case r.IsAvailable(cfg.Name):
		return stepConfirm
	}
	return stepWork
}

// newReport returns the report of an outcome of cfg's adapter.
func newReport(cfg Config, o outcome) adapter.Report {
	available, applied := conditions(cfg, o)
	report := adapter.Report{Conditions: []v1.ReportCondition{available, applied, {
		Type: v1.ConditionHealth, Status: v1.ConditionTrue, Reason: "NoErrors", Message: "Adapter is healthy",
	}}}
	if o == outcomeFinalized {
		report.Conditions = append(report.Conditions, v1.ReportCondition{
			Type: v1.ConditionFinalized, Status: v1.ConditionTrue, Reason: "CleanupComplete", Message: "Cleanup is complete",
		})
	}
	return report
}

// outcomeOf returns the outcome that a report of newReport is about.
func outcomeOf(r v1.Report) outcome {
	switch r.Conditions[0].Reason {
	case reasonWaiting:
		return outcomeWaiting
	case reasonTransient:
		return outcomeTransient
	case reasonDeleted:
		return outcomeFinalized
	}
	return outcomeAvailable
}

func conditions(cfg Config, o outcome) (available, applied v1.ReportCondition) {
	available = v1.ReportCondition{Type: v1.ConditionAvailable, Status: v1.ConditionFalse}
	applied = v1.ReportCondition{Type: v1.ConditionApplied, Status: v1.ConditionFalse}
	switch o {
	case outcomeAvailable:
		available.Status, available.Reason, available.Message = v1.ConditionTrue, "WorkSucceeded", cfg.Name+" is complete"
		applied.Status, applied.Reason, applied.Message = v1.ConditionTrue, "WorkApplied", cfg.Name+" was applied"
	case outcomeWaiting:
		available.Reason, available.Message = reasonWaiting, fmt.Sprintf("Waiting for %s to complete", cfg.After)
		applied.Reason, applied.Message = reasonWaiting, fmt.Sprintf("Waiting for %s adapter", cfg.After)
	case outcomeTransient:
		available.Reason, available.Message = reasonTransient, cfg.Name+" failed; it is retried at the next event"
		applied.Status, applied.Reason, applied.Message = v1.ConditionTrue, "WorkApplied", cfg.Name+" was applied"
	case outcomeFinalized:
		available.Reason, available.Message = reasonDeleted, "Resource is being deleted"
		applied.Reason, applied.Message = reasonDeleted, cfg.Name+" was removed"
	}
	return available, applied
}
