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

// A nodeState is a Look with its parsed annotations.
type nodeState struct {
	StepInput
	mark  *ownedMark
	tomb  *releaseRecord
	over  *overrideRecord
	odd   []string // errors of annotations that cannot be read
	stop  bool     // the override cannot be read
	holds cordonOwner
	since time.Time // time of the pipeline's cordon
	// changed means that mark differs from the annotation on the node.
	changed bool
}

func newNodeState(in StepInput) *nodeState {
	n := &nodeState{StepInput: in}
	n.holds, n.since = cordonOwnerFromManagedFields(in.Node)
	note := func(annotation string, err error) {
		if err != nil {
			n.odd = append(n.odd, fmt.Sprintf("annotation %s ignored: %v", annotation, err))
		}
	}
	var err error
	n.mark, err = readOwnedMark(in.Node)
	note(v1alpha1.AnnotationOwned, err)
	n.tomb, err = readReleaseRecord(in.Node)
	note(v1alpha1.AnnotationReleased, err)
	n.over, err = readOverride(in.Node)
	note(v1alpha1.AnnotationOverridden, err)
	n.stop = err != nil
	return n
}

// addCommonStepFields adds the fields that all steps have in common.
func (n *nodeState) addCommonStepFields(s Step, dryRun bool) Step {
	settle := s.Settle
	var wish *v1alpha1.DesiredActions
	if nodefault.RequiresAction(n.Verdict.DesiredActions) {
		wish = n.Verdict.DesiredActions.DeepCopy()
		wish.DryRun = wish.DryRun || dryRun
	}
	s.Settle = func(st *v1alpha1.NodeFaultStatus) {
		st.NodeUID = n.Node.UID
		if settle != nil {
			settle(st)
		}
		st.DesiredActions = wish
	}
	if s.Undo == nil {
		s.Undo = func() {}
	}
	if n.Verdict.After > 0 {
		s.After = shorterNonZero(s.After, n.Verdict.After)
	}
	s.Message = strings.Join(append([]string{s.Message}, n.odd...), "; ")
	return s
}

// shorterNonZero returns the shorter delay. Zero means no delay.
func shorterNonZero(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// isSessionOpen reports whether a session is open.
func isSessionOpen(st *v1alpha1.NodeFaultStatus) bool {
	return st.Session != "" && st.TriggeredBy != nil && !isSessionOverridden(st, st.Session)
}

// hasSessionEnded reports whether the given session is the last one and has ended.
func hasSessionEnded(st *v1alpha1.NodeFaultStatus, session string) bool {
	return st.Session == session && !isSessionOpen(st)
}

// isSessionOpenWithoutNodeChanges reports whether a session is open without changes on the node.
func isSessionOpenWithoutNodeChanges(st *v1alpha1.NodeFaultStatus) bool {
	return isSessionOpen(st) && st.Owned == nil
}

func isSessionOverridden(st *v1alpha1.NodeFaultStatus, session string) bool {
	return st.Overridden != nil && st.Overridden.Session == session
}

func (n *nodeState) isCordoned() bool { return n.Node.Spec.Unschedulable }

// beginSession opens a session in the status.
func beginSession(st *v1alpha1.NodeFaultStatus, session string, f v1alpha1.Fault) {
	endSession(st)
	st.Session, st.TriggeredBy, st.FaultCode = session, &f, nodefault.TruncateText(nodefault.JoinedErrorCodesOrCheck(f), 256)
	st.Drain, st.Remediation = nil, nil
}

// endSession closes the session in the status. Its name stays, so that a stale node does
// not open it again.
func endSession(st *v1alpha1.NodeFaultStatus) {
	st.TriggeredBy, st.FaultCode, st.Owned, st.DesiredActions, st.HealthySince, st.Overridden = nil, "", nil, nil, nil, nil
}

// endSessionAndRecordDryRunUncordon ends a session without changes on the node.
func endSessionAndRecordDryRunUncordon(st *v1alpha1.NodeFaultStatus, reason string, now time.Time) {
	if hasDryRunRecord(st, changeevent.ActionCordon) {
		recordDryRunActionOnce(st, changeevent.ActionUncordon, reason, now)
	}
	endSession(st)
}

// ordinalDryRun distinguishes the records of dry runs from those of real actions.
const ordinalDryRun = "dry-run"

// recordActionOnce records an action of the session in the status.
func recordActionOnce(st *v1alpha1.NodeFaultStatus, action, reason string, at time.Time) {
	r := nodefault.NewRecord(st, changeevent.SourceFaultQuarantine, action, "", at)
	r.Reason = nodefault.TruncateText(reason, 512)
	nodefault.AppendRecordOnceAndTrim(st, r)
}

// recordDryRunActionOnce records an action of a dry run.
func recordDryRunActionOnce(st *v1alpha1.NodeFaultStatus, action, reason string, at time.Time) {
	r := nodefault.NewRecord(st, changeevent.SourceFaultQuarantine, action, ordinalDryRun, at)
	r.Reason, r.DryRun = nodefault.TruncateText(reason, 512), true
	nodefault.AppendRecordOnceAndTrim(st, r)
}

// hasDryRunRecord reports whether an action of a dry run was recorded.
func hasDryRunRecord(st *v1alpha1.NodeFaultStatus, action string) bool {
	return nodefault.HasRecord(st, nodefault.RecordID(st.NodeUID, st.Session, action, ordinalDryRun))
}

// taintKeyAndEffect returns key:effect, which identifies a taint of a node.
func taintKeyAndEffect(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// sameTaintIgnoringTime compares taints without TimeAdded, which others write.
func sameTaintIgnoringTime(a, b corev1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}

func hasTaint(taints []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(o corev1.Taint) bool { return sameTaintIgnoringTime(o, t) })
}

// hasTaintWithKeyAndEffect reports whether there is a taint with the same key and effect. A node has at
// most one.
func hasTaintWithKeyAndEffect(taints []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(o corev1.Taint) bool { return taintKeyAndEffect(o) == taintKeyAndEffect(t) })
}

func sameOwnedChanges(a, b *v1alpha1.Owned) bool {
	return a != nil && b != nil && a.Session == b.Session && a.Cordon == b.Cordon && slices.EqualFunc(a.Taints, b.Taints, sameTaintIgnoringTime)
}

func toMicroTime(t time.Time) metav1.MicroTime { return metav1.NewMicroTime(t) }
