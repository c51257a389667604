package main

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

// writeActions writes the rights of executions.
func writeActions() error {
	var accounts, cluster, namespace []runtime.Object
	bare := roles.Actions{}
	for _, act := range action.Catalogue() {
		if act.NoJob {
			continue
		}
		for _, o := range bare.Base(act) {
			if forCluster(act, o) {
				cluster = append(cluster, o)
			} else {
				accounts = append(accounts, o)
			}
		}
		namespace = append(namespace, bare.InNamespaces(act, "")...)
	}
	accounts = append(accounts, bare.SecretLookup()...)
	namespace = append(namespace, bare.SecretLookupIn("")...)
	secrets, err := byChoice(roles.Actions{Secrets: []string{"web-credentials"}}, "update_secret")
	if err != nil {
		return err
	}
	manifests, err := byChoice(roles.Actions{Manifests: []string{"configmaps", "apps/deployments"}}, "apply_manifest")
	if err != nil {
		return err
	}
	people := []runtime.Object{roles.Viewer(), roles.Approver(), roles.Administrator()}
	for _, role := range roles.Requesters() {
		people = append(people, role)
	}
	for _, f := range []file{
		{"actions.yaml", "The accounts of actions, that of looking up Secrets, and their roles. In the namespace of executions they are bound; for\n# the namespaces that are acted on see actions-namespace.yaml.", accounts},
		{"actions-cluster.yaml", "Beside actions.yaml: what actions on Nodes need, and what others need outside of namespaces.", cluster},
		{"actions-namespace.yaml", "Beside actions.yaml: has actions act in one namespace, and conditions on invalid_secrets\n# know of its Secrets. kubectl apply -n NAMESPACE -f this-file", namespace},
		{"actions-secrets.yaml", "Beside actions.yaml, for update_secret. Put the names of your Secrets into resourceNames: there\n# is no right on any other. kubectl apply -n NAMESPACE -f this-file", secrets},
		{"actions-manifests.yaml", "Beside actions.yaml, for apply_manifest. Say which kinds it may act on: there is no right on\n# any other. kubectl apply -n NAMESPACE -f this-file", manifests},
		{"actions-controller.yaml", "The controller of executions, its account, and what it needs.", roles.Controller{}.Objects()},
		{"actions-people.yaml", "For people, to be bound in the namespace of executions: those who look, those who approve, those\n# who administer, and those who ask for actions up to a risk.", people},
	} {
		if err := write(f); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}

// forCluster says whether an object is about rights outside of namespaces.
func forCluster(act *action.Action, o runtime.Object) bool {
	switch o := o.(type) {
	case *rbacv1.ClusterRoleBinding:
		return true
	case *rbacv1.ClusterRole:
		return o.Name != act.ServiceAccount()
	}
	return false
}

// byChoice are the role and the binding of an action whose rights an
// installation chooses.
func byChoice(a roles.Actions, name string) ([]runtime.Object, error) {
	act, ok := action.Find(name)
	if !ok {
		return nil, fmt.Errorf("unknown action %q", name)
	}
	role, _, _ := a.Roles(act)
	return append([]runtime.Object{role}, a.InNamespaces(act, "")...), nil
}
