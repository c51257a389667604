package operator

import (
	"cmp"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// Maximum lengths of texts, as in the schema.
const (
	maxMessage   = 1024
	maxFaultCode = 256
)

// setPhaseMessageAndConditions sets the phase, the message and the conditions. They follow only
// from the results of the stages.
func (r *reconciler) setPhaseMessageAndConditions(
	before, status *v1alpha1.NodeFaultStatus, step quarantine.Step, now time.Time,
) {
	status.Phase = phaseOf(status, step.Why)
	if status.Phase != before.Phase || status.PhaseChangedAt == nil {
		status.PhaseChangedAt = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	status.Message = nodefault.TruncateText(r.statusMessage(status, step), maxMessage)
	if isSameWait(before, status) {
		// Otherwise each node that changes would cause a write of all waiting NodeFaults.
		status.Message = before.Message
	}
	status.FaultCode = ""
	if status.TriggeredBy != nil {
		code := nodefault.JoinedErrorCodesOrCheck(*status.TriggeredBy)
		status.FaultCode = nodefault.TruncateText(code, maxFaultCode)
	}
	for _, condition := range desiredConditions(status, step) {
		exists := meta.FindStatusCondition(status.Conditions, condition.Type) != nil
		if condition.Status != metav1.ConditionTrue && !exists {
			continue // a condition that was never true is omitted
		}
		condition.Message = nodefault.TruncateText(condition.Message, maxMessage)
		condition.ObservedGeneration = status.ObservedGeneration
		condition.LastTransitionTime = metav1.Time{Time: now.Truncate(time.Second)}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}

// isSameWait reports whether a node still waits for the budget, and only numbers in the message
// have changed.
func isSameWait(before, after *v1alpha1.NodeFaultStatus) bool {
	return before.Phase == v1alpha1.PhasePending &&
		after.Phase == v1alpha1.PhasePending &&
		removeDigits(before.Message) == removeDigits(after.Message)
}

// removeDigits removes the digits of a text.
func removeDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}

func phaseOf(status *v1alpha1.NodeFaultStatus, why quarantine.Situation) v1alpha1.Phase {
	switch why {
	case quarantine.Denied:
		return v1alpha1.PhasePending
	case quarantine.DryRun:
		return v1alpha1.PhaseDryRun
	case quarantine.Ours, quarantine.Foreign:
		return phaseWhileQuarantined(status)
	case quarantine.Recovering:
		return v1alpha1.PhaseRecovering
	case quarantine.Held:
		return v1alpha1.PhaseHeld
	case quarantine.Overridden:
		return v1alpha1.PhaseOverridden
	case quarantine.Released:
		return v1alpha1.PhaseHealthy
	case quarantine.Gone:
		return v1alpha1.PhaseGone
	case quarantine.Observing, quarantine.OptedOut:
		// The faults are only observed.
	}
	return v1alpha1.PhaseObserved
}

// phaseWhileQuarantined returns the phase of a quarantined node. A running drain precedes the
// remedy, and the remedy decides about a drain that has ended.
func phaseWhileQuarantined(status *v1alpha1.NodeFaultStatus) v1alpha1.Phase {
	if d := status.Drain; d != nil {
		switch d.State {
		case v1alpha1.DrainRunning:
			return v1alpha1.PhaseDraining
		case v1alpha1.DrainFailed:
			if status.Remediation == nil {
				return v1alpha1.PhaseStuck
			}
		case v1alpha1.DrainCompleted, v1alpha1.DrainCancelled:
			// The remedy decides.
		}
	}
	if r := status.Remediation; r != nil {
		switch r.State {
		case v1alpha1.RemedyRunning, v1alpha1.RemedyFailed:
			return v1alpha1.PhaseRemediating
		case v1alpha1.RemedyExhausted:
			return v1alpha1.PhaseStuck
		case v1alpha1.RemedySucceeded:
			// The node waits until its faults are over.
		}
	}
	return v1alpha1.PhaseQuarantined
}

// statusMessage returns a message about what the node waits for, or what blocks it.
func (r *reconciler) statusMessage(status *v1alpha1.NodeFaultStatus, step quarantine.Step) string {
	switch status.Phase {
	case v1alpha1.PhaseDraining:
		return r.drain.ProgressOrWaitMessage(status)
	case v1alpha1.PhaseRemediating:
		return status.Remediation.Message
	case v1alpha1.PhaseStuck:
		if status.Remediation != nil {
			return status.Remediation.Message
		}
		return r.drain.ProgressOrWaitMessage(status)
	case v1alpha1.PhaseQuarantined:
		if status.Remediation != nil {
			return cmp.Or(status.Remediation.Message, step.Message)
		}
		message := cmp.Or(r.drain.ProgressOrWaitMessage(status), step.Message, "cordoned")
		if d := status.DesiredActions; d == nil || len(d.Remedies) == 0 {
			message += "; no rule repairs this fault"
		}
		return message
	case v1alpha1.PhaseObserved, v1alpha1.PhasePending, v1alpha1.PhaseDryRun, v1alpha1.PhaseRecovering,
		v1alpha1.PhaseHeld, v1alpha1.PhaseOverridden, v1alpha1.PhaseHealthy, v1alpha1.PhaseGone:
	}
	return step.Message
}

// desiredConditions returns the desired conditions.
func desiredConditions(status *v1alpha1.NodeFaultStatus, step quarantine.Step) []metav1.Condition {
	quarantined := metav1.Condition{Type: v1alpha1.ConditionQuarantined, Status: metav1.ConditionFalse, Reason: "Released"}
	if status.Owned != nil {
		quarantined.Status, quarantined.Reason = metav1.ConditionTrue, "Cordoned"
		if step.Why == quarantine.Foreign {
			quarantined.Reason = "CordonedByOthers"
		}
	}

	denied := metav1.Condition{Type: v1alpha1.ConditionBudgetDenied, Status: metav1.ConditionFalse, Reason: "WithinBudget"}
	if step.Why == quarantine.Denied {
		denied.Status, denied.Reason, denied.Message = metav1.ConditionTrue, "BudgetExhausted", status.Message
	}

	overridden := metav1.Condition{Type: v1alpha1.ConditionOverridden, Status: metav1.ConditionFalse, Reason: "OverrideEnded"}
	if status.Overridden != nil {
		overridden.Status, overridden.Reason = metav1.ConditionTrue, "ManuallyUncordoned"
	}

	drained := metav1.Condition{Type: v1alpha1.ConditionDrained, Status: metav1.ConditionFalse, Reason: "NotDrained"}
	if d := status.Drain; d != nil {
		drained.Reason = "Drain" + string(d.State)
		if d.State == v1alpha1.DrainCompleted {
			drained.Status = metav1.ConditionTrue
		}
	}

	remediated := metav1.Condition{Type: v1alpha1.ConditionRemediated, Status: metav1.ConditionFalse, Reason: "NotRemediated"}
	if r := status.Remediation; r != nil {
		remediated.Reason = "Remedy" + string(r.State)
		if r.State == v1alpha1.RemedySucceeded {
			remediated.Status = metav1.ConditionTrue
		}
	}
	return []metav1.Condition{quarantined, denied, overridden, drained, remediated}
}
