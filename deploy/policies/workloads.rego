# Limits of replicas. Non-numeric counts are denied first, because in Rego every
# string is greater than every number.
package fleetloop.safety

import data.fleetloop.safety.config

violations contains msg if {
	stops_workload
	critical
	msg := sprintf("%s is critical and must not be scaled to zero", [input.target.name])
}

violations contains msg if {
	input.action.name == "apply_manifest"
	input.request.parameters.state == "absent"
	critical
	msg := sprintf("%s is critical and must not be deleted", [input.target.name])
}

violations contains msg if {
	is_number(replicas)
	replicas > config.max_replicas[class]
	msg := sprintf("%d replicas are more than the maximum of %d", [replicas, config.max_replicas[class]])
}

violations contains msg if {
	critical
	is_number(replicas)
	not stops_workload
	replicas < config.min_critical_replicas
	msg := sprintf("%s is critical and needs at least %d replicas", [input.target.name, config.min_critical_replicas])
}

violations contains msg if {
	some name in ["replicas", "minReplicas", "maxReplicas"]
	given := input.request.parameters[name]
	not is_number(given)
	msg := sprintf("%s is not a number", [name])
}

violations contains msg if {
	input.action.name == "update_hpa"
	most := input.request.parameters.maxReplicas
	is_number(most)
	most > config.max_replicas[class]
	msg := sprintf("maxReplicas %d is more than the maximum of %d", [most, config.max_replicas[class]])
}

violations contains msg if {
	input.action.name == "update_hpa"
	critical
	some name in ["minReplicas", "maxReplicas"]
	input.request.parameters[name] < config.min_critical_replicas
	msg := sprintf("%s is critical and needs at least %d replicas", [workload, config.min_critical_replicas])
}

# A patch or a manifest must not remove the label that protects a workload.
violations contains msg if {
	critical
	unlabels
	msg := sprintf("%s is critical, and actions must not change that label", [workload])
}

unlabels if "/metadata/labels/critical" in object.keys(input.plan.before)

unlabels if {
	label := input.request.parameters.manifest.metadata.labels.critical
	label != "true"
}

# Fields that give a workload access to its node, or another service account. They
# can be in a patch, as fields or paths of operations, or in a manifest.
host_fields := {
	"hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostPath", "privileged", "allowPrivilegeEscalation",
	"capabilities", "procMount", "serviceAccountName", "serviceAccount",
}

host_access contains field if {
	input.action.name in {"patch_deployment", "apply_manifest"}
	walk(input.request.parameters, [path, value])
	field := path[count(path) - 1]
	field in host_fields
	grants(field, value)
}

host_access contains field if {
	input.action.name == "patch_deployment"
	some operation in input.request.parameters.patch
	some field in split(operation.path, "/")
	field in host_fields
	operation.op != "remove"
	grants(field, object.get(operation, "value", true))
}

# All fields except hostUsers grant access unless they are false.
grants("hostUsers", false)

grants(field, value) if {
	field != "hostUsers"
	not value in {false, null}
}

approval_reasons contains reason if {
	count(host_access) > 0
	reason := sprintf("sensitive Pod fields: %s", [concat(", ", sort(host_access))])
}
