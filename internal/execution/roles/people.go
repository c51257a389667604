package roles

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

const labelAction = v1alpha1.LabelAction

const (
	executionGroup = "kubernetesexecution.kubernaut.io"
	executions     = "kubernetesexecutions"
)

// RequesterClusterRole returns a role for users who may request the given actions only.
func RequesterClusterRole(name string, actions ...*action.Action) *rbacv1.ClusterRole {
	var names []string
	for _, act := range actions {
		// The resource name is the requested action, which may be an alias.
		names = append(append(names, act.Name), act.Aliases...)
	}
	slices.Sort(names)
	// The guard limits the fields that a patch may change, for example to
	// cancel.
	rules := []rbacv1.PolicyRule{newRule(executionGroup, executions, "create", "get", "list", "watch", "patch")}
	if len(names) > 0 { // without names, the rule would cover all actions
		rules = append(rules, limitToNames(newRule(executionGroup, executions, v1alpha1.VerbExecute), names))
	}
	return newClusterRole(name, nil, append(rules, newReadRules()...))
}

// ApproverClusterRole returns a role for users who approve, reject and cancel.
func ApproverClusterRole() *rbacv1.ClusterRole {
	return newClusterRole(v1alpha1.ApproverRole, nil, append([]rbacv1.PolicyRule{
		newRule(executionGroup, executions, "get", "list", "watch", "patch", v1alpha1.VerbApprove),
	}, newReadRules()...))
}

// AdministratorClusterRole returns a role for users who change the policies, set the emergency stop, and
// release or delete executions. The guard protects the two ConfigMaps from all other users,
// whatever rights those have on ConfigMaps.
func AdministratorClusterRole() *rbacv1.ClusterRole {
	return newClusterRole(v1alpha1.AdministratorRole, nil, append([]rbacv1.PolicyRule{
		newRule(executionGroup, executions, "get", "list", "watch", "patch", "delete", v1alpha1.VerbAdminister),
		newRule("", "configmaps", "get", "list", "watch", "create", "update", "patch", "delete"),
	}, newReadRules()...))
}

// ViewerClusterRole returns a read-only role.
func ViewerClusterRole() *rbacv1.ClusterRole {
	return newClusterRole(
		v1alpha1.ViewerRole,
		nil,
		append([]rbacv1.PolicyRule{newRule(executionGroup, executions, "get", "list", "watch")}, newReadRules()...),
	)
}

// newReadRules returns the rights to find out why an execution is in its state. They cover its Job and
// Pods with their logs and events, the leading controller, the emergency stop and the policies. The
// rights are read-only and exclude Secrets. A user who could create a Job or a Pod in this
// namespace could act as any action.
func newReadRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		newRule("batch", "jobs", "get", "list", "watch"),
		newRule("", "pods", "get", "list", "watch"),
		newRule("", "pods/log", "get"),
		newRule("", "events", "get", "list", "watch"),
		newRule("coordination.k8s.io", "leases", "get", "list", "watch"),
		limitToNames(newRule("", "configmaps", "get"), []string{v1alpha1.EmergencyStop, guard.DefaultPolicyConfigMap}),
	}
}

// RequesterClusterRolesUpToRisk returns a role for each risk, which covers the actions of the catalogue up to that
// risk.
func RequesterClusterRolesUpToRisk() []*rbacv1.ClusterRole {
	var list []*rbacv1.ClusterRole
	var covered []*action.Action
	for _, risk := range []action.Risk{action.RiskLow, action.RiskMedium, action.RiskHigh, action.RiskCritical} {
		for _, act := range action.Catalogue() {
			if act.Risk == risk {
				covered = append(covered, act)
			}
		}
		list = append(list, RequesterClusterRole(v1alpha1.RequesterRole+"-"+string(risk), covered...))
	}
	return list
}
