package remediation

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// Whose change events these are.
const (
	sourceRemediation = changeevent.SourceFaultRemediation
	sourceJanitor     = changeevent.SourceJanitor
)

// vocabulary is how the two kinds are spoken of.
type vocabulary struct {
	resource, final                   string
	requested, sent, executed, failed string
}

func vocabularyOf(kind string) vocabulary {
	if kind == v1alpha1.KindTerminate {
		return vocabulary{
			v1alpha1.ResourceTerminate, v1alpha1.ConditionNodeTerminated,
			changeevent.ActionTerminateRequested, changeevent.ActionTerminateSent, changeevent.ActionTerminateExecuted, changeevent.ActionTerminateFailed,
		}
	}
	return vocabulary{
		v1alpha1.ResourceReboot, v1alpha1.ConditionNodeReady,
		changeevent.ActionRebootRequested, changeevent.ActionRebootSent, changeevent.ActionRebootExecuted, changeevent.ActionRebootFailed,
	}
}

// Observe tells what the janitor has done to a node, whoever asked for it: that
// the request was sent, when the provider has accepted it and no end was told; that the node was
// rebooted, when another boot id proves it; that it is terminated, when it is
// gone; that either failed. Step does so too; it is to be called for nodes that
// there is nothing else to do about. A node that is gone is nil.
func (r *Remediator) Observe(ctx context.Context, node *corev1.Node, st *faults.NodeFaultStatus) error {
	for _, kind := range []string{v1alpha1.KindReboot, v1alpha1.KindTerminate} {
		all, err := r.listActions(ctx, kind)
		if err != nil {
			return err
		}
		for _, a := range all {
			if concernsNode(a, node, st) {
				observeNode(node, st, a)
			}
		}
	}
	return nil
}

// concernsNode says whether an action is on the node that st is about: not on one
// that had its name before.
func concernsNode(a *action, node *corev1.Node, st *faults.NodeFaultStatus) bool {
	if uid := a.status.NodeUID; uid != "" && st.NodeUID != "" {
		return uid == st.NodeUID
	}
	if st.Session != "" && a.GetLabels()[LabelSession] == st.Session {
		return true
	}
	return node != nil && a.spec.NodeName == node.Name && !a.GetCreationTimestamp().Time.Before(node.CreationTimestamp.Time)
}

func observeNode(node *corev1.Node, st *faults.NodeFaultStatus, a *action) {
	w := vocabularyOf(a.kind)
	sent := meta.FindStatusCondition(a.status.Conditions, v1alpha1.ConditionSignalSent)
	accepted := sent != nil && sent.Status == metav1.ConditionTrue
	done, ok, why := a.endState()
	if done || accepted {
		tellRequested(st, a)
	}
	if accepted && !toldOf(st, a, w.executed) && !toldOf(st, a, w.failed) { // an earlier version told the end alone
		recordAction(st, a, w.sent, sent.LastTransitionTime.Time, "")
	}
	switch {
	case !done:
	case !ok:
		recordAction(st, a, w.failed, a.endedAt(), why)
	case a.kind == v1alpha1.KindTerminate || hasRebooted(node, st, a):
		recordAction(st, a, w.executed, a.endedAt(), "")
	}
}

// hasRebooted says whether a reboot that the janitor calls done is proven: the node
// is in another boot than before. Our janitor writes down which boot that was;
// for another's, what was known when the attempt began counts.
func hasRebooted(node *corev1.Node, st *faults.NodeFaultStatus, a *action) bool {
	before := a.status.PreviousBootID
	if m := st.Remediation; before == "" && m != nil && m.ObjectKind == a.kind && m.ObjectName == a.GetName() {
		before = m.PreviousBootID
	}
	if node == nil || a.status.NodeUID != "" && node.UID != a.status.NodeUID {
		return a.status.PreviousBootID != "" // the node is gone, and our janitor has compared
	}
	id := node.Status.NodeInfo.BootID
	return before != "" && id != "" && id != before
}

