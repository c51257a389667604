package roles

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/internal/execution/identity"
)

// SecretLookup is the account that looks up for conditions which Secrets exist,
// and its role. The role gives nothing until it is bound: see SecretLookupIn. It
// may get Secrets and not list them, since there is no smaller right to know of
// one by its name; the controller asks for their types and not for their values.
func (a Actions) SecretLookup() []runtime.Object {
	off := false
	return []runtime.Object{
		&corev1.ServiceAccount{
			TypeMeta:                     metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ServiceAccount"},
			ObjectMeta:                   metav1.ObjectMeta{Name: identity.SecretLookup, Namespace: a.accountNamespace()},
			AutomountServiceAccountToken: &off,
		},
		newClusterRole(identity.SecretLookup, nil, []rbacv1.PolicyRule{newRule(corev1.GroupName, "secrets", "get")}),
	}
}

// SecretLookupIn are the bindings by which the account may look up Secrets in
// namespaces. The empty name leaves it to whoever applies them.
func (a Actions) SecretLookupIn(namespaces ...string) []runtime.Object {
	var list []runtime.Object
	for _, namespace := range namespaces {
		list = append(list, &rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: identity.SecretLookup, Namespace: namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: identity.SecretLookup},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: identity.SecretLookup, Namespace: a.accountNamespace()}},
		})
	}
	return list
}
