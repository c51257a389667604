# The decision: data.fleetloop.safety.decision. The rules of the other files add
# to violations, warnings and approval_reasons. Any violation denies the action.
package fleetloop.safety

import data.fleetloop.safety.config

decision := {
	"allow": allow,
	"violations": violations,
	"warnings": warnings,
	"requireDryRun": require_dry_run,
	"requireApproval": require_approval,
	"approvals": approvals,
	"policyName": config.policy_name,
}

default allow := false

allow if {
	known_risk
	count(violations) == 0
}

default require_dry_run := true

require_dry_run := false if input.action.readOnly

require_dry_run := false if {
	known_risk
	not input.action.readOnly
	not risk_from(config.dry_run_min_risk)
}

default require_approval := true

require_approval := false if {
	known_risk
	count(approval_reasons) == 0
}

# Whether an assistant makes the request, and not the user.
default by_assistant := false

by_assistant if input.request.requestedByAgent != ""

approvals := config.approvals[class] if not by_assistant

# An assistant acts with the name of its user, so another person decides.
approvals := object.union(config.approvals[class], {"requesterCannotApprove": true}) if by_assistant

approval_reasons contains reason if {
	by_assistant
	reason := sprintf("requested by the assistant %s", [input.request.requestedByAgent])
}

approval_reasons contains "risk" if {
	changes
	risk_from(config.approval_min_risk[class])
}

warnings contains msg if {
	some reason in approval_reasons
	reason != "risk"
	msg := sprintf("approval required: %s", [reason])
}

warnings contains msg if {
	some warning in input.plan.dryRunWarnings
	msg := sprintf("dry run: %s", [warning])
}
