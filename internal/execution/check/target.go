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
	r.target.shield = r.checker.protectionReason(r.request.Target, nil, nil)
	if r.target.shield != "" {
		r.out.failProtected(r.request.Target, r.target.shield)
	}
	return nil
}

// planAndCheckTarget reads the target, creates the plan and refuses protected targets. Planning shows
// whether the state of the object fits the action. Its errors are reported after the earlier steps
// have passed.
func (r *round) planAndCheckTarget(ctx context.Context) error {
	a := r.request.Action
	subject, err := r.checker.subjectWithProtectedNamespaces(ctx, r.ke, a.Scope)
	if err != nil {
		return err
	}
	var planClient action.Client
	if !a.NoJob { // such actions have no account and no cluster access
		r.client, err = r.checker.deps.Identities.Client(ctx, a)
		if err != nil {
			return r.account.failUnlessTransient(ctx, err)
		}
		// Planning reads through a cache, which keeps what later steps and the dry run need.
		r.seen = newReadCache(r.client.Dynamic)
		planClient = r.client
		planClient.Dynamic = r.seen
	}
	r.plan, err = r.request.Plan(ctx, planClient, subject)
	return r.checkPlanResult(ctx, err)
}

// planSubject returns the subject of the plan.
func planSubject(ke *v1alpha1.KubernetesExecution) action.Subject {
	return action.Subject{UID: ke.UID, Created: ke.CreationTimestamp.Time, Namespace: ke.Namespace, Name: ke.Name}
}

// subjectWithProtectedNamespaces returns planSubject, with the protected namespaces for actions that reach
// beyond the namespace of the target.
func (c *Checker) subjectWithProtectedNamespaces(
	ctx context.Context, ke *v1alpha1.KubernetesExecution, scope action.Scope,
) (action.Subject, error) {
	subject := planSubject(ke)
	if scope != action.Cluster {
		return subject, nil
	}
	var labelled corev1.NamespaceList
	protectedLabel := client.MatchingLabels{v1alpha1.LabelProtected: labelTrue}
	if err := c.deps.Reader.List(ctx, &labelled, protectedLabel, client.UnsafeDisableDeepCopy); err != nil {
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
	r.target.space, err = r.checker.readNamespace(ctx, t.Namespace, r.target.live)
	if err != nil {
		return err
	}
	r.target.shield, err = r.checker.findProtection(ctx, r.target, r.request, r.plan)
	if err != nil {
		return err
	}
	r.out.Results.ResourceExists = r.target.live != nil || planErr == nil
	switch {
	case r.target.shield != "":
		r.out.failProtected(r.request.Target, r.target.shield)
	case r.canAwaitTargetSettling(planErr):
		r.out.Wait = targetPause
		r.out.WaitsForTarget = true
		r.out.Results.PreConditionResults = storedValidationResults(r.ke).PreConditionResults
	case planErr != nil:
		return r.account.failPlanning(ctx, planErr)
	case r.target.space != nil && r.target.space.DeletionTimestamp != nil:
		r.out.failValidation(v1alpha1.DetailInvalidTargetState,
			"namespace %q, which contains %s, is being deleted", t.Namespace, formatTarget(t))
	default:
		return r.refuseIfChangedSinceOriginal(ctx)
	}
	return nil
}

// targetPause is the delay until a target that its controller has not observed is read again.
const targetPause = 2 * time.Second

// canAwaitTargetSettling reports whether planning failed only because the controller of the target has not
// observed its latest change, and time is left: the time of the required preconditions, and at least
// that of one without a timeout. Someone may change the target while an execution waits for them.
func (r *round) canAwaitTargetSettling(planErr error) bool {
	refused, ok := errors.AsType[*action.RefusedError](planErr)
	if !ok || !refused.Unsettled || r.replan {
		return false
	}
	patience := preConditionTimeout
	for _, condition := range r.ke.Spec.PreConditions {
		if condition.Required {
			patience = max(patience, conditionTimeout(condition, preConditionTimeout))
		}
	}
	start := execution.PhaseStartOrNow(r.ke, v1alpha1.PhaseValidating, r.now)
	return r.now.Before(start.Add(patience))
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

// findProtection returns why the target, or another object that the plan writes, is protected. The reason
// is empty if none is.
func (c *Checker) findProtection(
	ctx context.Context, v targetView, request action.Request, plan *v1alpha1.Plan,
) (protectedReason string, err error) {
	if reason := c.protectionReason(request.Target, v.space, v.live); reason != "" {
		return reason, nil
	}
	if reason := ownProtectionReason(v.scaled); reason != "" {
		return fmt.Sprintf("it scales %s: %s", formatTarget(action.ScaleTargetOf(v.live)), reason), nil
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
		if reason := c.protectionReason(v1alpha1.Target{Namespace: name}, &ns, nil); reason != "" {
			return reason, nil
		}
	}
	return "", nil
}

// protectionReason returns why an object is protected, or an empty string.
func (c *Checker) protectionReason(t v1alpha1.Target, ns *corev1.Namespace, live *unstructured.Unstructured) string {
	namespaces := []string{t.Namespace}
	if t.Kind == "Namespace" {
		namespaces = append(namespaces, t.Name)
	}
	for _, name := range namespaces {
		if slices.Contains(c.protected, name) {
			return fmt.Sprintf("namespace %q is protected", name)
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
		_, controlPlane := labels["node-role.kubernetes.io/control-plane"]
		_, master := labels["node-role.kubernetes.io/master"] // the former name
		if controlPlane || master {
			return "it is a control-plane node"
		}
	}
	return ""
}

// otherWrittenNamespaces returns the namespaces that a plan writes to besides that of the target. It
// excludes evictions from a node, which affect Pods of all namespaces, and objects that an action
// stores beside the execution.
func otherWrittenNamespaces(p *v1alpha1.Plan, a *action.Action, executorNamespace string) []string {
	var others []string
	for _, step := range p.Steps {
		if slices.Contains([]string{"get", "wait", "evict"}, step.Verb) {
			continue
		}
		if step.Namespace == "" || step.Namespace == p.Target.Namespace || slices.Contains(others, step.Namespace) {
			continue
		}
		if step.Namespace == executorNamespace && storesBesideExecution(a, step.Resource) {
			continue
		}
		others = append(others, step.Namespace)
	}
	return others
}

// storesBesideExecution reports whether an action may store objects of a resource in the namespace of the
// executions.
func storesBesideExecution(a *action.Action, resource string) bool {
	for _, permission := range a.Permissions {
		if permission.Executor && permission.Resource == resource {
			return true
		}
	}
	return false
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
