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

// Sources of the records.
const (
	sourceRemediation = changeevent.SourceFaultRemediation
	sourceJanitor     = changeevent.SourceJanitor
)

// actionNames holds the names that differ between the two kinds.
type actionNames struct {
	resource, final                   string
	requested, sent, executed, failed string
}

func actionNamesOf(kind string) actionNames {
	if kind == v1alpha1.KindTerminate {
		return actionNames{
			v1alpha1.ResourceTerminate, v1alpha1.ConditionNodeTerminated,
			changeevent.ActionTerminateRequested, changeevent.ActionTerminateSent, changeevent.ActionTerminateExecuted, changeevent.ActionTerminateFailed,
		}
	}
	return actionNames{
		v1alpha1.ResourceReboot, v1alpha1.ConditionNodeReady,
		changeevent.ActionRebootRequested, changeevent.ActionRebootSent, changeevent.ActionRebootExecuted, changeevent.ActionRebootFailed,
	}
}

// RecordJanitorActions records what the janitor has done to a node, regardless of who requested it. It
// records that a request was sent, if the provider has accepted it and no result is
// recorded; that the node was rebooted, if a new boot ID proves it; that the node was
// terminated, if it is gone; and failures. Step does the same, so RecordJanitorActions is only for
// nodes without other work. A deleted node is nil.
func (r *Remediator) RecordJanitorActions(ctx context.Context, node *corev1.Node, st *faults.NodeFaultStatus) error {
	for _, kind := range []string{v1alpha1.KindReboot, v1alpha1.KindTerminate} {
		all, err := r.actions.list(ctx, kind)
		if err != nil {
			return err
		}
		for _, a := range all {
			if concernsNode(a, node, st) {
				recordSentAndResult(node, st, a)
			}
		}
	}
	return nil
}

// concernsNode reports whether an action concerns the node of st rather than a previous
// node of the same name.
func concernsNode(a *action, node *corev1.Node, st *faults.NodeFaultStatus) bool {
	if uid := a.status.NodeUID; uid != "" && st.NodeUID != "" {
		return uid == st.NodeUID
	}
	if st.Session != "" && a.GetLabels()[LabelSession] == st.Session {
		return true
	}
	return node != nil && a.spec.NodeName == node.Name && !a.GetCreationTimestamp().Time.Before(node.CreationTimestamp.Time)
}

func recordSentAndResult(node *corev1.Node, st *faults.NodeFaultStatus, a *action) {
	w := actionNamesOf(a.kind)
	sent := meta.FindStatusCondition(a.status.Conditions, v1alpha1.ConditionSignalSent)
	accepted := sent != nil && sent.Status == metav1.ConditionTrue
	done, ok, why := a.endState()
	if done || accepted {
		addRequestRecordIfMissing(st, a)
	}
	if accepted && !hasActionRecord(st, a, w.executed) && !hasActionRecord(st, a, w.failed) { // earlier versions recorded only the result
		recordActionOnce(st, a, w.sent, sent.LastTransitionTime.Time, "")
	}
	switch {
	case !done:
	case !ok:
		recordActionOnce(st, a, w.failed, a.endedAt(), why)
	case a.kind == v1alpha1.KindTerminate || hasRebooted(node, st, a):
		recordActionOnce(st, a, w.executed, a.endedAt(), "")
	}
}

