package remediation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

const maxName = 253

// attemptObjectName returns the name of the object of an attempt.
func attemptObjectName(node, session string, attempt int32) string {
	tail := fmt.Sprintf("-%s-%d", session, attempt)
	if len(node)+len(tail) > maxName {
		sum := sha256.Sum256([]byte(node))
		tail = "-" + hex.EncodeToString(sum[:4]) + tail
		node = strings.TrimRight(node[:maxName-len(tail)], "-.")
	}
	return node + tail
}

// createOrFollowAttemptAction advances the attempt in progress.
func (r *Remediator) createOrFollowAttemptAction(
	ctx context.Context, in stepInput,
) (delay time.Duration, err error) {
	current := in.status.Remediation
	if !hasSessionRecord(in.status, actionNamesOf(current.ObjectKind).requested, strconv.Itoa(int(current.Attempt))) {
		return r.createOrAdoptActionOrEndAttempt(ctx, in)
	}
	a, err := r.actions.get(ctx, current)
	if err != nil {
		return 0, err
	}
	if a == nil {
		return r.endRepairIfActionDeleted(ctx, in)
	}
	if current.PreviousBootID == "" {
		current.PreviousBootID = a.bootIDBeforeReboot(in.node)
	}
	if d := a.status.Deadline; d != nil && current.Deadline.Time.Before(d.Add(slack)) {
		current.Deadline = metav1.NewTime(d.Add(slack)) // the action began long after the attempt
	}
	done, succeeded, failureReason := a.endState()
	switch {
	case done && succeeded:
		return r.endSucceededUnlessBootIDUnchanged(in, a), nil
	case done:
		endAttempt(current, faults.RemedyFailed, failureReason, in.now)
		return 0, nil
	case !in.now.Before(current.Deadline.Time):
		if err := r.actions.delete(ctx, current, a); err != nil {
			return 0, err
		}
		reason := fmt.Sprintf("%s %s was not completed before its deadline: is a janitor running? %s",
			current.ObjectKind, current.ObjectName, a.status.Message)
		failAttemptAndRecord(in, strings.TrimSpace(reason))
		return 0, nil
	}
	current.Message = nodefault.TruncateText(a.status.Message, maxText)
	return min(r.cfg.Poll, max(time.Second, current.Deadline.Sub(in.now))), nil
}

// slack is how long an action is followed after the deadline of the janitor, which reports first,
// with a more precise error.
const slack = 5 * time.Minute

// maxText limits messages and reasons, in bytes.
const maxText = 512

// endSucceededUnlessBootIDUnchanged accepts the success of an action, unless the boot ID shows no
// reboot.
func (r *Remediator) endSucceededUnlessBootIDUnchanged(in stepInput, a *action) (delay time.Duration) {
	const unchanged = "the janitor reports a reboot, but the boot ID is unchanged"
	current := in.status.Remediation
	bootIDKnown := in.node != nil && current.PreviousBootID != ""
	sameBootID := bootIDKnown && in.node.Status.NodeInfo.BootID == current.PreviousBootID
	if current.Action != faults.RemedyReboot || !sameBootID {
		endAttempt(current, faults.RemedySucceeded, a.status.Message, in.now)
		return 0
	}
	if in.now.Before(current.Deadline.Time) {
		current.Message = unchanged + "; waiting"
		return r.cfg.Poll
	}
	failAttemptAndRecord(in, unchanged)
	return 0
}

