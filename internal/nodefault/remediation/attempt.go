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

// objectName returns the name of the object of an attempt.
func objectName(node, session string, attempt int32) string {
	tail := fmt.Sprintf("-%s-%d", session, attempt)
	if len(node)+len(tail) > maxName {
		sum := sha256.Sum256([]byte(node))
		tail = "-" + hex.EncodeToString(sum[:4]) + tail
		node = strings.TrimRight(node[:maxName-len(tail)], "-.")
	}
	return node + tail
}

// followAttempt advances the attempt in progress.
func (r *Remediator) followAttempt(ctx context.Context, l look) (again time.Duration, err error) {
	m := l.st.Remediation
	if !wasRecorded(l.st, vocabularyOf(m.ObjectKind).requested, strconv.Itoa(int(m.Attempt))) {
		return r.createOrAdoptAction(ctx, l)
	}
	a, err := r.actions.get(ctx, m)
	if err != nil {
		return 0, err
	}
	if a == nil {
		return r.handleMissingAction(ctx, l)
	}
	if m.PreviousBootID == "" {
		m.PreviousBootID = a.bootIDBefore(l.node)
	}
	switch done, ok, why := a.endState(); {
	case done && ok:
		return r.confirmSuccess(l, a), nil
	case done:
		endAttempt(m, faults.RemedyFailed, why, l.now)
		return 0, nil
	case !l.now.Before(m.Deadline.Time):
		if err := r.actions.delete(ctx, m); err != nil {
			return 0, err
		}
		why := strings.TrimSpace(fmt.Sprintf("%s %s was not completed before its deadline: is a janitor running? %s", m.ObjectKind, m.ObjectName, a.status.Message))
		failAttempt(l, why)
		return 0, nil
	}
	m.Message = nodefault.TruncateText(a.status.Message, maxText)
	return min(r.cfg.Poll, max(time.Second, m.Deadline.Sub(l.now))), nil
}

// maxText limits messages and reasons, in bytes.
const maxText = 512

// confirmSuccess accepts the success of an action, unless the boot ID shows no reboot.
func (r *Remediator) confirmSuccess(l look, a *action) (again time.Duration) {
	const unchanged = "the janitor reports a reboot, but the boot ID is unchanged"
	m := l.st.Remediation
	switch same := m.Action == faults.RemedyReboot && l.node != nil && m.PreviousBootID != "" && l.node.Status.NodeInfo.BootID == m.PreviousBootID; {
	case same && l.now.Before(m.Deadline.Time):
		m.Message = unchanged + "; waiting"
		return r.cfg.Poll
	case same:
		failAttempt(l, unchanged)
	default:
		endAttempt(m, faults.RemedySucceeded, a.status.Message, l.now)
	}
	return 0
}

// createOrAdoptAction creates the object of a recorded attempt, unless it is no longer needed.
// The object may already exist if the write of its record was lost.
func (r *Remediator) createOrAdoptAction(ctx context.Context, l look) (again time.Duration, err error) {
	m := l.st.Remediation
	late := !l.now.Before(m.Deadline.Time)
	if late || !l.isWanted() {
		there, err := r.actions.exists(ctx, l.st.Remediation, newAction(l, r.cfg.PodsStay))
		switch {
		case err != nil:
			return 0, err
		case there:
			return r.adoptAction(ctx, l)
		case late:
			why := strings.TrimSpace("node-fault-controller could not create the request before its deadline. " + m.Message)
			failAttempt(l, why)
		case l.node == nil:
			endAttempt(m, faults.RemedyFailed, "the node was deleted", l.now)
		default:
			endAttempt(m, faults.RemedyFailed, "not needed any more", l.now)
		}
		return 0, nil
	}
	o := newAction(l, r.cfg.PodsStay)
	err = r.actions.client.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		return r.adoptAction(ctx, l)
	}
	if isPermanent(err) {
		m.Message = nodefault.TruncateText(fmt.Sprintf("cannot create %s: %v", m.ObjectKind, err), maxText)
		return r.cfg.Poll, nil
	}
	if err != nil {
		return 0, fmt.Errorf("create %s %q: %w", m.ObjectKind, m.ObjectName, err)
	}
	recordRequested(l, l.now)
	return 0, nil
}