// hasRebooted reports whether a finished reboot is proven by a new boot ID. Fleetloop's
// janitor records the boot ID before it. For other janitors, the boot ID at the start of
// the attempt is used.
func hasRebooted(node *corev1.Node, st *faults.NodeFaultStatus, a *action) bool {
	before := a.status.PreviousBootID
	if m := st.Remediation; before == "" && m != nil && m.ObjectKind == a.kind && m.ObjectName == a.GetName() {
		before = m.PreviousBootID
	}
	if node == nil || a.status.NodeUID != "" && node.UID != a.status.NodeUID {
		return a.status.PreviousBootID != "" // the node is gone, and Fleetloop's janitor has compared the boot IDs
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

// addRequestRecordIfMissing records the request of an action of this session before its result. The
// write of the first record may have been lost.
func addRequestRecordIfMissing(st *faults.NodeFaultStatus, a *action) {
	labels, when := a.GetLabels(), a.GetCreationTimestamp().Time
	if labels[LabelSession] != st.Session || st.Session == "" || labels[LabelAttempt] == "" || mayBeTrimmedFromHistory(st, when) {
		return
	}
	w := actionNamesOf(a.kind)
	record := nodefault.NewRecord(st, sourceRemediation, w.requested, labels[LabelAttempt], timeAfterRecordInSameSecond(st, when))
	record.Object = w.resource + "/" + a.GetName()
	nodefault.AppendRecordOnceAndTrim(st, record)
}

// timeAfterRecordInSameSecond returns the time of an event that is known only to the second. If the last
// record is in the same second, the result is after it.
func timeAfterRecordInSameSecond(st *faults.NodeFaultStatus, when time.Time) time.Time {
	if len(st.History) == 0 {
		return when
	}
	last := st.History[len(st.History)-1].At.Time
	if when.After(last) || !last.Truncate(time.Second).Equal(when.Truncate(time.Second)) {
		return when
	}
	return last.Add(time.Millisecond)
}

// mayBeTrimmedFromHistory reports whether an event at a time may have been recorded and dropped from
// the history since.
func mayBeTrimmedFromHistory(st *faults.NodeFaultStatus, when time.Time) bool {
	return len(st.History) > 0 && st.History[0].Sequence > 1 && when.Before(st.History[0].At.Time)
}

// recordActionOnce records an action once. An action of the session is identified by the
// session and the attempt, any other by its UID. A record that may have been dropped from
// the history is not repeated.
func recordActionOnce(st *faults.NodeFaultStatus, a *action, changeAction string, when time.Time, failureReason string) {
	if mayBeTrimmedFromHistory(st, when) {
		return
	}
	about, ordinal := actionRecordIdentity(st, a)
	record := nodefault.NewRecord(about, sourceJanitor, changeAction, ordinal, timeAfterRecordInSameSecond(st, when))
	record.Object = actionNamesOf(a.kind).resource + "/" + a.GetName()
	if failureReason != "" {
		record.Outcome, record.Reason = changeevent.OutcomeFailed, nodefault.TruncateText(failureReason, maxText)
	}
	nodefault.AppendRecordOnceAndTrim(st, record)
}

// hasActionRecord reports whether a record of an action exists.
func hasActionRecord(st *faults.NodeFaultStatus, a *action, changeAction string) bool {
	about, ordinal := actionRecordIdentity(st, a)
	return nodefault.HasRecord(st, nodefault.RecordID(about.NodeUID, about.Session, changeAction, ordinal))
}

// actionRecordIdentity returns the identity of an action in records: its session and attempt, or
// otherwise its UID.
func actionRecordIdentity(st *faults.NodeFaultStatus, a *action) (identity *faults.NodeFaultStatus, ordinal string) {
	labels := a.GetLabels()
	identity, ordinal = st, labels[LabelAttempt]
	if labels[LabelSession] != st.Session || st.Session == "" || ordinal == "" {
		identity = &faults.NodeFaultStatus{NodeUID: st.NodeUID, Session: labels[LabelSession]}
		if identity.Session == "" || ordinal == "" { // requested by others; an action of an earlier session keeps its id
			ordinal = string(a.GetUID())
		}
	}
	return identity, ordinal
}

// failAttemptAndRecord ends an attempt with a failure that the janitor has not reported.
func failAttemptAndRecord(in stepInput, reason string) {
	m := in.st.Remediation
	w := actionNamesOf(m.ObjectKind)
	record := nodefault.NewRecord(in.st, sourceRemediation, w.failed, strconv.Itoa(int(m.Attempt)), in.now)
	record.Outcome, record.Reason = changeevent.OutcomeFailed, nodefault.TruncateText(reason, maxText)
	if m.ObjectName != "" {
		record.Object = w.resource + "/" + m.ObjectName
	}
	nodefault.AppendRecordOnceAndTrim(in.st, record)
	endAttempt(m, faults.RemedyFailed, reason, in.now)
}
