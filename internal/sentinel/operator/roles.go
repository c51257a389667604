package operator

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Names of the sentinel's objects in the specification.
const (
	SentinelNamespace = "hyperfleet-system"
	SentinelAccount   = "hyperfleet-sentinel"
)

// Features of a sentinel with a role. The name of a role is the account's name followed
// by the feature; for FeatureBase it is the account's name alone.
const (
	// FeatureBase is to run SentinelConfigs, and to report on them in their status and
	// in Kubernetes events.
	FeatureBase = ""
	// FeatureSecrets is to watch the Secrets that SentinelConfigs refer to.
	FeatureSecrets = "secrets"
	// FeatureSharding is to distribute resources with spec.sharding.mode auto.
	FeatureSharding = "sharding"
)

// SentinelRoles has the permissions that a sentinel with SentinelConfigs requires on the host
// cluster: one role for each feature in use, with only the rules that the feature requires. The zero
// value has only the features of the specification. The manifests and the tests use it.
type SentinelRoles struct {
	// Namespace is the namespace of the sentinel and its SentinelConfigs. Empty means
	// SentinelNamespace.
	Namespace string

	// Account is the name of its ServiceAccount. Empty means SentinelAccount.
	Account string

	// Secrets are the names of the Secrets that the SentinelConfigs refer to.
	Secrets []string

	// AllSecrets allows SentinelConfigs to refer to any Secret of the namespace;
	// Secrets is then ignored.
	AllSecrets bool

	// Sharding is for SentinelConfigs with sharding mode auto.
	Sharding bool
}

// BuildRoles returns a role for each feature in use, FeatureBase first.
func (s SentinelRoles) BuildRoles() []*rbacv1.Role {
	s = s.withDefaults()
	list := []*rbacv1.Role{s.newRole(FeatureBase,
		newPolicyRule("hyperfleet.redhat.com", "sentinelconfigs", "get", "list", "watch"),
		// Status is written by server-side apply.
		newPolicyRule("hyperfleet.redhat.com", "sentinelconfigs/status", "get", "patch"),
		// A repeated event patches the existing one.
		newPolicyRule("events.k8s.io", "events", "create", "patch"),
	)}
	if s.AllSecrets || len(s.Secrets) > 0 {
		secrets := newPolicyRule(corev1.GroupName, "secrets", "get", "list", "watch")
		if !s.AllSecrets {
			// A list or watch is allowed if its field selector selects one of the
			// names.
			secrets.ResourceNames = slices.Compact(slices.Sorted(slices.Values(s.Secrets)))
		}
		list = append(list, s.newRole(FeatureSecrets, secrets))
	}
	if s.Sharding {
		list = append(list, s.newRole(FeatureSharding,
			// No resource names are possible, as the Leases are created at run time.
			newPolicyRule("coordination.k8s.io", "leases", "list", "watch", "create", "update", "delete")))
	}
	return list
}

// BuildAccountRolesAndBindings returns the ServiceAccount, and the roles with their bindings.
func (s SentinelRoles) BuildAccountRolesAndBindings() []runtime.Object {
	s = s.withDefaults()
	list := []runtime.Object{&corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Account, Namespace: s.Namespace},
	}}
	for _, role := range s.BuildRoles() {
		list = append(list, role, s.newRoleBinding(role))
	}
	return list
}

func (s SentinelRoles) withDefaults() SentinelRoles {
	s.Namespace = cmp.Or(s.Namespace, SentinelNamespace)
	s.Account = cmp.Or(s.Account, SentinelAccount)
	return s
}

func (s SentinelRoles) newRole(feature string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
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

func (s SentinelRoles) newRoleBinding(role *rbacv1.Role) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: s.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: s.Account, Namespace: s.Namespace}},
	}
}

func newPolicyRule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}
