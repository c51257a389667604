package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// checkProtectedName refuses targets that are protected by name, before any other check. Otherwise
// a message about missing rights would invite granting them in vain. The refusal follows from the
// request and the settings, so it reveals no cluster state. Protection by label is reported only if
// the account of the action may read the target.
func (r *round) checkProtectedName(context.Context) error {
	if r.shield = r.protectionReason(r.request.Target, nil, nil); r.shield != "" {
		r.failProtected()
	}
	return nil
}

// failProtected refuses an action on a protected target.
func (r *round) failProtected() {
	r.failWith(v1alpha1.DetailTargetProtected, "%s is protected: %s. Actions cannot change it", objectName(r.request.Target), r.shield)
}

// planAndCheckTarget reads the target, creates the plan and refuses protected targets. Planning shows
// whether the state of the object fits the action. Its errors are reported after the earlier steps
// have passed.
func (r *round) planAndCheckTarget(ctx context.Context) error {
	a := r.request.Action
	subject, err := r.subjectOfPlan(ctx)
	if err != nil {
		return err
	}
	if !a.NoJob { // such actions have no account and no cluster access
		c, err := r.deps.Identities.Client(ctx, a)
		if err != nil {
			return r.failUnlessTransient(ctx, err)
		}
		r.client = c
		r.seen = newMemory(c.Dynamic)
		c.Dynamic = r.seen
		r.plan, err = r.request.Plan(ctx, c, subject)
		return r.checkPlanResult(ctx, err)
	}
	r.plan, err = r.request.Plan(ctx, action.Client{}, subject)
	return r.checkPlanResult(ctx, err)
}

// planSubject returns the subject of the plan.
func (r *round) planSubject() action.Subject {
	return action.Subject{
		UID: r.ke.UID, Created: r.ke.CreationTimestamp.Time, Namespace: r.ke.Namespace, Name: r.ke.Name,
	}
}

// subjectOfPlan returns planSubject, with the protected namespaces for actions that reach beyond
// the namespace of the target.
func (r *round) subjectOfPlan(ctx context.Context) (action.Subject, error) {
	subject := r.planSubject()
	if r.request.Action.Scope != action.Cluster {
		return subject, nil
	}
	var labelled corev1.NamespaceList
	if err := r.deps.Reader.List(ctx, &labelled, client.MatchingLabels{v1alpha1.LabelProtected: labelTrue}, client.UnsafeDisableDeepCopy); err != nil {
		return subject, fmt.Errorf("list protected Namespaces: %w", err)
	}
	subject.Protected = slices.Clone(r.protected)
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
		r.live = r.seen.lastRead(t)
		r.scaled = r.seen.lastRead(action.ScaleTargetOf(r.live))
	}
	if err := r.readNamespace(ctx); err != nil {
		return err
	}
	if err := r.findProtection(ctx); err != nil {
		return err
	}
	r.out.Results.ResourceExists = r.live != nil || planErr == nil
	switch {
	case r.shield != "":
		r.failProtected()
	case planErr != nil:
		return r.failPlanning(ctx, planErr)
	case r.space != nil && r.space.DeletionTimestamp != nil:
		r.failWith(v1alpha1.DetailInvalidTargetState, "namespace %q, which contains %s, is being deleted", t.Namespace, objectName(t))
	default:
		return r.checkUnchangedSinceOriginal(ctx)
	}
	return nil
}

// readNamespace reads the namespace of the target.
func (r *round) readNamespace(ctx context.Context) error {
	name := r.request.Target.Namespace
	if name == "" {
		return nil
	}
	var ns corev1.Namespace
	err := r.deps.Reader.Get(ctx, client.ObjectKey{Name: name}, &ns)
	switch {
	case err == nil:
		r.space = &ns
	case apierrors.IsNotFound(err) && r.live == nil: // reported as a missing target
	case apierrors.IsNotFound(err):
		return fmt.Errorf("read namespace %q: not in the cache yet: %w", name, err)
	default:
		return fmt.Errorf("read namespace %q: %w", name, err)
	}
	return nil
}

// findProtection determines why the target, or another object that the plan writes, is protected.
func (r *round) findProtection(ctx context.Context) error {
	t := r.request.Target
	r.shield = r.protectionReason(t, r.space, r.live)
	if own := ownProtection(r.scaled); r.shield == "" && own != "" {
		r.shield = fmt.Sprintf("it scales %s: %s", objectName(action.ScaleTargetOf(r.live)), own)
	}
	if r.plan == nil || r.shield != "" {
		return nil
	}
	for _, name := range otherWrittenNamespaces(r.plan, r.request.Action, r.cfg.Namespace) {
		var ns corev1.Namespace
		err := r.deps.Reader.Get(ctx, client.ObjectKey{Name: name}, &ns)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read namespace %q: %w", name, err)
		}
		ns.Name = name // a missing namespace may still be protected by name
		if r.shield = r.protectionReason(v1alpha1.Target{Namespace: name}, &ns, nil); r.shield != "" {
			return nil
		}
	}
	return nil
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
	return ownProtection(live)
}

const labelTrue = "true"

// ownProtection returns the protection that an object declares itself.
func ownProtection(live *unstructured.Unstructured) string {
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

// failPlanning refuses the execution because planning failed.
func (r *round) failPlanning(ctx context.Context, err error) error {
	var refused *action.RefusedError
	var invalid *action.InvalidError
	switch {
	case errors.As(err, &refused) && refused.Detail == v1alpha1.DetailRBACDenied:
		return r.handleForbidden(ctx, refused.Message)
	case errors.As(err, &refused):
		r.failWith(refused.Detail, "%s", refused.Message)
		if refused.Detail == v1alpha1.DetailTargetNotFound && r.live == nil {
			r.out.Results.ResourceExists = false
		}
		return nil
	case errors.As(err, &invalid):
		r.failWith(v1alpha1.DetailInvalidParameters, "%s", invalid.Error())
		return nil
	case apierrors.IsForbidden(err):
		return r.handleForbidden(ctx, err.Error())
	}
	return r.failUnlessTransient(ctx, err)
}

// objectName formats an object for messages, such as Deployment shop/web.
func objectName(t v1alpha1.Target) string {
	if t.Namespace == "" {
		return strings.TrimSpace(t.Kind + " " + t.Name)
	}
	return t.Kind + " " + t.Namespace + "/" + t.Name
}

// objectPath formats an object as in the status, such as Deployment/shop/web.
func objectPath(t v1alpha1.Target) string {
	if t.Kind == "" {
		return ""
	}
	if t.Namespace == "" {
		return t.Kind + "/" + t.Name
	}
	return t.Kind + "/" + t.Namespace + "/" + t.Name
}
