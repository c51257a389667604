package nodefault

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// The names of roles for people and other components. An installation binds them.
const (
	// ReporterRole is for monitors. It allows reports of faults, and so can take nodes
	// out of service.
	ReporterRole = "fleetloop-node-fault-reporter"
	// ViewerRole allows read access.
	ViewerRole = "fleetloop-node-fault-viewer"
	// OperatorRole is for people who release nodes, request reboots and terminations, and
	// confirm that they are done.
	OperatorRole = "fleetloop-node-fault-operator"
)

// PeopleRoles returns the roles for people and components other than the controller.
func PeopleRoles() []*rbacv1.ClusterRole {
	look := []string{"get", "list", "watch"}
	return []*rbacv1.ClusterRole{
		newClusterRole(ReporterRole, policyRules(policyRule(faultGroup, resourceFaults, "create"))),
		newClusterRole(ViewerRole, policyRules(
			policyRule(faultGroup, resourceFaults, look...),
			policyRule(janitorGroup, resourceReboots, look...),
			policyRule(janitorGroup, resourceEnds, look...),
		)),
		newClusterRole(OperatorRole, policyRules(
			// An annotation requests that change events are sent again.
			policyRule(faultGroup, resourceFaults, "get", "list", "watch", "patch"),
			policyRule(janitorGroup, resourceReboots, "get", "list", "watch", "create", "patch", "delete"),
			policyRule(janitorGroup, resourceEnds, "get", "list", "watch", "create", "patch", "delete"),
			policyRule(corev1.GroupName, resourceNodes, "get", "list", "patch", "update"),
			// Deleting the Lease resets the budget.
			rbacv1.PolicyRule{
				APIGroups:     []string{"coordination.k8s.io"},
				Resources:     []string{"leases"},
				ResourceNames: []string{BudgetLease},
				Verbs:         []string{"get", "delete"},
			},
		)),
	}
}
