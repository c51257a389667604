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
	resource string // of the API
	final    string // condition with the final result

	requested, sent, executed, failed string // actions in records
}

func actionNamesOf(kind string) actionNames {
	if kind == v1alpha1.KindTerminate {
		return actionNames{
			resource:  v1alpha1.ResourceTerminate,
			final:     v1alpha1.ConditionNodeTerminated,
			requested: changeevent.ActionTerminateRequested,
			sent:      changeevent.ActionTerminateSent,
			executed:  changeevent.ActionTerminateExecuted,
			failed:    changeevent.ActionTerminateFailed,
		}
	}
	return actionNames{
		resource:  v1alpha1.ResourceReboot,
		final:     v1alpha1.ConditionNodeReady,
		requested: changeevent.ActionRebootRequested,
		sent:      changeevent.ActionRebootSent,
		executed:  changeevent.ActionRebootExecuted,
		failed:    changeevent.ActionRebootFailed,
	}
}

// RecordJanitorActions records what the janitor has done to a node, regardless of who requested it. It
// records that a request was sent, if the provider has accepted it and no result is
// recorded; that the node was rebooted, if a new boot ID proves it; that the node was
// terminated, if it is gone; and failures. Step does the same, so RecordJanitorActions is only for
// nodes without other work. A deleted node is nil.
func (r *Remediator) RecordJanitorActions(
	ctx context.Context, node *corev1.Node, status *faults.NodeFaultStatus,
) error {
	for _, kind := range []string{v1alpha1.KindReboot, v1alpha1.KindTerminate} {
		all, err := r.actions.listAllOfKind(ctx, kind)
		if err != nil {
			return err
		}
		for _, a := range all {
			if concernsNode(a, node, status) {
				recordSentAndResult(node, status, a)
			}
		}
	}
	return nil
}

// concernsNode reports whether an action concerns the node of status rather than a previous
// node of the same name.
func concernsNode(a *action, node *corev1.Node, status *faults.NodeFaultStatus) bool {
	if uid := a.status.NodeUID; uid != "" && status.NodeUID != "" {
		return uid == status.NodeUID
	}
	if status.Session != "" && a.GetLabels()[LabelSession] == status.Session {
		return true
	}
	return node != nil &&
		a.spec.NodeName == node.Name &&
		!a.GetCreationTimestamp().Time.Before(node.CreationTimestamp.Time)
}

// recordSentAndResult records that a request was sent, and its result.
func recordSentAndResult(node *corev1.Node, status *faults.NodeFaultStatus, a *action) {
	names := actionNamesOf(a.kind)
	sent := meta.FindStatusCondition(a.status.Conditions, v1alpha1.ConditionSignalSent)
	accepted := sent != nil && sent.Status == metav1.ConditionTrue
	done, succeeded, failureReason := a.endState()
	if done || accepted {
		addRequestRecordIfMissing(status, a)
	}
	// Earlier versions recorded only the result.
	hasResult := hasActionRecord(status, a, names.executed) || hasActionRecord(status, a, names.failed)
	if accepted && !hasResult {
		recordActionOnce(status, a, names.sent, sent.LastTransitionTime.Time, "")
	}
	if !done {
		return
	}
	if !succeeded {
		recordActionOnce(status, a, names.failed, a.endedOrCreatedAt(), failureReason)
		return
	}
	if a.kind == v1alpha1.KindTerminate || hasRebooted(node, status, a) {
		recordActionOnce(status, a, names.executed, a.endedOrCreatedAt(), "")
	}
}

// hasRebooted reports whether a finished reboot is proven by a new boot ID. Fleetloop's
// janitor records the boot ID before it. For other janitors, the boot ID at the start of
// the attempt is used.
func hasRebooted(node *corev1.Node, status *faults.NodeFaultStatus, a *action) bool {
	nodeGone := node == nil || a.status.NodeUID != "" && node.UID != a.status.NodeUID
	if nodeGone {
		return a.status.PreviousBootID != "" // Fleetloop's janitor has compared the boot IDs
	}
	before := a.status.PreviousBootID
	current := status.Remediation
	isAttempt := current != nil && current.ObjectKind == a.kind && current.ObjectName == a.GetName()
	if before == "" && isAttempt {
		before = current.PreviousBootID
	}
	after := node.Status.NodeInfo.BootID
	return before != "" && after != "" && after != before
}

