# Protected targets, and targets that other controllers manage.
package fleetloop.safety

import data.fleetloop.safety.config

violations contains msg if {
	not known_risk
	msg := "unknown action, or action with an unknown risk"
}

violations contains msg if {
	input.target.protected
	msg := sprintf("%s %s is protected", [input.target.kind, input.target.name])
}

violations contains msg if {
	input.target.namespace in config.protected_namespaces
	msg := sprintf("namespace %s is protected", [input.target.namespace])
}

violations contains msg if {
	input.target.kind == "Namespace"
	input.target.name in config.protected_namespaces
	msg := sprintf("namespace %s is protected", [input.target.name])
}

violations contains "the target has no name" if {
	changes
	input.target.name == ""
}

violations contains msg if {
	not input.serviceAccount.permissionsOk
	msg := "the service account of the action lacks a required permission"
}

violations contains msg if {
	input.plan.affected > config.max_affected_objects
	msg := sprintf("%d objects would change, at most %d are allowed", [input.plan.affected, config.max_affected_objects])
}

# Rollbacks are always allowed.
violations contains msg if {
	changes
	not input.request.rollback
	past.count1h >= config.max_per_hour
	msg := sprintf("the action ran on %s %d times within an hour, at most %d are allowed", [input.target.name, past.count1h, config.max_per_hour])
}

approval_reasons contains reason if {
	changes
	past.failures1h >= config.failures_before_approval
	reason := sprintf("%d failures within an hour", [past.failures1h])
}

past := input.history.sameActionTarget

# GitOps tools, autoscalers and operators can revert a change.
fought contains who if {
	changes
	input.target.managedBy.gitops != ""
	who := sprintf("%s, which manages the target and can revert the change", [input.target.managedBy.gitops])
}

fought contains who if {
	input.action.name in {"scale_deployment", "scale_statefulset"}
	input.target.managedBy.hpa != ""
	who := sprintf("HorizontalPodAutoscaler %s, which scales the target and can revert the change", [input.target.managedBy.hpa])
}

fought contains who if {
	changes
	input.target.managedBy.operator != ""
	who := sprintf("%s, whose controller owns the target and can revert the change", [input.target.managedBy.operator])
}

approval_reasons contains who if {
	class == "production"
	some who in fought
}

warnings contains msg if {
	class != "production"
	some who in fought
	msg := sprintf("target is managed by %s", [who])
}