// createOrAdoptActionOrEndAttempt creates the object of a recorded attempt, unless it is no
// longer needed. The object may already exist if the write of its record was lost.
func (r *Remediator) createOrAdoptActionOrEndAttempt(
	ctx context.Context, in stepInput,
) (delay time.Duration, err error) {
	current := in.status.Remediation
	if !in.now.Before(current.Deadline.Time) || !in.requiresRemedyNow() {
		return r.adoptActionOrEndUnneededAttempt(ctx, in)
	}
	err = r.actions.client.Create(ctx, newRebootOrTerminateNode(in, r.cfg.PodsStay))
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.adoptAction(ctx, in)
	case isForbiddenInvalidOrNotFound(err):
		message := fmt.Sprintf("cannot create %s: %v", current.ObjectKind, err)
		current.Message = nodefault.TruncateText(message, maxText)
		return r.cfg.Poll, nil
	case err != nil:
		return 0, fmt.Errorf("create %s %q: %w", current.ObjectKind, current.ObjectName, err)
	}
	recordAttemptRequested(in, in.now)
	return 0, nil
}

// adoptActionOrEndUnneededAttempt ends an attempt whose object must not be created any more. If the
// object exists, the attempt continues.
func (r *Remediator) adoptActionOrEndUnneededAttempt(
	ctx context.Context, in stepInput,
) (delay time.Duration, err error) {
	current := in.status.Remediation
	exists, err := r.actions.existsByDryRunCreate(ctx, current, newRebootOrTerminateNode(in, r.cfg.PodsStay))
	switch {
	case err != nil:
		return 0, err
	case exists:
		return r.adoptAction(ctx, in)
	case !in.now.Before(current.Deadline.Time):
		reason := "node-fault-controller could not create the request before its deadline. " + current.Message
		failAttemptAndRecord(in, strings.TrimSpace(reason))
	case in.node == nil:
		endAttempt(current, faults.RemedyFailed, "the node was deleted", in.now)
	default:
		endAttempt(current, faults.RemedyFailed, "not needed any more", in.now)
	}
	return 0, nil
}

// adoptAction continues with an existing object, if this package has created it.
func (r *Remediator) adoptAction(ctx context.Context, in stepInput) (delay time.Duration, err error) {
	current := in.status.Remediation
	a, err := r.actions.get(ctx, current)
	if err != nil {
		return 0, err
	}
	if a == nil { // the cache is stale
		return requeueSoon, nil
	}
	labels := a.GetLabels()
	ours := labels[LabelSession] == in.status.Session && labels[LabelAttempt] == strconv.Itoa(int(current.Attempt))
	if !ours {
		reason := fmt.Sprintf("%s %q already exists, but node-fault-controller did not create it: delete it",
			current.ObjectKind, current.ObjectName)
		endAttempt(current, faults.RemedyFailed, reason, in.now)
		current.ObjectName = ""
		return 0, nil
	}
	recordAttemptRequested(in, timeAfterRecordInSameSecond(in.status, a.GetCreationTimestamp().Time))
	return 0, nil
}

// isForbiddenInvalidOrNotFound reports whether an object cannot be created until a person intervenes.
// Either the permission, the definition or the namespace is missing, or the object is
// invalid.
func isForbiddenInvalidOrNotFound(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}

// requeueSoon is the requeue delay while the cache is stale.
const requeueSoon = 250 * time.Millisecond

// recordAttemptRequested records that the object of an attempt was created.
func recordAttemptRequested(in stepInput, when time.Time) {
	current := in.status.Remediation
	current.Message = ""
	names := actionNamesOf(current.ObjectKind)
	record := nodefault.NewRecord(in.status, sourceRemediation, names.requested, strconv.Itoa(int(current.Attempt)), when)
	record.Object = names.resource + "/" + current.ObjectName
	nodefault.AppendRecordOnceAndTrim(in.status, record)
}

