package roles

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SecretLookupAccountAndRole returns the account that checks for conditions which Secrets exist, and its role.
// The role grants nothing until it is bound by SecretLookupRoleBindings. It allows get and not list, because
// no smaller right reveals whether a Secret exists. The controller requests only their types, not
// their values.
func (a Actions) SecretLookupAccountAndRole() []runtime.Object {
	off := false
	return []runtime.Object{
		&corev1.ServiceAccount{
			TypeMeta:                     metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ServiceAccount"},
			ObjectMeta:                   metav1.ObjectMeta{Name: SecretLookup, Namespace: a.accountNamespace()},
			AutomountServiceAccountToken: &off,
		},
		newClusterRole(SecretLookup, nil, []rbacv1.PolicyRule{newRule(corev1.GroupName, "secrets", "get")}),
	}
}

// SecretLookupRoleBindings returns the bindings that allow the account to look up Secrets in namespaces. With
// an empty name, the namespace is chosen when the binding is applied.
func (a Actions) SecretLookupRoleBindings(namespaces ...string) []runtime.Object {
	var list []runtime.Object
	for _, namespace := range namespaces {
		list = append(list, &rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: SecretLookup, Namespace: namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: SecretLookup},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: SecretLookup, Namespace: a.accountNamespace()}},
		})
	}
	return list
}
