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

// advanceRunningAttempt advances the attempt in progress.
func (r *Remediator) advanceRunningAttempt(ctx context.Context, in stepInput) (again time.Duration, err error) {
	m := in.st.Remediation
	if !hasSessionRecord(in.st, actionNamesOf(m.ObjectKind).requested, strconv.Itoa(int(m.Attempt))) {
		return r.createOrAdoptActionOrEndAttempt(ctx, in)
	}
	a, err := r.actions.get(ctx, m)
	if err != nil {
		return 0, err
	}
	if a == nil {
		return r.endAttemptIfActionDeleted(ctx, in)
	}
	if m.PreviousBootID == "" {
		m.PreviousBootID = a.bootIDBeforeReboot(in.node)
	}
	switch done, ok, why := a.endState(); {
	case done && ok:
		return r.endSucceededUnlessBootIDUnchanged(in, a), nil
	case done:
		endAttempt(m, faults.RemedyFailed, why, in.now)
		return 0, nil
	case !in.now.Before(m.Deadline.Time):
		if err := r.actions.delete(ctx, m); err != nil {
			return 0, err
		}
		why := strings.TrimSpace(fmt.Sprintf("%s %s was not completed before its deadline: is a janitor running? %s", m.ObjectKind, m.ObjectName, a.status.Message))
		failAttemptAndRecord(in, why)
		return 0, nil
	}
	m.Message = nodefault.TruncateText(a.status.Message, maxText)
	return min(r.cfg.Poll, max(time.Second, m.Deadline.Sub(in.now))), nil
}

// maxText limits messages and reasons, in bytes.
const maxText = 512

// endSucceededUnlessBootIDUnchanged accepts the success of an action, unless the boot ID shows no reboot.
func (r *Remediator) endSucceededUnlessBootIDUnchanged(in stepInput, a *action) (again time.Duration) {
	const unchanged = "the janitor reports a reboot, but the boot ID is unchanged"
	m := in.st.Remediation
	switch same := m.Action == faults.RemedyReboot && in.node != nil && m.PreviousBootID != "" && in.node.Status.NodeInfo.BootID == m.PreviousBootID; {
	case same && in.now.Before(m.Deadline.Time):
		m.Message = unchanged + "; waiting"
		return r.cfg.Poll
	case same:
		failAttemptAndRecord(in, unchanged)
	default:
		endAttempt(m, faults.RemedySucceeded, a.status.Message, in.now)
	}
	return 0
}

// createOrAdoptActionOrEndAttempt creates the object of a recorded attempt, unless it is no longer needed.
// The object may already exist if the write of its record was lost.
func (r *Remediator) createOrAdoptActionOrEndAttempt(ctx context.Context, in stepInput) (again time.Duration, err error) {
	m := in.st.Remediation
	late := !in.now.Before(m.Deadline.Time)
	if late || !in.requiresRemedyNow() {
		there, err := r.actions.existsByDryRunCreate(ctx, in.st.Remediation, newRebootOrTerminateNode(in, r.cfg.PodsStay))
		switch {
		case err != nil:
			return 0, err
		case there:
			return r.adoptAction(ctx, in)
		case late:
			why := strings.TrimSpace("node-fault-controller could not create the request before its deadline. " + m.Message)
			failAttemptAndRecord(in, why)
		case in.node == nil:
			endAttempt(m, faults.RemedyFailed, "the node was deleted", in.now)
		default:
			endAttempt(m, faults.RemedyFailed, "not needed any more", in.now)
		}
		return 0, nil
	}
	o := newRebootOrTerminateNode(in, r.cfg.PodsStay)
	err = r.actions.client.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		return r.adoptAction(ctx, in)
	}
	if isForbiddenInvalidOrNotFound(err) {
		m.Message = nodefault.TruncateText(fmt.Sprintf("cannot create %s: %v", m.ObjectKind, err), maxText)
		return r.cfg.Poll, nil
	}
	if err != nil {
		return 0, fmt.Errorf("create %s %q: %w", m.ObjectKind, m.ObjectName, err)
	}
	recordAttemptRequested(in, in.now)
	return 0, nil
}

