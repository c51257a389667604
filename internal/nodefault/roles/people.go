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
		ClusterRole(ReporterRole, rules(rule(faultGroup, faults, "create"))),
		ClusterRole(ViewerRole, rules(
			rule(faultGroup, faults, look...),
			rule(janitorGroup, resourceReboots, look...),
			rule(janitorGroup, resourceEnds, look...),
		)),
		ClusterRole(OperatorRole, rules(
			// An annotation has change events sent again.
			rule(faultGroup, faults, "get", "list", "watch", "patch"),
			rule(janitorGroup, resourceReboots, "get", "list", "watch", "create", "patch", "delete"),
			rule(janitorGroup, resourceEnds, "get", "list", "watch", "create", "patch", "delete"),
			rule(corev1.GroupName, nodes, "get", "list", "patch", "update"),
			// Whoever deletes it opens the budget.
			rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{BudgetLease}, Verbs: []string{"get", "delete"}},
		)),
	}
}
