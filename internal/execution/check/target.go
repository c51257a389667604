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

// checkProtectedName has nobody touch what is protected by its name alone, before anything
// else is asked: to be told of a right that is missing would be to be told to
// grant it, for nothing. That follows from the request and our settings, and says
// nothing of what is there. What is protected by a label is told to those alone
// whose action may look at it.
func (r *round) checkProtectedName(context.Context) error {
	if r.shield = r.protection(r.request.Target, nil, nil); r.shield != "" {
		r.failProtected()
	}
	return nil
}

// failProtected says no to an action on what is protected.
func (r *round) failProtected() {
	r.failWith(v1alpha1.DetailTargetProtected, "%s is protected: %s. Actions cannot change it", objectName(r.request.Target), r.shield)
}

// checkTarget reads the object as it is, plans on it, and has nobody touch what is
// protected. The plan is made here since it is what knows whether the object is
// in a state for the action; it is told of when the steps before it have passed.
func (r *round) checkTarget(ctx context.Context) error {
	a := r.request.Action
	subject, err := r.subjectOfPlan(ctx)
	if err != nil {
		return err
	}
	if !a.NoJob { // those have no account, and reach for nothing
		c, err := r.deps.Identities.Client(ctx, a)
		if err != nil {
			return r.unreachable(ctx, err)
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

// planSubject is whom the plan is for.
func (r *round) planSubject() action.Subject {
	return action.Subject{
		UID: r.ke.UID, Created: r.ke.CreationTimestamp.Time, Namespace: r.ke.Namespace, Name: r.ke.Name,
	}
}

// subjectOfPlan is the same, with what an action must not touch that reaches into
// other namespaces than its target's.
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

// checkPlanResult judges the target after the attempt to plan. That it is protected
// goes before what is wrong with it.
func (r *round) checkPlanResult(ctx context.Context, failed error) error {
	t := r.request.Target
	if r.seen != nil {
		r.live = r.seen.lastRead(t)
		r.scaled = r.seen.lastRead(action.ScaledBy(r.live))
	}
	if err := r.readNamespace(ctx); err != nil {
		return err
	}
	if err := r.findProtection(ctx); err != nil {
		return err
	}
	r.out.Results.ResourceExists = r.live != nil || failed == nil
	switch {
	case r.shield != "":
		r.failProtected()
	case failed != nil:
		return r.unplannable(ctx, failed)
	case r.space != nil && r.space.DeletionTimestamp != nil:
		r.failWith(v1alpha1.DetailInvalidTargetState, "namespace %q, which contains %s, is being deleted", t.Namespace, objectName(t))
	default:
		return r.unchanged(ctx)
	}
	return nil
}

// readNamespace reads the target's namespace.
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
	case apierrors.IsNotFound(err) && r.live == nil: // it is said of the target
	case apierrors.IsNotFound(err):
		return fmt.Errorf("read namespace %q: not in the cache yet: %w", name, err)
	default:
		return fmt.Errorf("read namespace %q: %w", name, err)
	}
	return nil
}

// findProtection finds out why nobody touches the target, or what else the plan writes
// to.
func (r *round) findProtection(ctx context.Context) error {
	t := r.request.Target
	r.shield = r.protection(t, r.space, r.live)
	if own := ownProtection(r.scaled); r.shield == "" && own != "" {
		r.shield = fmt.Sprintf("it scales %s: %s", objectName(action.ScaledBy(r.live)), own)
	}
	if r.plan == nil || r.shield != "" {
		return nil
	}
	for _, name := range otherNamespaces(r.plan, r.request.Action, r.cfg.Namespace) {
		var ns corev1.Namespace
		err := r.deps.Reader.Get(ctx, client.ObjectKey{Name: name}, &ns)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read namespace %q: %w", name, err)
		}
		ns.Name = name // of one that is not there, whose name is enough to be protected
		if r.shield = r.protection(v1alpha1.Target{Namespace: name}, &ns, nil); r.shield != "" {
			return nil
		}
	}
	return nil
}

// protection is why nobody touches an object; empty is that it is not protected.
func (c *Checker) protection(t v1alpha1.Target, ns *corev1.Namespace, live *unstructured.Unstructured) string {
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

// ownProtection is what an object itself says.
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

// otherNamespaces are those that a plan writes to, beside the target's. Pods of
// all namespaces are evicted from a node; and what an action keeps for itself
// beside the execution is its own.
func otherNamespaces(p *v1alpha1.Plan, a *action.Action, executor string) []string {
	var others []string
	for _, s := range p.Steps {
		own := s.Namespace == executor && slices.ContainsFunc(a.Permissions, func(p action.Permission) bool {
			return p.Executor && p.Resource == s.Resource
		})
		writes := !slices.Contains([]string{"get", "wait", "evict"}, s.Verb)
		if writes && !own && s.Namespace != "" && s.Namespace != p.Target.Namespace && !slices.Contains(others, s.Namespace) {
			others = append(others, s.Namespace)
		}
	}
	return others
}

// unplannable says why there is no plan.
func (r *round) unplannable(ctx context.Context, err error) error {
	var refused *action.RefusedError
	var invalid *action.InvalidError
	switch {
	case errors.As(err, &refused) && refused.Detail == v1alpha1.DetailRBACDenied:
		return r.forbidden(ctx, refused.Message)
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
		return r.forbidden(ctx, err.Error())
	}
	return r.unreachable(ctx, err)
}

// objectName is an object for readers, such as Deployment shop/web.
func objectName(t v1alpha1.Target) string {
	if t.Namespace == "" {
		return strings.TrimSpace(t.Kind + " " + t.Name)
	}
	return t.Kind + " " + t.Namespace + "/" + t.Name
}

// objectPath is an object as the status has it, such as Deployment/shop/web.
func objectPath(t v1alpha1.Target) string {
	if t.Kind == "" {
		return ""
	}
	if t.Namespace == "" {
		return t.Kind + "/" + t.Name
	}
	return t.Kind + "/" + t.Namespace + "/" + t.Name
}