// adoptAction continues with an existing object, if this package has created it.
func (r *Remediator) adoptAction(ctx context.Context, in stepInput) (again time.Duration, err error) {
	m := in.st.Remediation
	a, err := r.actions.get(ctx, m)
	if err != nil {
		return 0, err
	}
	if a == nil { // the cache is stale
		return soon, nil
	}
	if has := a.GetLabels(); has[LabelSession] != in.st.Session || has[LabelAttempt] != strconv.Itoa(int(m.Attempt)) {
		endAttempt(m, faults.RemedyFailed, fmt.Sprintf("%s %q already exists, but node-fault-controller did not create it: delete it", m.ObjectKind, m.ObjectName), in.now)
		m.ObjectName = ""
		return 0, nil
	}
	recordAttemptRequested(in, timeAfterRecordInSameSecond(in.st, a.GetCreationTimestamp().Time))
	return 0, nil
}

// isForbiddenInvalidOrNotFound reports whether an object cannot be created until a person intervenes.
// Either the permission, the definition or the namespace is missing, or the object is
// invalid.
func isForbiddenInvalidOrNotFound(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}

// soon is the requeue delay while the cache is stale.
const soon = 250 * time.Millisecond

// recordAttemptRequested records that the object of an attempt was created.
func recordAttemptRequested(in stepInput, when time.Time) {
	m := in.st.Remediation
	m.Message = ""
	w := actionNamesOf(m.ObjectKind)
	record := nodefault.NewRecord(in.st, sourceRemediation, w.requested, strconv.Itoa(int(m.Attempt)), when)
	record.Object = w.resource + "/" + m.ObjectName
	nodefault.AppendRecordOnceAndTrim(in.st, record)
}

// newRebootOrTerminateNode returns the object of an attempt. It is forced despite pods on the node if no
// drain was required, the drain did not complete, or some pods stay on purpose.
func newRebootOrTerminateNode(in stepInput, podsStay bool) client.Object {
	m := in.st.Remediation
	undrained := podsStay || in.st.Drain == nil || in.st.Drain.State != faults.DrainCompleted
	spec := v1alpha1.NodeActionSpec{NodeName: m.ObjectName, Force: undrained} // for a deleted node the object is only used to check whether it exists
	if in.node != nil {
		spec.NodeName = in.node.Name
	}
	about := metav1.ObjectMeta{
		Name:   m.ObjectName,
		Labels: map[string]string{LabelSession: in.st.Session, LabelAttempt: strconv.Itoa(int(m.Attempt))},
	}
	if m.ObjectKind == v1alpha1.KindTerminate {
		return &v1alpha1.TerminateNode{ObjectMeta: about, Spec: spec}
	}
	return &v1alpha1.RebootNode{ObjectMeta: about, Spec: spec}
}

// endAttemptIfActionDeleted handles an object that is not in the cache.
func (r *Remediator) endAttemptIfActionDeleted(ctx context.Context, in stepInput) (again time.Duration, err error) {
	m := in.st.Remediation
	there, err := r.actions.existsByDryRunCreate(ctx, in.st.Remediation, newRebootOrTerminateNode(in, r.cfg.PodsStay))
	switch {
	case err != nil:
		return 0, err
	case there: // the cache is stale
		return soon, nil
	case in.node == nil && m.Action == faults.RemedyTerminate: // the object was deleted after the node
		endAttempt(m, faults.RemedySucceeded, "the node was deleted", in.now)
	case in.node == nil:
		endAttempt(m, faults.RemedyFailed, "the node was deleted", in.now)
	default:
		endExhaustedAndRecordSupportRequired(in, m.Action, int(m.RemedyIndex), fmt.Sprintf("%s %s was deleted by another client, which ends the automatic repair", m.ObjectKind, m.ObjectName))
	}
	return 0, nil
}

