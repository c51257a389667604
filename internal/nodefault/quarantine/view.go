package quarantine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// A nodeState is the input of a step with the parsed annotations of the node.
type nodeState struct {
	StepInput

	mark    *ownedMark // the changes of the pipeline; nil without any
	changed bool       // mark differs from the annotation on the node

	release            *releaseRecord  // how the last session ended; nil if unknown
	override           *overrideRecord // nil without an override
	overrideUnreadable bool

	unreadable []string // errors of annotations that cannot be read

	cordonOwner cordonOwner
	cordonedAt  time.Time // time of the pipeline's cordon
}

func newNodeState(in StepInput) *nodeState {
	n := &nodeState{StepInput: in}
	n.cordonOwner, n.cordonedAt = cordonOwnerFromManagedFields(in.Node)

	mark, err := readOwnedMark(in.Node)
	n.mark = mark
	n.noteIfUnreadable(v1alpha1.AnnotationOwned, err)

	release, err := readReleaseRecord(in.Node)
	n.release = release
	n.noteIfUnreadable(v1alpha1.AnnotationReleased, err)

	override, err := readOverride(in.Node)
	n.override, n.overrideUnreadable = override, err != nil
	n.noteIfUnreadable(v1alpha1.AnnotationOverridden, err)
	return n
}

// noteIfUnreadable keeps the error of an annotation for the message of the step.
func (n *nodeState) noteIfUnreadable(annotation string, err error) {
	if err != nil {
		n.unreadable = append(n.unreadable, fmt.Sprintf("annotation %s ignored: %v", annotation, err))
	}
}

// addCommonStepFields adds the fields that all steps have in common.
func (n *nodeState) addCommonStepFields(step Step, dryRun bool) Step {
	var desired *v1alpha1.DesiredActions // nil if no action is required
	if nodefault.RequiresAction(n.Verdict.DesiredActions) {
		desired = n.Verdict.DesiredActions.DeepCopy()
		desired.DryRun = desired.DryRun || dryRun
	}
	settle := step.Settle
	step.Settle = func(status *v1alpha1.NodeFaultStatus) {
		status.NodeUID = n.Node.UID
		if settle != nil {
			settle(status)
		}
		status.DesiredActions = desired
	}
	if step.Undo == nil {
		step.Undo = func() {}
	}
	if n.Verdict.After > 0 {
		step.After = shorterNonZero(step.After, n.Verdict.After)
	}
	step.Message = strings.Join(append([]string{step.Message}, n.unreadable...), "; ")
	return step
}

// shorterNonZero returns the shorter delay. Zero means no delay.
func shorterNonZero(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// isSessionOpen reports whether a session is open.
func isSessionOpen(status *v1alpha1.NodeFaultStatus) bool {
	return status.Session != "" && status.TriggeredBy != nil && !isSessionOverridden(status, status.Session)
}

// hasSessionEnded reports whether the given session is the last one and has ended.
func hasSessionEnded(status *v1alpha1.NodeFaultStatus, session string) bool {
	return status.Session == session && !isSessionOpen(status)
}

// isSessionOpenWithoutNodeChanges reports whether a session is open without changes on the node.
func isSessionOpenWithoutNodeChanges(status *v1alpha1.NodeFaultStatus) bool {
	return isSessionOpen(status) && status.Owned == nil
}

func isSessionOverridden(status *v1alpha1.NodeFaultStatus, session string) bool {
	return status.Overridden != nil && status.Overridden.Session == session
}

func (n *nodeState) isCordoned() bool { return n.Node.Spec.Unschedulable }

// beginSession opens a session in the status.
func beginSession(status *v1alpha1.NodeFaultStatus, session string, f v1alpha1.Fault) {
	endSession(status)
	status.Session, status.TriggeredBy = session, &f
	status.FaultCode = nodefault.TruncateText(nodefault.JoinedErrorCodesOrCheck(f), maxFaultCode)
	status.Drain, status.Remediation = nil, nil
}

// endSession closes the session in the status. Its name stays, so that a stale node does
// not open it again.
func endSession(status *v1alpha1.NodeFaultStatus) {
	status.TriggeredBy, status.FaultCode = nil, ""
	status.Owned, status.DesiredActions = nil, nil
	status.HealthySince, status.Overridden = nil, nil
}

// endSessionAndRecordDryRunUncordon ends a session without changes on the node.
func endSessionAndRecordDryRunUncordon(status *v1alpha1.NodeFaultStatus, reason string, now time.Time) {
	if hasDryRunRecord(status, changeevent.ActionCordon) {
		recordDryRunActionOnce(status, changeevent.ActionUncordon, reason, now)
	}
	endSession(status)
}

// Maximum lengths of texts in the status, as in the schema.
const (
	maxFaultCode = 256
	maxReason    = 512
)

// ordinalDryRun distinguishes the records of dry runs from those of real actions.
const ordinalDryRun = "dry-run"

// recordActionOnce records an action of the session in the status.
func recordActionOnce(status *v1alpha1.NodeFaultStatus, action, reason string, at time.Time) {
	r := nodefault.NewRecord(status, changeevent.SourceFaultQuarantine, action, "", at)
	r.Reason = nodefault.TruncateText(reason, maxReason)
	nodefault.AppendRecordOnceAndTrim(status, r)
}

// recordDryRunActionOnce records an action of a dry run.
func recordDryRunActionOnce(status *v1alpha1.NodeFaultStatus, action, reason string, at time.Time) {
	r := nodefault.NewRecord(status, changeevent.SourceFaultQuarantine, action, ordinalDryRun, at)
	r.Reason, r.DryRun = nodefault.TruncateText(reason, maxReason), true
	nodefault.AppendRecordOnceAndTrim(status, r)
}

// hasDryRunRecord reports whether an action of a dry run was recorded.
func hasDryRunRecord(status *v1alpha1.NodeFaultStatus, action string) bool {
	return nodefault.HasRecord(status, nodefault.RecordID(status.NodeUID, status.Session, action, ordinalDryRun))
}

// taintKeyAndEffect returns key:effect, which identifies a taint of a node.
func taintKeyAndEffect(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// sameTaintIgnoringTime compares taints without TimeAdded, which others write.
func sameTaintIgnoringTime(a, b corev1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}

func hasTaint(taints []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(other corev1.Taint) bool { return sameTaintIgnoringTime(other, t) })
}

// hasTaintWithKeyAndEffect reports whether there is a taint with the same key and effect. A node has at
// most one.
func hasTaintWithKeyAndEffect(taints []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(other corev1.Taint) bool {
		return taintKeyAndEffect(other) == taintKeyAndEffect(t)
	})
}

func sameOwnedChanges(a, b *v1alpha1.Owned) bool {
	if a == nil || b == nil {
		return false
	}
	return a.Session == b.Session &&
		a.Cordon == b.Cordon &&
		slices.EqualFunc(a.Taints, b.Taints, sameTaintIgnoringTime)
}

func toMicroTime(t time.Time) metav1.MicroTime { return metav1.NewMicroTime(t) }
