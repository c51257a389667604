// Package roles says which rights on the host cluster a component needs: one
// role for each feature in use, with nothing in it that the feature could do
// without. The manifests and the tests have them from here.
package roles

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The names that the specification gives the sentinel's objects.
const (
	SentinelNamespace = "hyperfleet-system"
	SentinelAccount   = "hyperfleet-sentinel"
)

// The features that a sentinel's roles are for. A role is called by the
// account's name, with the feature behind it; FeatureBase by the account's
// name alone.
const (
	// FeatureBase is to run SentinelConfigs, and to say how they fare in
	// their status and in Kubernetes events.
	FeatureBase = ""
	// FeatureSecrets is to follow the Secrets that SentinelConfigs name.
	FeatureSecrets = "secrets"
	// FeatureSharding is to divide resources by spec.sharding.mode auto.
	FeatureSharding = "sharding"
)

// Sentinel is a sentinel that runs SentinelConfigs. The zero value has the
// features of the specification alone.
type Sentinel struct {
	// Namespace is where it runs, and where its SentinelConfigs are. Empty
	// means SentinelNamespace.
	Namespace string

	// Account is the name of its ServiceAccount. Empty means SentinelAccount.
	Account string

	// Secrets are the Secrets that the SentinelConfigs name.
	Secrets []string

	// AllSecrets is for SentinelConfigs that may name any Secret of the
	// namespace; Secrets are then of no account.
	AllSecrets bool

	// Sharding is for SentinelConfigs whose sharding has the mode auto.
	Sharding bool
}

// Roles are a role for each feature in use, FeatureBase first.
func (s Sentinel) Roles() []*rbacv1.Role {
	s = s.withDefaults()
	list := []*rbacv1.Role{s.newRole(FeatureBase,
		policyRule("hyperfleet.redhat.com", "sentinelconfigs", "get", "list", "watch"),
		// Status is written by server-side apply.
		policyRule("hyperfleet.redhat.com", "sentinelconfigs/status", "get", "patch"),
		// What comes again adds to an event that there is.
		policyRule("events.k8s.io", "events", "create", "patch"),
	)}
	if s.AllSecrets || len(s.Secrets) > 0 {
		secrets := policyRule(corev1.GroupName, "secrets", "get", "list", "watch")
		if !s.AllSecrets {
			// A list and a watch are let through if their field selector asks
			// for one of the names.
			secrets.ResourceNames = slices.Compact(slices.Sorted(slices.Values(s.Secrets)))
		}
		list = append(list, s.newRole(FeatureSecrets, secrets))
	}
	if s.Sharding {
		list = append(list, s.newRole(FeatureSharding,
			// By names no more can be said: they are made at run time.
			policyRule("coordination.k8s.io", "leases", "list", "watch", "create", "update", "delete")))
	}
	return list
}

// Objects are the ServiceAccount, and the roles, each bound to it.
func (s Sentinel) Objects() []runtime.Object {
	s = s.withDefaults()
	list := []runtime.Object{&corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Account, Namespace: s.Namespace},
	}}
	for _, role := range s.Roles() {
		list = append(list, role, s.newBinding(role))
	}
	return list
}

func (s Sentinel) withDefaults() Sentinel {
	s.Namespace = cmp.Or(s.Namespace, SentinelNamespace)
	s.Account = cmp.Or(s.Account, SentinelAccount)
	return s
}

func (s Sentinel) newRole(feature string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	name := s.Account
	if feature != FeatureBase {
		name += "-" + feature
	}
	return &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace},
		Rules:      rules,
	}
}

func (s Sentinel) newBinding(role *rbacv1.Role) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: s.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: s.Account, Namespace: s.Namespace}},
	}
}

func policyRule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}
