package fleetloop.safety_test

import data.fleetloop.safety

# A change of medium risk in development, with which nothing is wrong. Tests
# replace what they are about.
base := {
	"apiVersion": "fleetloop.io/policy/v1",
	"now": 1763805600,
	"request": {
		"action": "scale_deployment",
		"parameters": {"deployment": "web", "namespace": "shop", "replicas": 5},
		"environment": "development",
		"requestedEnvironment": "",
		"labels": {},
		"annotations": {},
		"rollback": false,
	},
	"action": {"name": "scale_deployment", "risk": "medium", "readOnly": false},
	"target": {
		"apiVersion": "apps/v1",
		"kind": "Deployment",
		"namespace": "shop",
		"name": "web",
		"labels": {},
		"protected": false,
		"managedBy": {"gitops": "", "hpa": "", "operator": ""},
	},
	"namespace": {"name": "shop", "environment": "development", "labels": {}},
	"cluster": {"totalNodes": 5, "readyNodes": 5, "schedulableNodes": 4, "unschedulableNodes": ["worker-5"]},
	"history": {"sameActionTarget": {"count1h": 0, "failures1h": 0}},
	"serviceAccount": {"name": "kubernaut-action-scale-deployment", "permissionsOk": true},
}

production := object.union(base, {"request": {"environment": "production"}, "namespace": {"environment": "production"}})

decide(asks) := d if d := safety.decision with input as asks

asked(from, change) := decide(object.union(from, change))

denied(d, part) if {
	not d.allow
	some v in d.violations
	contains(v, part)
}

warned(d, part) if {
	some w in d.warnings
	contains(w, part)
}

test_development_is_free_but_tried_out if {
	d := decide(base)
	d.allow
	not d.requireApproval
	d.requireDryRun
	d.warnings == set()
}

test_low_risk_is_free_everywhere if {
	d := asked(production, {"action": {"risk": "low"}})
	d.allow
	not d.requireApproval
	not d.requireDryRun
}

test_production_needs_a_second_person if {
	every risk in ["medium", "high", "critical"] {
		d := asked(production, {"action": {"risk": risk}})
		d.allow
		d.requireApproval
		d.requireDryRun
		d.approvals == {"count": 1, "groups": [], "requesterCannotApprove": true}
	}
}

test_critical_risk_needs_an_approval_elsewhere if {
	d := asked(base, {"action": {"risk": "critical"}})
	d.requireApproval
	not d.approvals.requesterCannotApprove
	not asked(base, {"action": {"risk": "high"}}).requireApproval
}

test_reading_needs_nothing if {
	d := asked(production, {"action": {"name": "collect_diagnostics", "risk": "low", "readOnly": true}, "target": {"name": ""}})
	d.allow
	not d.requireApproval
	not d.requireDryRun
}

test_a_rollback_needs_the_same if {
	d := asked(production, {"request": {"rollback": true}})
	d.requireApproval
	d.requireDryRun
	d.approvals.requesterCannotApprove
}

assistant := {"request": {"requestedByAgent": "claude-code 2.1"}}

test_an_assistant_needs_the_approval_of_another_person_everywhere if {
	every risk in ["low", "medium", "high", "critical"] {
		every from in [base, production] {
			d := asked(object.union(from, assistant), {"action": {"risk": risk}})
			d.allow
			d.requireApproval
			d.approvals.count >= 1
			d.approvals.requesterCannotApprove
			warned(d, "requested by the assistant claude-code 2.1")
		}
	}
}

test_an_assistant_needs_an_approval_to_read_and_to_roll_back if {
	asked(object.union(base, assistant), {"action": {"name": "collect_diagnostics", "risk": "low", "readOnly": true}}).requireApproval
	asked(object.union(base, assistant), {"request": {"rollback": true}}).approvals.requesterCannotApprove
}

# The groups and the number of the settings remain.
test_an_assistant_changes_only_who_may_approve if {
	d := decide(object.union(base, assistant)) with data.fleetloop.safety.config.approvals as {"non_production": {"count": 2, "groups": ["sre"], "requesterCannotApprove": false}}
	d.approvals == {"count": 2, "groups": ["sre"], "requesterCannotApprove": true}
}

test_a_person_is_no_assistant if not asked(base, {"request": {"requestedByAgent": ""}}).requireApproval

test_unknown_environments_are_production if {
	every name in ["", "prod", "Production", "qa-7"] {
		asked(base, {"namespace": {"environment": name}}).requireApproval
		asked(base, {"request": {"requestedEnvironment": name}, "namespace": {"environment": name}}).requireApproval
	}
}

test_no_label_counts_but_the_one_of_the_controller if {
	labels := {"environment": "development", "kubernaut.io/environment": "development"}
	asked(base, {"namespace": {"environment": "", "labels": labels}}).requireApproval
	asked(base, {"namespace": {"environment": "production", "labels": labels}}).requireApproval
}

test_a_request_alone_does_not_make_it_cheap if {
	d := asked(production, {"request": {"requestedEnvironment": "development"}})
	d.requireApproval
	warned(d, "treated as production")
	asked(base, {"request": {"requestedEnvironment": "development"}, "namespace": {"environment": ""}}).requireApproval
}

test_a_request_is_believed_where_that_is_said if {
	asks := object.union(production, {"request": {"requestedEnvironment": "development"}})
	d := safety.decision with input as asks with data.fleetloop.safety.config.trust_requested_environment as true
	not d.requireApproval
}

test_a_request_can_make_it_dear if asked(base, {"request": {"requestedEnvironment": "production"}}).requireApproval

test_nodes_are_production_unless_said_otherwise if {
	asks := object.union(base, {
		"action": {"name": "uncordon_node"},
		"target": {"kind": "Node", "namespace": "", "name": "worker-5"},
		"request": {"environment": "production", "parameters": {"node": "worker-5"}},
		"namespace": {"name": "", "environment": ""},
	})
	decide(asks).requireApproval
	d := safety.decision with input as asks with data.fleetloop.safety.config.default_environment as "development"
	not d.requireApproval
}

test_dry_run_warnings_are_passed_on if warned(asked(base, {"plan": {"affected": 1, "dryRunWarnings": ["deprecated"]}}), "dry run: deprecated")

test_nothing_is_denied if {
	d := safety.decision with input as {}
	not d.allow
	d.requireApproval
	d.requireDryRun
}
