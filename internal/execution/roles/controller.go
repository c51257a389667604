package roles

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// ControllerAccount is the default account name of the controller.
const ControllerAccount = "kubernaut-execution-controller"

// Controller defines the rights of the execution controller. It writes executions and Jobs only in
// its own namespace; changes to targets use the action accounts.
type Controller struct {
	// Namespace is the namespace of executions. Empty means kubernaut-executor, the constant
	// Namespace of this package.
	Namespace string

	// Account is the name of its ServiceAccount in that namespace. Empty means
	// ControllerAccount.
	Account string
}

// Role returns the rights of the controller in the namespace of executions.
func (c Controller) Role() *rbacv1.Role {
	c = c.withDefaults()
	accounts := accountNamesForTokens()
	return &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: metav1.ObjectMeta{Name: c.Account, Namespace: c.Namespace},
		Rules: []rbacv1.PolicyRule{
			// Create is for the dry run that tests whether forged approvals are
			// refused. Delete is for executions whose retention period is over.
			newRule(executionGroup, executions, "get", "list", "watch", "create", "update", "patch", "delete"),
			newRule(executionGroup, executions+"/status", "get", "update", "patch"),
			// Required if the API server verifies who may set blockOwnerDeletion.
			newRule(executionGroup, executions+"/finalizers", "update"),
			newRule("batch", "jobs", "get", "list", "watch", "create", "update", "patch", "delete"),
			// Patch stops a running Pod.
			newRule(corev1.GroupName, "pods", "get", "list", "watch", "patch"),
			// The controller acts on targets with tokens of these accounts.
			limitToNames(newRule(corev1.GroupName, "serviceaccounts", "get"), accounts),
			limitToNames(newRule(corev1.GroupName, "serviceaccounts/token", "create"), accounts),
			// The policies and the emergency stop.
			newRule(corev1.GroupName, "configmaps", "get", "list", "watch"),
			// Repeated events are patched into the existing one.
			newRule("events.k8s.io", "events", "create", "patch"),
			// Leader election and the record of the guard.
			newRule("coordination.k8s.io", "leases", "get", "list", "watch", "create", "update", "patch"),
		},
	}
}

// accountNamesForTokens returns the accounts of all actions that run as Jobs, and the account that reads
// Secrets.
func accountNamesForTokens() []string {
	accounts := []string{SecretLookup}
	for _, act := range action.Catalogue() {
		if !act.NoJob {
			accounts = append(accounts, act.ServiceAccount())
		}
	}
	slices.Sort(accounts)
	return slices.Compact(accounts)
}

// ClusterRole returns the read-only rights of the controller in the cluster.
func (c Controller) ClusterRole() *rbacv1.ClusterRole {
	c = c.withDefaults()
	rules := []rbacv1.PolicyRule{
		newRule("authorization.k8s.io", "subjectaccessreviews", "create"),
		// The addresses of the API servers, each of which has to enforce the guard.
		limitToNames(newRule("discovery.k8s.io", "endpointslices", "get"), []string{guard.ServerSlice}),
		// The objects of the guard.
		newRuleOfResources("admissionregistration.k8s.io", []string{
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
		}, "get", "list", "watch"),
	}
	resources := controllerReadableResources()
	for _, group := range slices.Sorted(maps.Keys(resources)) {
		rules = append(rules, newRuleOfResources(group, resources[group], "get", "list", "watch"))
	}
	return newClusterRole(c.Account, nil, rules)
}

// Objects returns the account, the roles and their bindings.
func (c Controller) Objects() []runtime.Object {
	c = c.withDefaults()
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: c.Account, Namespace: c.Namespace}}
	return []runtime.Object{
		&corev1.ServiceAccount{
			TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Name: c.Account, Namespace: c.Namespace},
		},
		c.Role(),
		&rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: c.Account, Namespace: c.Namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: c.Account},
			Subjects:   subjects,
		},
		c.ClusterRole(),
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: c.Account},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.Account},
			Subjects:   subjects,
		},
	}
}

func (c Controller) withDefaults() Controller {
	c.Namespace = cmp.Or(c.Namespace, Namespace)
	c.Account = cmp.Or(c.Account, ControllerAccount)
	return c
}

// controllerReadableResources returns the resources that policies, conditions and checks read, by group: those
// of the catalogue and their parents. It never includes Secrets, because users who can write a
// condition could read them through the controller.
func controllerReadableResources() map[string][]string {
	groups := map[string][]string{
		corev1.GroupName: {"namespaces", "nodes", "pods"},
		"apps":           {"replicasets"},
		"batch":          {"jobs"},                     // Jobs and ReplicaSets are owners of Pods with owners themselves
		"autoscaling":    {"horizontalpodautoscalers"}, // to detect whether one scales the target
	}
	for _, act := range action.Catalogue() {
		for _, p := range act.Permissions {
			if p.Resource == "secrets" || p.Executor {
				continue
			}
			groups[p.Group] = append(groups[p.Group], strings.ToLower(p.Resource))
		}
	}
	for group, list := range groups {
		slices.Sort(list)
		groups[group] = slices.Compact(list)
	}
	return groups
}
