# How many replicas there may be. A count that is no number is refused first:
# every string is greater than every number, and a comparison alone would say
# something that nobody meant.
package fleetloop.safety

import data.fleetloop.safety.config

violations contains msg if {
	stops_workload
	critical
	msg := sprintf("%s is critical and is not scaled to zero", [input.target.name])
}

violations contains msg if {
	input.action.name == "apply_manifest"
	input.request.parameters.state == "absent"
	critical
	msg := sprintf("%s is critical and is not deleted", [input.target.name])
}

violations contains msg if {
	is_number(replicas)
	replicas > config.max_replicas[class]
	msg := sprintf("%d replicas are more than %d, which is the most here", [replicas, config.max_replicas[class]])
}

violations contains msg if {
	critical
	is_number(replicas)
	not stops_workload
	replicas < config.min_critical_replicas
	msg := sprintf("%s is critical and needs %d replicas at least", [input.target.name, config.min_critical_replicas])
}

violations contains msg if {
	some name in ["replicas", "minReplicas", "maxReplicas"]
	given := input.request.parameters[name]
	not is_number(given)
	msg := sprintf("%s is no number", [name])
}

violations contains msg if {
	input.action.name == "update_hpa"
	most := input.request.parameters.maxReplicas
	is_number(most)
	most > config.max_replicas[class]
	msg := sprintf("maxReplicas %d is more than %d, which is the most here", [most, config.max_replicas[class]])
}

violations contains msg if {
	input.action.name == "update_hpa"
	critical
	some name in ["minReplicas", "maxReplicas"]
	input.request.parameters[name] < config.min_critical_replicas
	msg := sprintf("%s is critical and needs %d replicas at least", [workload, config.min_critical_replicas])
}
