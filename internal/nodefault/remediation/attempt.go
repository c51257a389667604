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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

const maxName = 253

// objectName is the name of the object of an attempt.
func objectName(node, session string, attempt int32) string {
	tail := fmt.Sprintf("-%s-%d", session, attempt)
	if len(node)+len(tail) > maxName {
		sum := sha256.Sum256([]byte(node))
		tail = "-" + hex.EncodeToString(sum[:4]) + tail
		node = strings.TrimRight(node[:maxName-len(tail)], "-.")
	}
	return node + tail
}

// followAttempt moves the attempt on that is under way.
func (r *Remediator) followAttempt(ctx context.Context, l look) (time.Duration, error) {
	m := l.st.Remediation
	if !wasRecorded(l.st, vocabularyOf(m.ObjectKind).requested, strconv.Itoa(int(m.Attempt))) {
		return r.createAction(ctx, l)
	}
	a, err := r.getAction(ctx, m)
	if err != nil {
		return 0, err
	}
	if a == nil {
		return r.handleMissing(ctx, l)
	}
	if m.PreviousBootID == "" {
		m.PreviousBootID = a.bootBefore(l.node)
	}
	switch done, ok, why := a.endState(); {
	case done && ok:
		return r.succeeded(l, a)
	case done:
		endAttempt(m, faults.RemedyFailed, why, l.now)
		return 0, nil
	case !l.now.Before(m.Deadline.Time):
		if err := r.deleteAction(ctx, m); err != nil {
			return 0, err
		}
		why := strings.TrimSpace(fmt.Sprintf("%s %s was not completed before its deadline: is a janitor running? %s", m.ObjectKind, m.ObjectName, a.status.Message))
		r.tellFailed(l.st, m, why, l.now)
		endAttempt(m, faults.RemedyFailed, why, l.now)
		return 0, nil
	}
	m.Message = nodefault.Cut(a.status.Message, maxText)
	return min(r.cfg.Poll, max(time.Second, m.Deadline.Sub(l.now))), nil
}

// maxText bounds what a person is told.
const maxText = 512

// succeeded takes a janitor at its word, but for a reboot that the node knows
// nothing of.
func (r *Remediator) succeeded(l look, a *action) (time.Duration, error) {
	m := l.st.Remediation
	if m.Action == faults.RemedyReboot && l.node != nil && m.PreviousBootID != "" && l.node.Status.NodeInfo.BootID == m.PreviousBootID && l.now.Before(m.Deadline.Time) {
		m.Message = "the janitor reports a reboot, but the boot ID is unchanged; waiting"
		return r.cfg.Poll, nil
	}
	if m.Action == faults.RemedyReboot && l.node != nil && m.PreviousBootID != "" && l.node.Status.NodeInfo.BootID == m.PreviousBootID {
		why := "the janitor reports a reboot, but the boot ID is unchanged"
		r.tellFailed(l.st, m, why, l.now)
		endAttempt(m, faults.RemedyFailed, why, l.now)
		return 0, nil
	}
	endAttempt(m, faults.RemedySucceeded, a.status.Message, l.now)
	return 0, nil
}

// createAction makes the object of an attempt that was written down, unless it is not
// wanted any more. It may have been made already, and what was written about
// that be lost.
func (r *Remediator) createAction(ctx context.Context, l look) (time.Duration, error) {
	m := l.st.Remediation
	late := !l.now.Before(m.Deadline.Time)
	if late || !l.isWanted() {
		there, err := r.actionExists(ctx, l)
		switch {
		case err != nil:
			return 0, err
		case there:
			return r.adoptAction(ctx, l)
		case late:
			why := strings.TrimSpace("node-fault-controller could not create the request before its deadline. " + m.Message)
			r.tellFailed(l.st, m, why, l.now)
			endAttempt(m, faults.RemedyFailed, why, l.now)
		case l.node == nil:
			endAttempt(m, faults.RemedyFailed, "the node was deleted", l.now)
		default:
			endAttempt(m, faults.RemedyFailed, "not needed any more", l.now)
		}
		return 0, nil
	}
	o := r.newAction(l)
	err := r.client.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		return r.adoptAction(ctx, l)
	}
	if isPermanent(err) {
		m.Message = nodefault.Cut(fmt.Sprintf("cannot create %s: %v", m.ObjectKind, err), maxText)
		return r.cfg.Poll, nil
	}
	if err != nil {
		return 0, fmt.Errorf("create %s %q: %w", m.ObjectKind, m.ObjectName, err)
	}
	r.requested(l, l.now)
	return 0, nil
}

// adoptAction takes the object that is there already, if it is ours.
func (r *Remediator) adoptAction(ctx context.Context, l look) (time.Duration, error) {
	m := l.st.Remediation
	a, err := r.getAction(ctx, m)
	if err != nil {
		return 0, err
	}
	if a == nil { // the cache has still to hear of it
		return soon, nil
	}
	if has := a.GetLabels(); has[LabelSession] != l.st.Session || has[LabelAttempt] != strconv.Itoa(int(m.Attempt)) {
		endAttempt(m, faults.RemedyFailed, fmt.Sprintf("%s %q already exists, but node-fault-controller did not create it: delete it", m.ObjectKind, m.ObjectName), l.now)
		m.ObjectName = ""
		return 0, nil
	}
	r.requested(l, nextEvent(l.st, a.GetCreationTimestamp().Time))
	return 0, nil
}

