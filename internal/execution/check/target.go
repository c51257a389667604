package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// targetView is what a check has read of the target.
type targetView struct {
	live   *unstructured.Unstructured // nil if missing
	scaled *unstructured.Unstructured // object that the target scales; nil if none
	space  *corev1.Namespace          // its namespace; nil if none
	shield string                     // why it is protected
}

// refuseProtectedName refuses targets that are protected by name, before any other check. Otherwise
// a message about missing rights would invite granting them in vain. The refusal follows from the
// request and the settings, so it reveals no cluster state. Protection by label is reported only if
// the account of the action may read the target.
func (r *round) refuseProtectedName(context.Context) error {
	if r.target.shield = r.checker.protectionReason(r.request.Target, nil, nil); r.target.shield != "" {
		r.out.failProtected(r.request.Target, r.target.shield)
	}
	return nil
}

// planAndCheckTarget reads the target, creates the plan and refuses protected targets. Planning shows
// whether the state of the object fits the action. Its errors are reported after the earlier steps
// have passed.
func (r *round) planAndCheckTarget(ctx context.Context) error {
	a := r.request.Action
	subject, err := r.checker.planSubjectWithProtected(ctx, r.ke, a.Scope)
	if err != nil {
		return err
	}
	if !a.NoJob { // such actions have no account and no cluster access
		c, err := r.checker.deps.Identities.Client(ctx, a)
		if err != nil {
			return r.account.failUnlessTransient(ctx, err)
		}
		r.client = c
		r.seen = newReadCache(c.Dynamic)
		c.Dynamic = r.seen
		r.plan, err = r.request.Plan(ctx, c, subject)
		return r.checkPlanResult(ctx, err)
	}
	r.plan, err = r.request.Plan(ctx, action.Client{}, subject)
	return r.checkPlanResult(ctx, err)
}

// planSubject returns the subject of the plan.
func planSubject(ke *v1alpha1.KubernetesExecution) action.Subject {
	return action.Subject{UID: ke.UID, Created: ke.CreationTimestamp.Time, Namespace: ke.Namespace, Name: ke.Name}
}

// planSubjectWithProtected returns planSubject, with the protected namespaces for actions that reach beyond
// the namespace of the target.
func (c *Checker) planSubjectWithProtected(ctx context.Context, ke *v1alpha1.KubernetesExecution, scope action.Scope) (action.Subject, error) {
	subject := planSubject(ke)
	if scope != action.Cluster {
		return subject, nil
	}
	var labelled corev1.NamespaceList
	if err := c.deps.Reader.List(ctx, &labelled, client.MatchingLabels{v1alpha1.LabelProtected: labelTrue}, client.UnsafeDisableDeepCopy); err != nil {
		return subject, fmt.Errorf("list protected Namespaces: %w", err)
	}
	subject.Protected = slices.Clone(c.protected)
	for i := range labelled.Items {
		subject.Protected = append(subject.Protected, labelled.Items[i].Name)
	}
	slices.Sort(subject.Protected)
	subject.Protected = slices.Compact(subject.Protected)
	return subject, nil
}

// checkPlanResult handles the result of planning. Protection of the target takes precedence over
// its errors.
func (r *round) checkPlanResult(ctx context.Context, planErr error) error {
	t := r.request.Target
	if r.seen != nil {
		r.target.live = r.seen.lastRead(t)
		r.target.scaled = r.seen.lastRead(action.ScaleTargetOf(r.target.live))
	}
	var err error
	if r.target.space, err = r.checker.readNamespace(ctx, t.Namespace, r.target.live); err != nil {
		return err
	}
	if r.target.shield, err = r.checker.findProtection(ctx, r.target, r.request, r.plan); err != nil {
		return err
	}
	r.out.Results.ResourceExists = r.target.live != nil || planErr == nil
	switch {
	case r.target.shield != "":
		r.out.failProtected(r.request.Target, r.target.shield)
	case r.canAwaitTarget(planErr):
		r.out.Wait, r.out.WaitsForTarget = targetPause, true
		r.out.Results.PreConditionResults = storedValidationResults(r.ke).PreConditionResults
	case planErr != nil:
		return r.account.failPlanning(ctx, planErr)
	case r.target.space != nil && r.target.space.DeletionTimestamp != nil:
		r.out.failValidation(v1alpha1.DetailInvalidTargetState, "namespace %q, which contains %s, is being deleted", t.Namespace, formatTarget(t))
	default:
		return r.refuseIfChangedSinceOriginal(ctx)
	}
	return nil
}

// targetPause is the delay until a target that its controller has not observed is read again.
const targetPause = 2 * time.Second

