# What the other files mean by production, risk and change.
package fleetloop.safety

import data.fleetloop.safety.config

risks := {"low": 1, "medium": 2, "high": 3, "critical": 4}

default known_risk := false

known_risk if risks[input.action.risk]

# What the catalogue says of an action, and one more for what stops a workload.
default risk := 4

risk := risks[input.action.risk] if not stops_workload

risk := min([4, risks[input.action.risk] + 1]) if stops_workload

risk_from(name) if risk >= risks[name]

default changes := true

changes := false if input.action.readOnly

default class := "production"

class := "cheap" if environment in config.cheap_environments

# The environment of the target. The one that a request names counts where it is
# the stricter one, or where config.believe_requests says so.
environment := input.request.requestedEnvironment if request_counts

environment := known_environment if not request_counts

request_counts if {
	input.request.requestedEnvironment != ""
	not cheap_by_request
}

request_counts if {
	cheap_by_request
	config.believe_requests
}

cheap_by_request if input.request.requestedEnvironment in config.cheap_environments

# What the label says that --environment-label of the controller names.
default labelled := false

labelled if input.namespace.environment != ""

known_environment := input.namespace.environment if labelled

known_environment := config.default_environment if not labelled

warnings contains msg if {
	cheap_by_request
	class == "production"
	msg := sprintf("the request says %s, but the namespace does not: it is treated as production", [input.request.requestedEnvironment])
}

# How many replicas the target is to have, if that is what the action changes:
# by its parameters, by what it applies, or by what its plan comes to.
scaling := {"scale_deployment", "scale_statefulset"}

replicas := input.request.parameters.replicas if input.action.name in scaling

replicas := planned_replicas if not input.action.name in scaling

replicas := input.request.parameters.manifest.spec.replicas if {
	input.action.name == "apply_manifest"
	not contains(object.get(input, ["plan", "replicasChanged"], ""), " -> ")
}

planned_replicas := to_number(split(input.plan.replicasChanged, " -> ")[1]) if contains(input.plan.replicasChanged, " -> ")

stops_workload if replicas == 0

critical if input.target.labels.critical == "true"

# Who sets the bounds of an autoscaler scales what it scales.
critical if input.target.scales.labels.critical == "true"

# What bears the label: the target, or what it scales.
workload := name if {
	name := input.target.scales.name
	name != ""
} else := input.target.name
