// Package roles defines the RBAC objects of executions, and connects as the accounts that they grant
// rights to, see Identities. Each action has an account with the rights from the catalogue; further
// roles are for the controller, requesters, approvers and viewers. The manifests and the tests use
// the objects.
//
// Rights of an action on namespaced objects are bound for each namespace. Without a
// RoleBinding, the action can do nothing there. Rights on nodes and on objects in all
// namespaces are bound once for the cluster.
package roles

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// Namespace is the default namespace of executions, their Jobs and the action accounts.
const Namespace = "kubernaut-executor"

// bySecretName is the action with rights on Secrets by name.
const bySecretName = "update_secret"

// byAllowList is the action whose rights depend on the installation.
const byAllowList = "apply_manifest"

// Actions defines the accounts and rights of actions. The zero value is the catalogue without any
// binding.
type Actions struct {
	// Namespace is the namespace of the accounts. Empty means kubernaut-executor, the constant
	// Namespace of this package.
	Namespace string

	// Secrets are the names of the Secrets that update_secret may change in the namespaces where it
	// is bound. Empty means no right on any Secret.
	Secrets []string

	// Manifests are the kinds that apply_manifest may apply and delete, each as a resource with its
	// group, such as apps/deployments or configmaps. Empty means no right on any.
	Manifests []string
}

// Account returns the service account of an action.
func (a Actions) Account(act *action.Action) *corev1.ServiceAccount {
	off := false
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: act.ServiceAccount(), Namespace: a.accountNamespace(), Labels: actionLabels(act)},
		// The Pod of a Job has a projected short-lived token. No other Pod gets one.
		AutomountServiceAccountToken: &off,
	}
}

// Roles returns the roles of an action: for target namespaces, for the cluster, and for the
// namespace of executions. A role without rules is nil.
func (a Actions) Roles(act *action.Action) (targets, cluster *rbacv1.ClusterRole, executor *rbacv1.Role) {
	var inTargets, inCluster, inExecutor []rbacv1.PolicyRule
	for _, p := range act.Permissions {
		r := ruleOf(p)
		switch {
		case p.Executor:
			inExecutor = append(inExecutor, r)
		case p.ClusterScoped:
			inCluster = append(inCluster, r)
		case act.Name == bySecretName:
			if len(a.Secrets) > 0 { // without names, the rule would cover all Secrets
				names := slices.Compact(slices.Sorted(slices.Values(a.Secrets)))
				inTargets = append(inTargets, limitToNames(r, names))
			}
		default:
			inTargets = append(inTargets, r)
		}
	}
	if act.Name == byAllowList {
		inTargets = append(inTargets, a.manifestRules()...)
	}
	if len(inTargets) > 0 {
		targets = newClusterRole(act.ServiceAccount(), actionLabels(act), inTargets)
	}
	if len(inCluster) > 0 {
		cluster = newClusterRole(act.ServiceAccount()+"-cluster", actionLabels(act), inCluster)
	}
	if len(inExecutor) > 0 {
		executor = &rbacv1.Role{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
			ObjectMeta: metav1.ObjectMeta{Name: act.ServiceAccount(), Namespace: a.accountNamespace(), Labels: actionLabels(act)},
			Rules:      inExecutor,
		}
	}
	return targets, cluster, executor
}

// BaseObjects returns the objects that an action needs for any target. These are its account, its roles,
// and the bindings for the cluster and for the namespace of executions.
func (a Actions) BaseObjects(act *action.Action) []runtime.Object {
	list := []runtime.Object{a.Account(act)}
	targets, cluster, executor := a.Roles(act)
	if targets != nil {
		list = append(list, targets)
	}
	if cluster != nil {
		list = append(list, cluster, &rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: cluster.Name, Labels: actionLabels(act)},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: cluster.Name},
			Subjects:   a.roleSubjects(act),
		})
	}
	if executor != nil {
		list = append(list, executor, a.newRoleBinding(act, a.accountNamespace(), "Role", executor.Name))
	}
	return list
}

// NamespaceBindings returns the bindings for target namespaces. With an empty name, the namespace is
// chosen when the binding is applied.
func (a Actions) NamespaceBindings(act *action.Action, namespaces ...string) []runtime.Object {
	targets, _, _ := a.Roles(act)
	if targets == nil {
		return nil
	}
	var list []runtime.Object
	for _, namespace := range namespaces {
		list = append(list, a.newRoleBinding(act, namespace, "ClusterRole", targets.Name))
	}
	return list
}

func (a Actions) accountNamespace() string { return cmp.Or(a.Namespace, Namespace) }

func (a Actions) roleSubjects(act *action.Action) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: act.ServiceAccount(), Namespace: a.accountNamespace()}}
}

func (a Actions) newRoleBinding(act *action.Action, namespace, roleKind, roleName string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: act.ServiceAccount(), Namespace: namespace, Labels: actionLabels(act)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: roleKind, Name: roleName},
		Subjects:   a.roleSubjects(act),
	}
}

// manifestRules returns the rules to apply and delete objects of the allowed kinds.
func (a Actions) manifestRules() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, name := range slices.Sorted(slices.Values(a.Manifests)) {
		group, resource, ok := strings.Cut(name, "/")
		if !ok {
			group, resource = "", name
		}
		// Server-side apply of a missing object also needs create.
		rules = append(rules, newRule(group, resource, "get", "create", "patch", "delete"))
	}
	return rules
}

func actionLabels(act *action.Action) map[string]string {
	return map[string]string{labelAction: act.Name}
}

func ruleOf(p action.Permission) rbacv1.PolicyRule {
	resource := p.Resource
	if p.Subresource != "" {
		resource += "/" + p.Subresource
	}
	return newRule(p.Group, resource, p.Verbs...)
}

func newRule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return newRuleOfResources(group, []string{resource}, verbs...)
}

func newRuleOfResources(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// limitToNames returns the rule for the objects with these names only. Without names, it would cover
// all objects.
func limitToNames(rule rbacv1.PolicyRule, names []string) rbacv1.PolicyRule {
	rule.ResourceNames = names
	return rule
}

func newClusterRole(name string, labels map[string]string, rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Rules:      rules,
	}
}
