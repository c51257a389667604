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

// A view is a Look with its parsed annotations.
type view struct {
	Look
	mark  *mark
	tomb  *tombstone
	over  *override
	odd   []string // errors of annotations that cannot be read
	stop  bool     // the override cannot be read
	holds holder
	since time.Time // time of the pipeline's cordon
	// changed means that mark differs from the annotation on the node.
	changed bool
}

func newView(l Look) *view {
	v := &view{Look: l}
	v.holds, v.since = cordonHolder(l.Node)
	note := func(annotation string, err error) {
		if err != nil {
			v.odd = append(v.odd, fmt.Sprintf("annotation %s ignored: %v", annotation, err))
		}
	}
	var err error
	v.mark, err = readMark(l.Node)
	note(v1alpha1.AnnotationOwned, err)
	v.tomb, err = readTombstone(l.Node)
	note(v1alpha1.AnnotationReleased, err)
	v.over, err = readOverride(l.Node)
	note(v1alpha1.AnnotationOverridden, err)
	v.stop = err != nil
	return v
}

// finishStep adds the fields that all steps have in common.
func (v *view) finishStep(s Step, dryRun bool) Step {
	settle := s.Settle
	var wish *v1alpha1.DesiredActions
	if nodefault.RequiresAction(v.Verdict.DesiredActions) {
		wish = v.Verdict.DesiredActions.DeepCopy()
		wish.DryRun = wish.DryRun || dryRun
	}
	s.Settle = func(st *v1alpha1.NodeFaultStatus) {
		st.NodeUID = v.Node.UID
		if settle != nil {
			settle(st)
		}
		st.DesiredActions = wish
	}
	if s.Undo == nil {
		s.Undo = func() {}
	}
	if v.Verdict.After > 0 {
		s.After = soonerOf(s.After, v.Verdict.After)
	}
	s.Message = strings.Join(append([]string{s.Message}, v.odd...), "; ")
	return s
}

// soonerOf returns the shorter delay. Zero means no delay.
func soonerOf(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// isOpen reports whether a session is open.
func isOpen(st *v1alpha1.NodeFaultStatus) bool {
	return st.Session != "" && st.TriggeredBy != nil && !overriddenIn(st, st.Session)
}

// hasEnded reports whether the given session is the last one and has ended.
func hasEnded(st *v1alpha1.NodeFaultStatus, session string) bool {
	return st.Session == session && !isOpen(st)
}

// unwritten reports whether a session is open without changes on the node.
func unwritten(st *v1alpha1.NodeFaultStatus) bool { return isOpen(st) && st.Owned == nil }

func overriddenIn(st *v1alpha1.NodeFaultStatus, session string) bool {
	return st.Overridden != nil && st.Overridden.Session == session
}

func (v *view) isCordoned() bool { return v.Node.Spec.Unschedulable }

// beginSession opens a session in the status.
func beginSession(st *v1alpha1.NodeFaultStatus, session string, f v1alpha1.Fault) {
	endSession(st)
	st.Session, st.TriggeredBy, st.FaultCode = session, &f, nodefault.TruncateText(nodefault.ErrorCodesOrCheck(f), 256)
	st.Drain, st.Remediation = nil, nil
}

// endSession closes the session in the status. Its name stays, so that a stale node does
// not open it again.
func endSession(st *v1alpha1.NodeFaultStatus) {
	st.TriggeredBy, st.FaultCode, st.Owned, st.DesiredActions, st.HealthySince, st.Overridden = nil, "", nil, nil, nil, nil
}

// closeUnwritten ends a session without changes on the node.
func closeUnwritten(st *v1alpha1.NodeFaultStatus, reason string, now time.Time) {
	if toldDry(st, changeevent.ActionCordon) {
		tellDry(st, changeevent.ActionUncordon, reason, now)
	}
	endSession(st)
}

// ordinalDryRun distinguishes the records of dry runs from those of real actions.
const ordinalDryRun = "dry-run"

// recordAction records an action of the session in the status.
func recordAction(st *v1alpha1.NodeFaultStatus, action, reason string, at time.Time) {
	r := nodefault.NewRecord(st, changeevent.SourceFaultQuarantine, action, "", at)
	r.Reason = nodefault.TruncateText(reason, 512)
	nodefault.AddRecordOnce(st, r)
}

// tellDry records an action of a dry run.
func tellDry(st *v1alpha1.NodeFaultStatus, action, reason string, at time.Time) {
	r := nodefault.NewRecord(st, changeevent.SourceFaultQuarantine, action, ordinalDryRun, at)
	r.Reason, r.DryRun = nodefault.TruncateText(reason, 512), true
	nodefault.AddRecordOnce(st, r)
}

// toldDry reports whether an action of a dry run was recorded.
func toldDry(st *v1alpha1.NodeFaultStatus, action string) bool {
	return nodefault.HasRecord(st, nodefault.RecordID(st.NodeUID, st.Session, action, ordinalDryRun))
}

// taintName returns key:effect, which identifies a taint of a node.
func taintName(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// sameTaint compares taints without TimeAdded, which others write.
func sameTaint(a, b corev1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}

func hasTaint(taints []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(o corev1.Taint) bool { return sameTaint(o, t) })
}

// hasTaintOf reports whether there is a taint with the same key and effect. A node has at
// most one.
func hasTaintOf(taints []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(o corev1.Taint) bool { return taintName(o) == taintName(t) })
}

func sameOwned(a, b *v1alpha1.Owned) bool {
	return a != nil && b != nil && a.Session == b.Session && a.Cordon == b.Cordon && slices.EqualFunc(a.Taints, b.Taints, sameTaint)
}

func microTime(t time.Time) metav1.MicroTime { return metav1.NewMicroTime(t) }
