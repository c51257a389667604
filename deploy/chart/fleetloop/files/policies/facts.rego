# Definitions of production, risk and change for the other files.
package fleetloop.safety

import data.fleetloop.safety.config

risks := {"low": 1, "medium": 2, "high": 3, "critical": 4}

default known_risk := false

known_risk if risks[input.action.risk]

# Risk of the action, one level higher if it stops a workload.
default risk := 4

risk := risks[input.action.risk] if not stops_workload

risk := min([4, risks[input.action.risk] + 1]) if stops_workload

risk_from(name) if risk >= risks[name]

default changes := true

changes := false if input.action.readOnly

default class := "production"

class := "non_production" if environment in config.non_production_environments

# Environment of the target. spec.environment is used if it is stricter, or if
# config.trust_requested_environment is true.
environment := input.request.requestedEnvironment if request_counts

environment := known_environment if not request_counts

request_counts if {
	input.request.requestedEnvironment != ""
	not non_production_by_request
}

request_counts if {
	non_production_by_request
	config.trust_requested_environment
}

non_production_by_request if input.request.requestedEnvironment in config.non_production_environments

# Whether the namespace has the label in --environment-label of the controller.
default labelled := false

labelled if input.namespace.environment != ""

known_environment := input.namespace.environment if labelled

known_environment := config.default_environment if not labelled

warnings contains msg if {
	non_production_by_request
	class == "production"
	msg := sprintf("spec.environment is %s, but the namespace does not have this environment: it is treated as production", [input.request.requestedEnvironment])
}

# Desired number of replicas, if the action changes it: from its parameters, its
# manifest or its plan.
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

# A change of an autoscaler affects the workload that it scales.
critical if input.target.scales.labels.critical == "true"

# Workload with the label: the target, or the one that it scales.
workload := name if {
	name := input.target.scales.name
	name != ""
} else := input.target.name