// canAwaitTarget reports whether planning failed only because the controller of the target has not
// observed its latest change, and time is left: the time of the required preconditions, and at least
// that of one without a timeout. Someone may change the target while an execution waits for them.
func (r *round) canAwaitTarget(planErr error) bool {
	refused, ok := errors.AsType[*action.RefusedError](planErr)
	if !ok || !refused.Unsettled || r.replan {
		return false
	}
	patience := preConditionTimeout
	for _, c := range r.ke.Spec.PreConditions {
		if c.Required {
			patience = max(patience, conditionTimeout(c, preConditionTimeout))
		}
	}
	return r.now.Before(execution.PhaseStartOrNow(r.ke, v1alpha1.PhaseValidating, r.now).Add(patience))
}

// readNamespace reads the namespace of a target. It returns nil for a target without a namespace, and
// if both are missing, because a missing target is reported as such.
func (c *Checker) readNamespace(ctx context.Context, name string, live *unstructured.Unstructured) (*corev1.Namespace, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // as documented
	}
	var ns corev1.Namespace
	err := c.deps.Reader.Get(ctx, client.ObjectKey{Name: name}, &ns)
	switch {
	case err == nil:
		return &ns, nil
	case apierrors.IsNotFound(err) && live == nil:
		return nil, nil //nolint:nilnil // as documented
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read namespace %q: not in the cache yet: %w", name, err)
	}
	return nil, fmt.Errorf("read namespace %q: %w", name, err)
}

// findProtection determines why the target, or another object that the plan writes, is protected.
func (c *Checker) findProtection(ctx context.Context, v targetView, request action.Request, plan *v1alpha1.Plan) (protectedReason string, err error) {
	if protectedReason = c.protectionReason(request.Target, v.space, v.live); protectedReason != "" {
		return protectedReason, nil
	}
	if own := ownProtectionReason(v.scaled); own != "" {
		return fmt.Sprintf("it scales %s: %s", formatTarget(action.ScaleTargetOf(v.live)), own), nil
	}
	if plan == nil {
		return "", nil
	}
	for _, name := range otherWrittenNamespaces(plan, request.Action, c.cfg.Namespace) {
		var ns corev1.Namespace
		err := c.deps.Reader.Get(ctx, client.ObjectKey{Name: name}, &ns)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("read namespace %q: %w", name, err)
		}
		ns.Name = name // a missing namespace may still be protected by name
		if protectedReason = c.protectionReason(v1alpha1.Target{Namespace: name}, &ns, nil); protectedReason != "" {
			return protectedReason, nil
		}
	}
	return "", nil
}

// protectionReason returns why an object is protected, or an empty string.
func (c *Checker) protectionReason(t v1alpha1.Target, ns *corev1.Namespace, live *unstructured.Unstructured) string {
	spaces := []string{t.Namespace}
	if t.Kind == "Namespace" {
		spaces = append(spaces, t.Name)
	}
	for _, space := range spaces {
		if slices.Contains(c.protected, space) {
			return fmt.Sprintf("namespace %q is protected", space)
		}
	}
	if ns != nil && ns.Labels[v1alpha1.LabelProtected] == labelTrue {
		return fmt.Sprintf("namespace %q has the label %s", ns.Name, v1alpha1.LabelProtected)
	}
	return ownProtectionReason(live)
}

const labelTrue = "true"

// ownProtectionReason returns the protection that an object declares itself.
func ownProtectionReason(live *unstructured.Unstructured) string {
	if live == nil {
		return ""
	}
	labels := live.GetLabels()
	if labels[v1alpha1.LabelProtected] == labelTrue {
		return "it has the label " + v1alpha1.LabelProtected
	}
	if live.GetKind() == "Node" {
		for _, l := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
			if _, is := labels[l]; is {
				return "it is a control-plane node"
			}
		}
	}
	return ""
}

// otherWrittenNamespaces returns the namespaces that a plan writes to besides that of the target. It
// excludes evictions from a node, which affect Pods of all namespaces, and objects that an action
// stores beside the execution.
func otherWrittenNamespaces(p *v1alpha1.Plan, a *action.Action, executorNamespace string) []string {
	var others []string
	for _, s := range p.Steps {
		own := s.Namespace == executorNamespace && slices.ContainsFunc(a.Permissions, func(p action.Permission) bool {
			return p.Executor && p.Resource == s.Resource
		})
		writes := !slices.Contains([]string{"get", "wait", "evict"}, s.Verb)
		if writes && !own && s.Namespace != "" && s.Namespace != p.Target.Namespace && !slices.Contains(others, s.Namespace) {
			others = append(others, s.Namespace)
		}
	}
	return others
}

// formatTarget formats an object for messages, such as Deployment shop/web.
func formatTarget(t v1alpha1.Target) string {
	if t.Namespace == "" {
		return strings.TrimSpace(t.Kind + " " + t.Name)
	}
	return t.Kind + " " + t.Namespace + "/" + t.Name
}

// formatTargetPath formats an object as in the status, such as Deployment/shop/web.
func formatTargetPath(t v1alpha1.Target) string {
	if t.Kind == "" {
		return ""
	}
	if t.Namespace == "" {
		return t.Kind + "/" + t.Name
	}
	return t.Kind + "/" + t.Namespace + "/" + t.Name
}
