# The values of the policies beside this file. Change them here; the rules are
# written so that a change of values needs no change of rules.
package fleetloop.safety.config

# What a decision is called in the status of an execution and in metrics.
policy_name := "fleetloop-default-v1"

# Environments in which mistakes are cheap. Everything else is production, so
# that an environment with a misspelt name is treated with care.
cheap_environments := {"development", "dev", "test", "testing", "sandbox", "staging"}

# The environment of targets of which no label says it: those in namespaces
# without the label that --environment-label of the controller names, and nodes.
default_environment := "production"

# Whether a request is believed when it says that a target is in a cheap
# environment, and nothing but the request says so. Whoever asks could get
# around approvals with one word, so it is not.
believe_requests := false

protected_namespaces := {"kube-system", "kube-public", "kube-node-lease"}

# From which risk on a change must be tried out first, and must be approved.
dry_run_from := "medium"

approval_from := {"production": "medium", "cheap": "critical"}

# How many must approve, and who of them: no groups is everybody who may.
approvals := {
	"production": {"count": 1, "groups": [], "fourEyes": true},
	"cheap": {"count": 1, "groups": [], "fourEyes": false},
}

# Bounds of replicas, and the least of what bears the label critical=true.
max_replicas := {"production": 50, "cheap": 20}

min_critical_replicas := 2

# A cluster with fewer ready nodes is not drained.
drain_min_ready_nodes := 3

# How many objects one action may change. A Node that is drained counts with the
# Pods that leave it.
max_affected := 120

# How often the same action may be done to the same target within an hour, and
# after how many failures a person has to look first.
max_per_hour := 6

failures_until_approval := 2

# Off. When it is on, production is changed only at these hours, by actions of
# the risk dry_run_from and above.
business_hours := {
	"enabled": false,
	"timezone": "UTC",
	"days": {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday"},
	"from": 9,
	"until": 17,
}
