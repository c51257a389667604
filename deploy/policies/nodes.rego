# Limits for actions on nodes.
package fleetloop.safety

import data.fleetloop.safety.config

violations contains msg if {
	input.action.name == "drain_node"
	input.cluster.readyNodes < config.drain_min_ready_nodes
	msg := sprintf("the cluster has %d ready nodes, drains require at least %d", [input.cluster.readyNodes, config.drain_min_ready_nodes])
}

violations contains msg if {
	takes_node_away
	others_schedulable < 1
	msg := sprintf("%s is the last schedulable node", [input.target.name])
}

takes_node_away if input.action.name in {"cordon_node", "drain_node"}

takes_node_away if {
	input.action.name == "taint_node"
	input.request.parameters.effect in {"NoSchedule", "NoExecute"}
}

others_schedulable := input.cluster.schedulableNodes if input.target.name in input.cluster.unschedulableNodes

others_schedulable := input.cluster.schedulableNodes - 1 if not input.target.name in input.cluster.unschedulableNodes