func (a *action) endedAt() time.Time {
	if t := a.status.CompletionTime; t != nil {
		return t.Time
	}
	if c := a.finalCondition(); c != nil {
		return c.LastTransitionTime.Time
	}
	return a.GetCreationTimestamp().Time
}

// tellRequested tells that one of this session was asked for, before anything is
// told of what came of it: what was written about its making may have been lost.
func tellRequested(st *faults.NodeFaultStatus, a *action) {
	labels, when := a.GetLabels(), a.GetCreationTimestamp().Time
	if labels[LabelSession] != st.Session || st.Session == "" || labels[LabelAttempt] == "" || forgotten(st, when) {
		return
	}
	w := vocabularyOf(a.kind)
	record := nodefault.RecordOf(st, sourceRemediation, w.requested, labels[LabelAttempt], nextEvent(st, when))
	record.Object = w.resource + "/" + a.GetName()
	nodefault.Tell(st, record)
}

// nextEvent is when something has happened that objects have the second of: if the
// last record is of the same second, it was after that.
func nextEvent(st *faults.NodeFaultStatus, when time.Time) time.Time {
	if len(st.History) == 0 {
		return when
	}
	last := st.History[len(st.History)-1].At.Time
	if when.After(last) || !last.Truncate(time.Second).Equal(when.Truncate(time.Second)) {
		return when
	}
	return last.Add(time.Millisecond)
}

// forgotten says whether what happened then may have been told and dropped from
// the history since.
func forgotten(st *faults.NodeFaultStatus, when time.Time) bool {
	return len(st.History) > 0 && st.History[0].Sequence > 1 && when.Before(st.History[0].At.Time)
}

// recordAction tells of one once. What belongs to the session is told as a part of it;
// what somebody else asked for is known by its UID. What was told and has been
// dropped from the history since is not told again.
func recordAction(st *faults.NodeFaultStatus, a *action, what string, when time.Time, failure string) {
	if forgotten(st, when) {
		return
	}
	about, ordinal := recordKey(st, a)
	record := nodefault.RecordOf(about, sourceJanitor, what, ordinal, nextEvent(st, when))
	record.Object = vocabularyOf(a.kind).resource + "/" + a.GetName()
	if failure != "" {
		record.Outcome, record.Reason = changeevent.OutcomeFailed, nodefault.Cut(failure, maxText)
	}
	nodefault.Tell(st, record)
}

// toldOf says whether that was told of an action.
func toldOf(st *faults.NodeFaultStatus, a *action, what string) bool {
	about, ordinal := recordKey(st, a)
	return nodefault.Told(st, nodefault.RecordID(about.NodeUID, about.Session, what, ordinal))
}

// recordKey is what the records of an action are known by: the session that it
// belongs to, and the number of its attempt; else its UID.
func recordKey(st *faults.NodeFaultStatus, a *action) (about *faults.NodeFaultStatus, ordinal string) {
	labels := a.GetLabels()
	about, ordinal = st, labels[LabelAttempt]
	if labels[LabelSession] != st.Session || st.Session == "" || ordinal == "" {
		about = &faults.NodeFaultStatus{NodeUID: st.NodeUID, Session: labels[LabelSession]}
		if about.Session == "" || ordinal == "" { // somebody else's; one of a session before has the same id as then
			ordinal = string(a.GetUID())
		}
	}
	return about, ordinal
}

// tellFailed tells of an attempt that the janitor says nothing of.
func (r *Remediator) tellFailed(st *faults.NodeFaultStatus, m *faults.RemediationStatus, why string, now time.Time) {
	w := vocabularyOf(m.ObjectKind)
	record := nodefault.RecordOf(st, sourceRemediation, w.failed, strconv.Itoa(int(m.Attempt)), now)
	record.Outcome, record.Reason = changeevent.OutcomeFailed, nodefault.Cut(why, maxText)
	if m.ObjectName != "" {
		record.Object = w.resource + "/" + m.ObjectName
	}
	nodefault.Tell(st, record)
}