// adoptAction continues with an existing object, if this package has created it.
func (r *Remediator) adoptAction(ctx context.Context, l look) (again time.Duration, err error) {
	m := l.st.Remediation
	a, err := r.actions.get(ctx, m)
	if err != nil {
		return 0, err
	}
	if a == nil { // the cache is stale
		return soon, nil
	}
	if has := a.GetLabels(); has[LabelSession] != l.st.Session || has[LabelAttempt] != strconv.Itoa(int(m.Attempt)) {
		endAttempt(m, faults.RemedyFailed, fmt.Sprintf("%s %q already exists, but node-fault-controller did not create it: delete it", m.ObjectKind, m.ObjectName), l.now)
		m.ObjectName = ""
		return 0, nil
	}
	recordRequested(l, nextRecordTime(l.st, a.GetCreationTimestamp().Time))
	return 0, nil
}

// isPermanent reports whether an object cannot be created until a person intervenes.
// Either the permission, the definition or the namespace is missing, or the object is
// invalid.
func isPermanent(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}

// soon is the requeue delay while the cache is stale.
const soon = 250 * time.Millisecond

// recordRequested records that the object of an attempt was created.
func recordRequested(l look, when time.Time) {
	m := l.st.Remediation
	m.Message = ""
	w := vocabularyOf(m.ObjectKind)
	record := nodefault.NewRecord(l.st, sourceRemediation, w.requested, strconv.Itoa(int(m.Attempt)), when)
	record.Object = w.resource + "/" + m.ObjectName
	nodefault.AddRecordOnce(l.st, record)
}

// newAction returns the object of an attempt. It is forced despite pods on the node if no
// drain was required, the drain did not complete, or some pods stay on purpose.
func newAction(l look, podsStay bool) client.Object {
	m := l.st.Remediation
	undrained := podsStay || l.st.Drain == nil || l.st.Drain.State != faults.DrainCompleted
	spec := v1alpha1.NodeActionSpec{NodeName: m.ObjectName, Force: undrained} // for a deleted node the object is only used to check whether it exists
	if l.node != nil {
		spec.NodeName = l.node.Name
	}
	about := metav1.ObjectMeta{
		Name:   m.ObjectName,
		Labels: map[string]string{LabelSession: l.st.Session, LabelAttempt: strconv.Itoa(int(m.Attempt))},
	}
	if m.ObjectKind == v1alpha1.KindTerminate {
		return &v1alpha1.TerminateNode{ObjectMeta: about, Spec: spec}
	}
	return &v1alpha1.RebootNode{ObjectMeta: about, Spec: spec}
}

// handleMissingAction handles an object that is not in the cache.
func (r *Remediator) handleMissingAction(ctx context.Context, l look) (again time.Duration, err error) {
	m := l.st.Remediation
	there, err := r.actions.exists(ctx, l.st.Remediation, newAction(l, r.cfg.PodsStay))
	switch {
	case err != nil:
		return 0, err
	case there: // the cache is stale
		return soon, nil
	case l.node == nil && m.Action == faults.RemedyTerminate: // the object was deleted after the node
		endAttempt(m, faults.RemedySucceeded, "the node was deleted", l.now)
	case l.node == nil:
		endAttempt(m, faults.RemedyFailed, "the node was deleted", l.now)
	default:
		endExhausted(l, m.Action, int(m.RemedyIndex), fmt.Sprintf("%s %s was deleted by another client, which ends the automatic repair", m.ObjectKind, m.ObjectName))
	}
	return 0, nil
}

// An actionStore holds the objects of attempts. Its client may read from a cache.
type actionStore struct{ client client.Client }

// exists reports whether the object of an attempt exists in the API server. It uses
// a dry-run create of the wanted object, which reads past the cache.
func (s *actionStore) exists(ctx context.Context, m *faults.RemediationStatus, wanted client.Object) (bool, error) {
	if a, err := s.get(ctx, m); err != nil || a != nil {
		return a != nil, err
	}
	err := s.client.Create(ctx, wanted, client.DryRunAll)
	switch {
	case err == nil, isPermanent(err): // an object that cannot be created was not created before
		return false, nil
	case apierrors.IsAlreadyExists(err):
		return true, nil
	}
	return false, fmt.Errorf("look for %s %q: %w", m.ObjectKind, m.ObjectName, err)
}

