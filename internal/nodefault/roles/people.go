package roles

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// The names of the roles of others, to be bound by an installation.
const (
	// ReporterRole is for monitors: who has it may report faults, and so have
	// nodes taken out of service.
	ReporterRole = "fleetloop-node-fault-reporter"
	// ViewerRole is for those who look.
	ViewerRole = "fleetloop-node-fault-viewer"
	// OperatorRole is for those who give nodes back, have them rebooted or
	// terminated, and say that they have done so.
	OperatorRole = "fleetloop-node-fault-operator"
)

// People are the roles of those who are no part of the controller.
func People() []*rbacv1.ClusterRole {
	look := []string{"get", "list", "watch"}
	return []*rbacv1.ClusterRole{
		ClusterRole(ReporterRole, policyRules(policyRule(faultGroup, faults, "create"))),
		ClusterRole(ViewerRole, policyRules(
			policyRule(faultGroup, faults, look...),
			policyRule(janitorGroup, resourceReboots, look...),
			policyRule(janitorGroup, resourceEnds, look...),
		)),
		ClusterRole(OperatorRole, policyRules(
			// An annotation has change events sent again.
			policyRule(faultGroup, faults, "get", "list", "watch", "patch"),
			policyRule(janitorGroup, resourceReboots, "get", "list", "watch", "create", "patch", "delete"),
			policyRule(janitorGroup, resourceEnds, "get", "list", "watch", "create", "patch", "delete"),
			policyRule(corev1.GroupName, nodes, "get", "list", "patch", "update"),
			// Whoever deletes it opens the budget.
			rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{BudgetLease}, Verbs: []string{"get", "delete"}},
		)),
	}
}
