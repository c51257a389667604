package main

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

// writeActionRoles writes the permissions of executions.
func writeActionRoles() error {
	var accounts, cluster, namespace []runtime.Object
	bare := roles.Actions{}
	for _, act := range action.Catalogue() {
		if act.NoJob {
			continue
		}
		for _, o := range bare.BaseObjects(act) {
			if isClusterWide(act, o) {
				cluster = append(cluster, o)
			} else {
				accounts = append(accounts, o)
			}
		}
		namespace = append(namespace, bare.NamespaceBindings(act, "")...)
	}
	accounts = append(accounts, bare.SecretLookupAccountAndRole()...)
	namespace = append(namespace, bare.SecretLookupRoleBindings("")...)
	secrets, err := newActionRoleObjects(roles.Actions{Secrets: []string{"web-credentials"}}, "update_secret")
	if err != nil {
		return err
	}
	manifests, err := newActionRoleObjects(roles.Actions{Manifests: []string{"configmaps", "apps/deployments"}}, "apply_manifest")
	if err != nil {
		return err
	}
	people := []runtime.Object{roles.ViewerClusterRole(), roles.ApproverClusterRole(), roles.AdministratorClusterRole()}
	for _, role := range roles.RequesterClusterRolesUpToRisk() {
		people = append(people, role)
	}
	for _, f := range []file{
		{"actions.yaml", "Service accounts of the actions and of the Secret lookup, and their roles. The bindings here are for the namespace of\n# executions; see actions-namespace.yaml for the namespaces of the targets.", accounts},
		{"actions-cluster.yaml", "In addition to actions.yaml: cluster-wide permissions, for example of actions on Nodes.", cluster},
		{"actions-namespace.yaml", "In addition to actions.yaml: permissions of the actions in one namespace, and of the Secret lookup\n# for the condition input invalid_secrets. kubectl apply -n NAMESPACE -f this-file", namespace},
		{"actions-secrets.yaml", "In addition to actions.yaml, for update_secret. Set resourceNames to the names of your Secrets.\n# kubectl apply -n NAMESPACE -f this-file", secrets},
		{"actions-manifests.yaml", "In addition to actions.yaml, for apply_manifest. Set the resources that it can change.\n# kubectl apply -n NAMESPACE -f this-file", manifests},
		{"actions-controller.yaml", "Service account and permissions of the execution controller.", roles.Controller{}.Objects()},
		{"actions-people.yaml", "Roles for users, to be bound in the namespace of executions: viewer, approver, administrator, and\n# requesters of actions up to a risk.", people},
	} {
		if err := writeManifestFile(f); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}

// isClusterWide reports whether an object grants cluster-scoped permissions.
func isClusterWide(act *action.Action, o runtime.Object) bool {
	switch o := o.(type) {
	case *rbacv1.ClusterRoleBinding:
		return true
	case *rbacv1.ClusterRole:
		return o.Name != act.ServiceAccount()
	}
	return false
}

// newActionRoleObjects returns the role and the binding of an action whose permissions are optional.
func newActionRoleObjects(a roles.Actions, name string) ([]runtime.Object, error) {
	act, ok := action.Find(name)
	if !ok {
		return nil, fmt.Errorf("unknown action %q", name)
	}
	role, _, _ := a.Roles(act)
	return append([]runtime.Object{role}, a.NamespaceBindings(act, "")...), nil
}