// actionExists says whether the object of an attempt is there, as the API server has
// it: it is asked whether it would make one, and makes none.
func (r *Remediator) actionExists(ctx context.Context, l look) (bool, error) {
	m := l.st.Remediation
	if a, err := r.getAction(ctx, m); err != nil || a != nil {
		return a != nil, err
	}
	err := r.client.Create(ctx, r.newAction(l), client.DryRunAll)
	switch {
	case err == nil, isPermanent(err): // what may not be made was not made here
		return false, nil
	case apierrors.IsAlreadyExists(err):
		return true, nil
	}
	return false, fmt.Errorf("look for %s %q: %w", m.ObjectKind, m.ObjectName, err)
}

// isPermanent says whether an object will not be made before somebody has seen to it:
// there is no right, no definition or no namespace for it, or it is wrong.
func isPermanent(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}

// soon is when something is looked at again of which the cache has still to hear.
const soon = 250 * time.Millisecond

// requested tells that the object of an attempt was made.
func (r *Remediator) requested(l look, when time.Time) {
	m := l.st.Remediation
	m.Message = ""
	w := vocabularyOf(m.ObjectKind)
	record := nodefault.RecordOf(l.st, sourceRemediation, w.requested, strconv.Itoa(int(m.Attempt)), when)
	record.Object = w.resource + "/" + m.ObjectName
	nodefault.Tell(l.st, record)
}

// newAction makes the object of an attempt. Pods that are left on the node are no
// reason not to, where nobody wanted them to go or they would not, or where some
// are left on purpose.
func (r *Remediator) newAction(l look) client.Object {
	m := l.st.Remediation
	undrained := r.cfg.PodsStay || l.st.Drain == nil || l.st.Drain.State != faults.DrainCompleted
	spec := v1alpha1.NodeActionSpec{NodeName: m.ObjectName, Force: undrained} // of a node that is gone it is only tried whether it is there
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

// handleMissing is what follows when the object is not in the cache.
func (r *Remediator) handleMissing(ctx context.Context, l look) (time.Duration, error) {
	m := l.st.Remediation
	there, err := r.actionExists(ctx, l)
	switch {
	case err != nil:
		return 0, err
	case there: // the cache has still to hear of it
		return soon, nil
	case l.node == nil && m.Action == faults.RemedyTerminate: // its object was cleaned up after the node
		endAttempt(m, faults.RemedySucceeded, "the node was deleted", l.now)
	case l.node == nil:
		endAttempt(m, faults.RemedyFailed, "the node was deleted", l.now)
	default:
		r.endExhausted(l, m.Action, int(m.RemedyIndex), fmt.Sprintf("%s %s was deleted by another client, which ends the automatic repair", m.ObjectKind, m.ObjectName))
	}
	return 0, nil
}

// deleteAction deletes the object of an attempt that nobody waits for any more, so
// that it is not carried out later.
func (r *Remediator) deleteAction(ctx context.Context, m *faults.RemediationStatus) error {
	o := emptyOf(m.ObjectKind)
	o.SetName(m.ObjectName)
	if err := r.client.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %q: %w", m.ObjectKind, m.ObjectName, err)
	}
	return nil
}

// getAction reads the object of an attempt; nil is none.
func (r *Remediator) getAction(ctx context.Context, m *faults.RemediationStatus) (*action, error) {
	o := emptyOf(m.ObjectKind)
	err := r.client.Get(ctx, client.ObjectKey{Name: m.ObjectName}, o)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // one that is not there is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", m.ObjectKind, m.ObjectName, err)
	}
	return actionOf(o), nil
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

func emptyOf(kind string) client.Object {
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

// wasSent says whether the provider has accepted it, or may have.
func (a *action) wasSent() bool {
	c := meta.FindStatusCondition(a.status.Conditions, v1alpha1.ConditionSignalSent)
	return c != nil && c.Status != metav1.ConditionFalse
}

// bootBefore is the boot that a reboot is to end, of a node that reported none
// when it was asked for: what the janitor has written down, or what the node
// reports while nobody was asked yet.
func (a *action) bootBefore(n *corev1.Node) string {
	if a.kind != v1alpha1.KindReboot || a.status.PreviousBootID != "" || n == nil || a.wasSent() {
		return a.status.PreviousBootID
	}
	return n.Status.NodeInfo.BootID
}

// finalCondition is the condition that says how it ended.
func (a *action) finalCondition() *metav1.Condition {
	return meta.FindStatusCondition(a.status.Conditions, vocabularyOf(a.kind).final)
}

// endState says whether an action is over, how, and why not well.
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

// wasRefused says whether another one like it would fare no better.
func (a *action) wasRefused() bool {
	c := a.finalCondition()
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonFailed
}
