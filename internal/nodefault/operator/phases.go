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

// maxMessage is the maximum length of a message, as in the schema.
const maxMessage = 1024

// setPhaseMessageAndConditions sets the phase, the message and the conditions. They follow only from the
// results of the stages.
func (r *reconciler) setPhaseMessageAndConditions(before, st *v1alpha1.NodeFaultStatus, step quarantine.Step, now time.Time) {
	st.Phase = phaseOf(st, step.Why)
	if st.Phase != before.Phase || st.PhaseChangedAt == nil {
		st.PhaseChangedAt = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	st.Message = nodefault.TruncateText(r.statusMessage(st, step), maxMessage)
	if st.Phase == v1alpha1.PhasePending && before.Phase == v1alpha1.PhasePending && removeDigits(before.Message) == removeDigits(st.Message) {
		st.Message = before.Message // otherwise each node that changes would cause a write of all waiting NodeFaults
	}
	st.FaultCode = ""
	if st.TriggeredBy != nil {
		st.FaultCode = nodefault.TruncateText(nodefault.JoinedErrorCodesOrCheck(*st.TriggeredBy), 256)
	}
	for _, c := range desiredConditions(st, step) {
		c.LastTransitionTime = metav1.Time{Time: now.Truncate(time.Second)}
		meta.SetStatusCondition(&st.Conditions, c)
	}
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

func phaseOf(st *v1alpha1.NodeFaultStatus, why quarantine.Situation) v1alpha1.Phase {
	switch why {
	case quarantine.Denied:
		return v1alpha1.PhasePending
	case quarantine.DryRun:
		return v1alpha1.PhaseDryRun
	case quarantine.Ours, quarantine.Foreign:
		return phaseWhileQuarantined(st)
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
	}
	return v1alpha1.PhaseObserved
}

// phaseWhileQuarantined returns the phase of a quarantined node.
func phaseWhileQuarantined(st *v1alpha1.NodeFaultStatus) v1alpha1.Phase {
	if d := st.Drain; d != nil {
		switch d.State {
		case v1alpha1.DrainRunning:
			return v1alpha1.PhaseDraining
		case v1alpha1.DrainFailed:
			if st.Remediation == nil {
				return v1alpha1.PhaseStuck
			}
		case v1alpha1.DrainCompleted, v1alpha1.DrainCancelled:
		}
	}
	if r := st.Remediation; r != nil {
		switch r.State {
		case v1alpha1.RemedyRunning, v1alpha1.RemedyFailed:
			return v1alpha1.PhaseRemediating
		case v1alpha1.RemedyExhausted:
			return v1alpha1.PhaseStuck
		case v1alpha1.RemedySucceeded:
		}
	}
	return v1alpha1.PhaseQuarantined
}

// statusMessage returns a message about what the node waits for, or what blocks it.
func (r *reconciler) statusMessage(st *v1alpha1.NodeFaultStatus, step quarantine.Step) string {
	switch st.Phase {
	case v1alpha1.PhaseDraining:
		return r.drain.ProgressOrWaitMessage(st)
	case v1alpha1.PhaseRemediating:
		return st.Remediation.Message
	case v1alpha1.PhaseStuck:
		if st.Remediation != nil {
			return st.Remediation.Message
		}
		return r.drain.ProgressOrWaitMessage(st)
	case v1alpha1.PhaseQuarantined:
		if st.Remediation != nil {
			return cmp.Or(st.Remediation.Message, step.Message)
		}
		message := cmp.Or(r.drain.ProgressOrWaitMessage(st), step.Message, "cordoned")
		if d := st.DesiredActions; d == nil || len(d.Remedies) == 0 {
			message += "; no rule repairs this fault"
		}
		return message
	case v1alpha1.PhaseObserved, v1alpha1.PhasePending, v1alpha1.PhaseDryRun, v1alpha1.PhaseRecovering,
		v1alpha1.PhaseHeld, v1alpha1.PhaseOverridden, v1alpha1.PhaseHealthy, v1alpha1.PhaseGone:
	}
	return step.Message
}

// desiredConditions returns the desired conditions. A condition that was never true is
// omitted.
func desiredConditions(st *v1alpha1.NodeFaultStatus, step quarantine.Step) []metav1.Condition {
	var all []metav1.Condition
	set := func(kind string, is bool, reason, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: nodefault.TruncateText(message, maxMessage), ObservedGeneration: st.ObservedGeneration}
		if is {
			c.Status = metav1.ConditionTrue
		} else if meta.FindStatusCondition(st.Conditions, kind) == nil {
			return
		}
		all = append(all, c)
	}
	quarantined := st.Owned != nil
	set(v1alpha1.ConditionQuarantined, quarantined, chooseText(quarantined, chooseText(step.Why == quarantine.Foreign, "CordonedByOthers", "Cordoned"), "Released"), "")
	set(v1alpha1.ConditionBudgetDenied, step.Why == quarantine.Denied, chooseText(step.Why == quarantine.Denied, "BudgetExhausted", "WithinBudget"), chooseText(step.Why == quarantine.Denied, st.Message, ""))
	set(v1alpha1.ConditionOverridden, st.Overridden != nil, chooseText(st.Overridden != nil, "ManuallyUncordoned", "OverrideEnded"), "")
	drained := st.Drain != nil && st.Drain.State == v1alpha1.DrainCompleted
	reason := "NotDrained"
	if st.Drain != nil {
		reason = "Drain" + string(st.Drain.State)
	}
	set(v1alpha1.ConditionDrained, drained, reason, "")
	remediated := st.Remediation != nil && st.Remediation.State == v1alpha1.RemedySucceeded
	reason = "NotRemediated"
	if st.Remediation != nil {
		reason = "Remedy" + string(st.Remediation.State)
	}
	set(v1alpha1.ConditionRemediated, remediated, reason, "")
	return all
}

func chooseText(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