func (a *action) endedOrCreatedAt() time.Time {
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
func addRequestRecordIfMissing(status *faults.NodeFaultStatus, a *action) {
	labels, when := a.GetLabels(), a.GetCreationTimestamp().Time
	ofSession := status.Session != "" && labels[LabelSession] == status.Session
	if !ofSession || labels[LabelAttempt] == "" || mayBeTrimmedFromHistory(status, when) {
		return
	}
	names := actionNamesOf(a.kind)
	record := nodefault.NewRecord(status, sourceRemediation, names.requested, labels[LabelAttempt], timeAfterRecordInSameSecond(status, when))
	record.Object = names.resource + "/" + a.GetName()
	nodefault.AppendRecordOnceAndTrim(status, record)
}

// timeAfterRecordInSameSecond returns the time of an event that is known only to the second. If
// the last record is in the same second, the result is after it.
func timeAfterRecordInSameSecond(status *faults.NodeFaultStatus, when time.Time) time.Time {
	if len(status.History) == 0 {
		return when
	}
	last := status.History[len(status.History)-1].At.Time
	if when.After(last) || !last.Truncate(time.Second).Equal(when.Truncate(time.Second)) {
		return when
	}
	return last.Add(time.Millisecond)
}

// mayBeTrimmedFromHistory reports whether an event at a time may have been recorded and dropped from
// the history since.
func mayBeTrimmedFromHistory(status *faults.NodeFaultStatus, when time.Time) bool {
	return len(status.History) > 0 && status.History[0].Sequence > 1 && when.Before(status.History[0].At.Time)
}

// recordActionOnce records an action once. An action of the session is identified by the
// session and the attempt, any other by its UID. A record that may have been dropped from
// the history is not repeated.
func recordActionOnce(
	status *faults.NodeFaultStatus, a *action, changeAction string, when time.Time, failureReason string,
) {
	if mayBeTrimmedFromHistory(status, when) {
		return
	}
	about, ordinal := actionRecordIdentity(status, a)
	record := nodefault.NewRecord(about, sourceJanitor, changeAction, ordinal, timeAfterRecordInSameSecond(status, when))
	record.Object = actionNamesOf(a.kind).resource + "/" + a.GetName()
	if failureReason != "" {
		record.Outcome, record.Reason = changeevent.OutcomeFailed, nodefault.TruncateText(failureReason, maxText)
	}
	nodefault.AppendRecordOnceAndTrim(status, record)
}

// hasActionRecord reports whether a record of an action exists.
func hasActionRecord(status *faults.NodeFaultStatus, a *action, changeAction string) bool {
	about, ordinal := actionRecordIdentity(status, a)
	return nodefault.HasRecord(status, nodefault.RecordID(about.NodeUID, about.Session, changeAction, ordinal))
}

// actionRecordIdentity returns the identity of an action in records: its session and attempt, or
// otherwise its UID.
func actionRecordIdentity(
	status *faults.NodeFaultStatus, a *action,
) (identity *faults.NodeFaultStatus, ordinal string) {
	labels := a.GetLabels()
	session, attempt := labels[LabelSession], labels[LabelAttempt]
	if status.Session != "" && session == status.Session && attempt != "" {
		return status, attempt
	}
	identity = &faults.NodeFaultStatus{NodeUID: status.NodeUID, Session: session}
	if session != "" && attempt != "" { // an action of an earlier session keeps its id
		return identity, attempt
	}
	return identity, string(a.GetUID()) // requested by others
}

// failAttemptAndRecord ends an attempt with a failure that the janitor has not reported.
func failAttemptAndRecord(in stepInput, reason string) {
	current := in.status.Remediation
	names := actionNamesOf(current.ObjectKind)
	record := nodefault.NewRecord(in.status, sourceRemediation, names.failed, strconv.Itoa(int(current.Attempt)), in.now)
	record.Outcome, record.Reason = changeevent.OutcomeFailed, nodefault.TruncateText(reason, maxText)
	if current.ObjectName != "" {
		record.Object = names.resource + "/" + current.ObjectName
	}
	nodefault.AppendRecordOnceAndTrim(in.status, record)
	endAttempt(current, faults.RemedyFailed, reason, in.now)
}
