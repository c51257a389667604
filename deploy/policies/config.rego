# Settings of the safety policies. Change the values here; the rules in the
# other files use them.
package fleetloop.safety.config

# Name of the policies in the status of executions and in metrics.
policy_name := "fleetloop-default-v1"

# Environments that are not production. All other environments, including
# misspelt ones, are treated as production.
non_production_environments := {"development", "dev", "test", "testing", "sandbox", "staging"}

# Environment of targets without an environment label: those in namespaces
# without the label in --environment-label of the controller, and nodes.
default_environment := "production"

# Whether spec.environment alone can make a target non-production. If true,
# requesters can bypass approvals.
trust_requested_environment := false

protected_namespaces := {"kube-system", "kube-public", "kube-node-lease"}

# Minimum risk of a change that requires a dry run, or an approval.
dry_run_min_risk := "medium"

approval_min_risk := {"production": "medium", "non_production": "critical"}

# count is the number of required approvals. Each approver must be in one of the
# groups; an empty list means no restriction. With requesterCannotApprove, the user
# who requests the execution can neither approve nor reject it; that is always so
# for requests by assistants.
approvals := {
	"production": {"count": 1, "groups": [], "requesterCannotApprove": true},
	"non_production": {"count": 1, "groups": [], "requesterCannotApprove": false},
}

# Maximum number of replicas, and minimum for workloads with the label
# critical=true.
max_replicas := {"production": 50, "non_production": 20}

min_critical_replicas := 2

# Nodes are drained only if at least this many nodes are ready.
drain_min_ready_nodes := 3

# Maximum number of objects that one action changes. A drain counts the Node and
# its evicted Pods.
max_affected_objects := 120

# Maximum number of executions of the same action on the same target within an
# hour, and number of failures within an hour after which approval is required.
max_per_hour := 6

failures_before_approval := 2

# If enabled, actions with a risk of at least dry_run_min_risk change production
# only during these hours.
business_hours := {
	"enabled": false,
	"timezone": "UTC",
	"days": {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday"},
	"from": 9,
	"until": 17,
}
