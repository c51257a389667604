package fleetloop.safety_test

test_risks_that_are_unknown_are_denied if denied(asked(base, {"action": {"risk": "boundless"}}), "unknown risk")

test_actions_without_a_risk_are_denied if denied(decide(json.remove(base, ["action/risk"])), "unknown action")

test_protected_objects_are_denied if denied(asked(base, {"target": {"protected": true}}), "Deployment web is protected")

test_system_namespaces_are_denied if {
	every namespace in ["kube-system", "kube-public", "kube-node-lease"] {
		denied(asked(base, {"target": {"namespace": namespace}}), namespace)
		denied(asked(base, {"target": {"kind": "Namespace", "namespace": "", "name": namespace}}), namespace)
	}
}

test_targets_without_a_name_are_denied if denied(asked(base, {"target": {"name": ""}}), "no name")

test_accounts_without_rights_are_denied if denied(asked(base, {"serviceAccount": {"permissionsOk": false}}), "lacks a required permission")

test_large_plans_are_denied if {
	denied(asked(base, {"plan": {"affected": 121, "dryRunWarnings": []}}), "121 objects")
	asked(base, {"plan": {"affected": 120, "dryRunWarnings": []}}).allow
}

test_repetition_is_denied if {
	denied(asked(base, {"history": {"sameActionTarget": {"count1h": 6}}}), "6 times")
	asked(base, {"history": {"sameActionTarget": {"count1h": 5}}}).allow
	asked(base, {"history": {"sameActionTarget": {"count1h": 6}}, "request": {"rollback": true}}).allow
}

test_failures_call_for_a_person if {
	d := asked(base, {"history": {"sameActionTarget": {"failures1h": 2}}})
	d.requireApproval
	warned(d, "2 failures")
}

managers := {"gitops": "argocd", "hpa": "web", "operator": "Prometheus/main"}

test_what_is_managed_elsewhere_is_warned_of if {
	every who, name in managers {
		d := asked(base, {"target": {"managedBy": {who: name}}})
		d.allow
		not d.requireApproval
		warned(d, name)
	}
}

test_what_is_managed_in_production_needs_an_approval if {
	every who, name in managers {
		d := asked(production, {"target": {"managedBy": {who: name}}})
		d.allow
		d.requireApproval
		warned(d, name)
	}
}

# Also where the risk alone would not call for one.
test_gitops_makes_low_risk_need_an_approval if {
	d := asked(production, {"action": {"name": "rollout_restart", "risk": "low"}, "target": {"managedBy": {"gitops": "flux"}}})
	d.requireApproval
}

test_an_autoscaler_does_not_mind_a_restart if {
	d := asked(production, {"action": {"name": "rollout_restart", "risk": "low"}, "target": {"managedBy": {"hpa": "web"}}})
	not d.requireApproval
}