// An actionStore holds the objects of attempts. Its client may read from a cache.
type actionStore struct{ client client.Client }

// existsByDryRunCreate reports whether the object of an attempt exists in the API server. It uses
// a dry-run create of the wanted object, which reads past the cache.
func (s *actionStore) existsByDryRunCreate(ctx context.Context, m *faults.RemediationStatus, wanted client.Object) (exists bool, err error) {
	if a, err := s.get(ctx, m); err != nil || a != nil {
		return a != nil, err
	}
	err = s.client.Create(ctx, wanted, client.DryRunAll)
	switch {
	case err == nil, isForbiddenInvalidOrNotFound(err): // an object that cannot be created was not created before
		return false, nil
	case apierrors.IsAlreadyExists(err):
		return true, nil
	}
	return false, fmt.Errorf("look for %s %q: %w", m.ObjectKind, m.ObjectName, err)
}

// delete deletes the object of an attempt that has timed out, so that it is not
// executed later.
func (s *actionStore) delete(ctx context.Context, m *faults.RemediationStatus) error {
	o := newEmptyRebootOrTerminateNode(m.ObjectKind)
	o.SetName(m.ObjectName)
	if err := s.client.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %q: %w", m.ObjectKind, m.ObjectName, err)
	}
	return nil
}

// get returns the object of an attempt, or nil if it does not exist.
func (s *actionStore) get(ctx context.Context, m *faults.RemediationStatus) (*action, error) {
	o := newEmptyRebootOrTerminateNode(m.ObjectKind)
	err := s.client.Get(ctx, client.ObjectKey{Name: m.ObjectName}, o)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // one that is not there is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", m.ObjectKind, m.ObjectName, err)
	}
	return wrapActionObject(o), nil
}

// list lists the objects of a kind. The caller must not change them.
func (s *actionStore) list(ctx context.Context, kind string) (all []*action, err error) {
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
	if t, ends := o.(*v1alpha1.TerminateNode); ends {
		return &action{o, v1alpha1.KindTerminate, &t.Spec, &t.Status}
	}
	if b, reboots := o.(*v1alpha1.RebootNode); reboots {
		return &action{o, v1alpha1.KindReboot, &b.Spec, &b.Status}
	}
	return &action{o, "", &v1alpha1.NodeActionSpec{}, &v1alpha1.NodeActionStatus{}}
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

// mayHaveBeenSent reports whether the provider has accepted the request, or may have.
func (a *action) mayHaveBeenSent() bool {
	c := meta.FindStatusCondition(a.status.Conditions, v1alpha1.ConditionSignalSent)
	return c != nil && c.Status != metav1.ConditionFalse
}

// bootIDBeforeReboot returns the boot ID before a reboot, for a node that had none when the
// attempt began. It is the boot ID that the janitor has recorded, or the one of the node
// while the request is not sent yet.
func (a *action) bootIDBeforeReboot(node *corev1.Node) string {
	if a.kind != v1alpha1.KindReboot || a.status.PreviousBootID != "" || node == nil || a.mayHaveBeenSent() {
		return a.status.PreviousBootID
	}
	return node.Status.NodeInfo.BootID
}

// finalCondition returns the condition with the final result.
func (a *action) finalCondition() *metav1.Condition {
	return meta.FindStatusCondition(a.status.Conditions, actionNamesOf(a.kind).final)
}

// endState reports whether an action has ended, whether it succeeded, and why not.
func (a *action) endState() (done, succeeded bool, failureReason string) {
	c := a.finalCondition()
	switch {
	case c != nil && c.Status == metav1.ConditionTrue:
		return true, true, ""
	case c != nil && c.Status == metav1.ConditionFalse && (c.Reason == v1alpha1.ReasonFailed || c.Reason == v1alpha1.ReasonTimeout),
		a.status.CompletionTime != nil:
		return true, false, strings.TrimSpace(fmt.Sprintf("%s %s failed: %s", a.kind, a.GetName(), a.statusOrConditionMessage()))
	}
	return false, false, ""
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