// newRebootOrTerminateNode returns the object of an attempt. It is forced despite pods on the
// node if no drain was required, the drain did not complete, or some pods stay on purpose.
func newRebootOrTerminateNode(in stepInput, podsStay bool) client.Object {
	current := in.status.Remediation
	drained := in.status.Drain != nil && in.status.Drain.State == faults.DrainCompleted
	nodeName := current.ObjectName // for a deleted node the object is only used to check whether it exists
	if in.node != nil {
		nodeName = in.node.Name
	}
	spec := v1alpha1.NodeActionSpec{NodeName: nodeName, Force: podsStay || !drained}
	metadata := metav1.ObjectMeta{
		Name: current.ObjectName,
		Labels: map[string]string{
			LabelSession: in.status.Session,
			LabelAttempt: strconv.Itoa(int(current.Attempt)),
		},
	}
	if current.ObjectKind == v1alpha1.KindTerminate {
		return &v1alpha1.TerminateNode{ObjectMeta: metadata, Spec: spec}
	}
	return &v1alpha1.RebootNode{ObjectMeta: metadata, Spec: spec}
}

// endRepairIfActionDeleted handles an object that is not in the cache.
func (r *Remediator) endRepairIfActionDeleted(
	ctx context.Context, in stepInput,
) (delay time.Duration, err error) {
	current := in.status.Remediation
	exists, err := r.actions.existsByDryRunCreate(ctx, current, newRebootOrTerminateNode(in, r.cfg.PodsStay))
	switch {
	case err != nil:
		return 0, err
	case exists: // the cache is stale
		return requeueSoon, nil
	case in.node == nil && current.Action == faults.RemedyTerminate: // the object was deleted after the node
		endAttempt(current, faults.RemedySucceeded, "the node was deleted", in.now)
	case in.node == nil:
		endAttempt(current, faults.RemedyFailed, "the node was deleted", in.now)
	default:
		reason := fmt.Sprintf("%s %s was deleted by another client, which ends the automatic repair",
			current.ObjectKind, current.ObjectName)
		endExhaustedAndRecordSupportRequired(in, current.Action, int(current.RemedyIndex), reason)
	}
	return 0, nil
}

// An actionStore holds the objects of attempts. Its client may read from a cache.
type actionStore struct{ client client.Client }

// existsByDryRunCreate reports whether the object of an attempt exists in the API server. It uses
// a dry-run create of the wanted object, which reads past the cache.
func (s *actionStore) existsByDryRunCreate(
	ctx context.Context, current *faults.RemediationStatus, wanted client.Object,
) (exists bool, err error) {
	if a, err := s.get(ctx, current); err != nil || a != nil {
		return a != nil, err
	}
	err = s.client.Create(ctx, wanted, client.DryRunAll)
	switch {
	case err == nil, isForbiddenInvalidOrNotFound(err): // an object that cannot be created was not created before
		return false, nil
	case apierrors.IsAlreadyExists(err):
		return true, nil
	}
	return false, fmt.Errorf("look for %s %q: %w", current.ObjectKind, current.ObjectName, err)
}

// delete deletes the object of an attempt, so that it is not executed later. An object that has
// changed since it was read is kept, because its request may be accepted by now.
func (s *actionStore) delete(ctx context.Context, current *faults.RemediationStatus, read *action) error {
	o := newEmptyRebootOrTerminateNode(current.ObjectKind)
	o.SetName(current.ObjectName)
	var unchanged client.Preconditions
	if read != nil {
		uid, version := read.GetUID(), read.GetResourceVersion()
		unchanged = client.Preconditions{UID: &uid, ResourceVersion: &version}
	}
	if err := s.client.Delete(ctx, o, unchanged); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %q: %w", current.ObjectKind, current.ObjectName, err)
	}
	return nil
}

// get returns the object of an attempt, or nil if it does not exist.
func (s *actionStore) get(ctx context.Context, current *faults.RemediationStatus) (*action, error) {
	o := newEmptyRebootOrTerminateNode(current.ObjectKind)
	err := s.client.Get(ctx, client.ObjectKey{Name: current.ObjectName}, o)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // one that is not there is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", current.ObjectKind, current.ObjectName, err)
	}
	return wrapActionObject(o), nil
}

