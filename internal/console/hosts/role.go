package hosts

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// RoleName is the name of the role and of the account of the console in a host cluster.
const RoleName = "fleetloop-console"

// NewConsoleClusterRole returns the rights of the console's own account. It reads what the console shows,
// and asks which of it a person may read. It changes nothing and acts as no one else.
func NewConsoleClusterRole() *rbacv1.ClusterRole {
	look := []string{"get", "list", "watch"}
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: RoleName},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{executionGroup}, Resources: []string{executionsName}, Verbs: look},
			{APIGroups: []string{faultGroup}, Resources: []string{faultsName}, Verbs: look},
			{APIGroups: []string{sentinelGroup}, Resources: []string{sentinelsName}, Verbs: look},
			{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		},
	}
}

// NewAccountObjects returns the account of the console and its rights.
func NewAccountObjects(namespace string) []runtime.Object {
	account := &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: RoleName, Namespace: namespace},
	}
	return []runtime.Object{account, NewConsoleClusterRole(), NewClusterRoleBinding(namespace)}
}

// NewClusterRoleBinding returns the binding of the role to the service account of the console.
func NewClusterRoleBinding(namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: RoleName},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: RoleName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: RoleName, Namespace: namespace}},
	}
}
