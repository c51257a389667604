package fleetloop.safety_test

scaled(from, replicas) := object.union(from, {"request": {"parameters": {"replicas": replicas}}})

critical := object.union(base, {"target": {"labels": {"critical": "true"}}})

test_critical_workloads_are_not_stopped if denied(decide(scaled(critical, 0)), "must not be scaled to zero")

test_critical_workloads_keep_a_second_pod if {
	denied(decide(scaled(critical, 1)), "needs at least 2 replicas")
	decide(scaled(critical, 2)).allow
}

test_others_can_be_stopped if decide(scaled(base, 0)).allow

test_to_stop_a_workload_is_a_risk_more if {
	not asked(scaled(base, 1), {"action": {"risk": "high"}}).requireApproval
	asked(scaled(base, 0), {"action": {"risk": "high"}}).requireApproval
	asked(scaled(base, 0), {"action": {"risk": "critical"}}).requireApproval
}

test_replicas_are_bounded if {
	decide(scaled(base, 20)).allow
	denied(decide(scaled(base, 21)), "21 replicas are more than the maximum of 20")
	decide(scaled(production, 50)).allow
	denied(decide(scaled(production, 51)), "51 replicas")
}

test_statefulsets_are_bounded_as_well if denied(decide(object.union(scaled(base, 21), {"action": {"name": "scale_statefulset"}})), "21 replicas")

test_replicas_that_are_text_are_denied if {
	d := decide(scaled(base, "5"))
	d.violations == {"replicas is not a number"}
}

# Other actions can set replicas as well: what is planned says so.
patched(from, changed) := object.union(from, {
	"action": {"name": "patch_deployment", "risk": "high"},
	"request": {"parameters": {"patch": {"spec": {"replicas": 0}}}},
	"plan": {"affected": 1, "replicasChanged": changed, "dryRunWarnings": []},
})

applied(from, replicas) := object.union(from, {
	"action": {"name": "apply_manifest", "risk": "critical"},
	"request": {"parameters": {"state": "present", "manifest": {"kind": "Deployment", "spec": {"replicas": replicas}}}},
})

test_a_patch_is_bounded_as_scaling_is if {
	denied(decide(patched(critical, "3 -> 0")), "must not be scaled to zero")
	denied(decide(patched(critical, "3 -> 1")), "needs at least 2 replicas")
	denied(decide(patched(base, "3 -> 21")), "21 replicas are more than the maximum of 20")
	denied(decide(patched(production, "3 -> 51")), "51 replicas")
	decide(patched(base, "3 -> 5")).allow
	not decide(patched(base, "3 -> 5")).requireApproval
	decide(patched(base, "3 -> 0")).requireApproval
	decide(patched(critical, "")).allow
}

test_a_manifest_is_bounded_as_scaling_is if {
	denied(decide(applied(critical, 0)), "must not be scaled to zero")
	denied(decide(applied(base, 21)), "21 replicas are more than the maximum of 20")
	decide(applied(base, 5)).allow
}

test_what_a_manifest_leaves_out_is_bounded_by_what_comes_of_it if {
	silent := object.union(applied(critical, 3), {"request": {"parameters": {"manifest": {"spec": {"replicas": null}}}}})
	becomes := {"plan": {"affected": 1, "replicasChanged": "5 -> 1", "dryRunWarnings": []}}
	denied(decide(object.union(silent, becomes)), "needs at least 2 replicas")
	decide(silent).allow
}

test_critical_objects_are_not_deleted if {
	absent := {"request": {"parameters": {"state": "absent"}}}
	denied(decide(object.union(applied(critical, 3), absent)), "must not be deleted")
	decide(object.union(applied(base, 3), absent)).allow
}

hpa(from, least, most) := object.union(from, {"action": {"name": "update_hpa"}, "request": {"parameters": {"minReplicas": least, "maxReplicas": most}}})

test_autoscalers_are_bounded if {
	decide(hpa(base, 1, 20)).allow
	denied(decide(hpa(base, 1, 21)), "maxReplicas 21")
	denied(decide(hpa(base, 1, "9")), "maxReplicas is not a number")
	denied(decide(hpa(critical, 1, 5)), "needs at least 2 replicas")
	denied(decide(hpa(critical, 2, 1)), "needs at least 2 replicas")
	decide(hpa(critical, 2, 5)).allow
}

scaling(labels) := {"target": {"kind": "HorizontalPodAutoscaler", "name": "bounds", "scales": {"kind": "Deployment", "name": "web", "labels": labels}}}

test_autoscalers_are_as_critical_as_what_they_scale if {
	denied(decide(hpa(object.union(base, scaling({"critical": "true"})), 1, 5)), "web is critical")
	decide(hpa(object.union(base, scaling({})), 1, 5)).allow
}

changed(patch) := object.union(base, {
	"action": {"name": "patch_deployment", "risk": "high"},
	"request": {"parameters": {"patchType": "strategic", "patch": patch}},
})

pod_spec(spec) := {"spec": {"template": {"spec": spec}}}

test_a_hold_on_the_node_needs_an_approval_everywhere if {
	every spec in [
		{"hostNetwork": true}, {"hostPID": true}, {"hostIPC": true}, {"hostUsers": false},
		{"containers": [{"name": "web", "securityContext": {"privileged": true}}]},
		{"containers": [{"name": "web", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
		{"volumes": [{"name": "host", "hostPath": {"path": "/"}}]},
		{"serviceAccountName": "admin"},
	] {
		d := decide(changed(pod_spec(spec)))
		d.allow
		d.requireApproval
		warned(d, "sensitive Pod fields")
	}
	every operation in [
		{"op": "add", "path": "/spec/template/spec/hostNetwork", "value": true},
		{"op": "replace", "path": "/spec/template/spec/containers/0/securityContext/privileged", "value": true},
		{"op": "copy", "from": "/spec/template/spec/a", "path": "/spec/template/spec/hostPID"},
		{"op": "replace", "path": "/spec/template/spec", "value": {"hostPID": true}},
	] {
		decide(changed([operation])).requireApproval
	}
}

test_less_of_a_hold_on_the_node_needs_none if {
	every spec in [{"hostNetwork": false}, {"hostPID": null}, {"hostUsers": true}, {"containers": [{"name": "web", "image": "web:2"}]}] {
		not decide(changed(pod_spec(spec))).requireApproval
	}
	not decide(changed([{"op": "remove", "path": "/spec/template/spec/hostNetwork"}])).requireApproval
}

test_the_label_critical_stays if {
	touched := {"plan": {"affected": 1, "replicasChanged": "", "dryRunWarnings": [], "before": {"/metadata/labels/critical": "true"}}}
	unlabelled := object.union(changed({"metadata": {"labels": {"critical": null}}}), touched)
	denied(decide(object.union(unlabelled, {"target": {"labels": {"critical": "true"}}})), "must not change that label")
	decide(unlabelled).allow
	manifest := {"request": {"parameters": {"manifest": {"metadata": {"labels": {"critical": "false"}}}}}}
	denied(decide(object.union(applied(critical, 3), manifest)), "must not change that label")
}
