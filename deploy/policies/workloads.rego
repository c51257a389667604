# How many replicas there may be.
package fleetloop.safety

import data.fleetloop.safety.config

violations contains msg if {
	stops_workload
	critical
	msg := sprintf("%s is critical and is not scaled to zero", [input.target.name])
}

violations contains msg if {
	replicas > config.max_replicas[class]
	msg := sprintf("%d replicas are more than %d, which is the most here", [replicas, config.max_replicas[class]])
}

violations contains msg if {
	critical
	not stops_workload
	replicas < config.min_critical_replicas
	msg := sprintf("%s is critical and needs %d replicas at least", [input.target.name, config.min_critical_replicas])
}

# Every string is greater than every number: a comparison alone would let "2"
# pass for more than 50 or less than nothing.
violations contains "replicas is not a number" if {
	replicas
	not is_number(replicas)
}

violations contains msg if {
	input.action.name == "update_hpa"
	most := input.request.parameters.maxReplicas
	most > config.max_replicas[class]
	msg := sprintf("maxReplicas %d is more than %d, which is the most here", [most, config.max_replicas[class]])
}

violations contains msg if {
	input.action.name == "update_hpa"
	critical
	input.request.parameters.minReplicas < config.min_critical_replicas
	msg := sprintf("%s is critical and needs %d replicas at least", [input.target.name, config.min_critical_replicas])
}