// delete deletes the object of an attempt that has timed out, so that it is not
// executed later.
func (s *actionStore) delete(ctx context.Context, m *faults.RemediationStatus) error {
	o := newEmptyAction(m.ObjectKind)
	o.SetName(m.ObjectName)
	if err := s.client.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %q: %w", m.ObjectKind, m.ObjectName, err)
	}
	return nil
}

// get returns the object of an attempt, or nil if it does not exist.
func (s *actionStore) get(ctx context.Context, m *faults.RemediationStatus) (*action, error) {
	o := newEmptyAction(m.ObjectKind)
	err := s.client.Get(ctx, client.ObjectKey{Name: m.ObjectName}, o)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // one that is not there is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", m.ObjectKind, m.ObjectName, err)
	}
	return actionOf(o), nil
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
		all = append(all, actionOf(o.(client.Object))) //nolint:errcheck,forcetypeassert // both lists hold objects
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

func actionOf(o client.Object) *action {
	if t, ends := o.(*v1alpha1.TerminateNode); ends {
		return &action{o, v1alpha1.KindTerminate, &t.Spec, &t.Status}
	}
	if b, reboots := o.(*v1alpha1.RebootNode); reboots {
		return &action{o, v1alpha1.KindReboot, &b.Spec, &b.Status}
	}
	return &action{o, "", &v1alpha1.NodeActionSpec{}, &v1alpha1.NodeActionStatus{}}
}

func newEmptyAction(kind string) client.Object {
	if kind == v1alpha1.KindTerminate {
		return &v1alpha1.TerminateNode{}
	}
	return &v1alpha1.RebootNode{}
}

func kindFor(a faults.Remedy) string {
	if a == faults.RemedyTerminate {
		return v1alpha1.KindTerminate
	}
	return v1alpha1.KindReboot
}

// wasSent reports whether the provider has accepted the request, or may have.
func (a *action) wasSent() bool {
	c := meta.FindStatusCondition(a.status.Conditions, v1alpha1.ConditionSignalSent)
	return c != nil && c.Status != metav1.ConditionFalse
}

// bootIDBefore returns the boot ID before a reboot, for a node that had none when the
// attempt began. It is the boot ID that the janitor has recorded, or the one of the node
// while the request is not sent yet.
func (a *action) bootIDBefore(n *corev1.Node) string {
	if a.kind != v1alpha1.KindReboot || a.status.PreviousBootID != "" || n == nil || a.wasSent() {
		return a.status.PreviousBootID
	}
	return n.Status.NodeInfo.BootID
}

// finalCondition returns the condition with the final result.
func (a *action) finalCondition() *metav1.Condition {
	return meta.FindStatusCondition(a.status.Conditions, vocabularyOf(a.kind).final)
}

// endState reports whether an action has ended, whether it succeeded, and why not.
func (a *action) endState() (done, ok bool, why string) {
	c := a.finalCondition()
	switch {
	case c != nil && c.Status == metav1.ConditionTrue:
		return true, true, ""
	case c != nil && c.Status == metav1.ConditionFalse && (c.Reason == v1alpha1.ReasonFailed || c.Reason == v1alpha1.ReasonTimeout),
		a.status.CompletionTime != nil:
		return true, false, strings.TrimSpace(fmt.Sprintf("%s %s failed: %s", a.kind, a.GetName(), a.statusMessage()))
	}
	return false, false, ""
}

func (a *action) statusMessage() string {
	if a.status.Message != "" {
		return a.status.Message
	}
	if c := a.finalCondition(); c != nil && c.Message != "" {
		return c.Message
	}
	return "the janitor gave no cause"
}

// wasRefused reports whether another attempt would be rejected, too.
func (a *action) wasRefused() bool {
	c := a.finalCondition()
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonFailed
}