// listAllOfKind lists the objects of a kind. The caller must not change them.
func (s *actionStore) listAllOfKind(ctx context.Context, kind string) (all []*action, err error) {
	var list client.ObjectList = &v1alpha1.RebootNodeList{}
	if kind == v1alpha1.KindTerminate {
		list = &v1alpha1.TerminateNodeList{}
	}
	if err := s.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list %ss: %w", kind, err)
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		all = append(all, wrapActionObject(o.(client.Object))) //nolint:errcheck,forcetypeassert // both lists hold objects
		return nil
	})
	return all, err
}

// An action is a RebootNode or a TerminateNode.
type action struct {
	client.Object
	kind   string
	spec   *v1alpha1.NodeActionSpec
	status *v1alpha1.NodeActionStatus
}

func wrapActionObject(o client.Object) *action {
	switch typed := o.(type) {
	case *v1alpha1.TerminateNode:
		return &action{Object: o, kind: v1alpha1.KindTerminate, spec: &typed.Spec, status: &typed.Status}
	case *v1alpha1.RebootNode:
		return &action{Object: o, kind: v1alpha1.KindReboot, spec: &typed.Spec, status: &typed.Status}
	default:
		return &action{Object: o, spec: &v1alpha1.NodeActionSpec{}, status: &v1alpha1.NodeActionStatus{}}
	}
}

func newEmptyRebootOrTerminateNode(kind string) client.Object {
	if kind == v1alpha1.KindTerminate {
		return &v1alpha1.TerminateNode{}
	}
	return &v1alpha1.RebootNode{}
}

func actionKindFor(remedy faults.Remedy) string {
	if remedy == faults.RemedyTerminate {
		return v1alpha1.KindTerminate
	}
	return v1alpha1.KindReboot
}

// isAccepted reports whether the provider has accepted the request.
func (a *action) isAccepted() bool {
	return meta.IsStatusConditionTrue(a.status.Conditions, v1alpha1.ConditionSignalSent)
}

// mayHaveBeenSent reports whether the provider has accepted the request, or may have.
func (a *action) mayHaveBeenSent() bool {
	c := meta.FindStatusCondition(a.status.Conditions, v1alpha1.ConditionSignalSent)
	return c != nil && c.Status != metav1.ConditionFalse
}

// bootIDBeforeReboot returns the boot ID before a reboot, for a node that had none when the
// attempt began. It is the boot ID that the janitor has recorded, or the one of the node
// while the request is not sent yet.
func (a *action) bootIDBeforeReboot(node *corev1.Node) string {
	notSentYet := a.kind == v1alpha1.KindReboot && node != nil && !a.mayHaveBeenSent()
	if a.status.PreviousBootID == "" && notSentYet {
		return node.Status.NodeInfo.BootID
	}
	return a.status.PreviousBootID
}

// finalCondition returns the condition with the final result.
func (a *action) finalCondition() *metav1.Condition {
	return meta.FindStatusCondition(a.status.Conditions, actionNamesOf(a.kind).final)
}

// endState reports whether an action has ended, whether it succeeded, and why not.
func (a *action) endState() (done, succeeded bool, failureReason string) {
	final := a.finalCondition()
	if final != nil && final.Status == metav1.ConditionTrue {
		return true, true, ""
	}
	failed := final != nil && final.Status == metav1.ConditionFalse &&
		(final.Reason == v1alpha1.ReasonFailed || final.Reason == v1alpha1.ReasonTimeout)
	if !failed && a.status.CompletionTime == nil {
		return false, false, ""
	}
	failureReason = fmt.Sprintf("%s %s failed: %s", a.kind, a.GetName(), a.statusOrConditionMessage())
	return true, false, strings.TrimSpace(failureReason)
}

func (a *action) statusOrConditionMessage() string {
	if a.status.Message != "" {
		return a.status.Message
	}
	if c := a.finalCondition(); c != nil && c.Message != "" {
		return c.Message
	}
	return "the janitor gave no cause"
}

// failedWithoutTimeout reports whether another attempt would be rejected, too.
func (a *action) failedWithoutTimeout() bool {
	c := a.finalCondition()
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonFailed
}
