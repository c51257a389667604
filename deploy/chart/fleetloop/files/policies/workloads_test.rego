package fleetloop.safety_test

scaled(from, replicas) := object.union(from, {"request": {"parameters": {"replicas": replicas}}})

critical := object.union(base, {"target": {"labels": {"critical": "true"}}})

test_critical_workloads_are_not_stopped if denied(decide(scaled(critical, 0)), "not scaled to zero")

test_critical_workloads_keep_a_second_pod if {
	denied(decide(scaled(critical, 1)), "needs 2 replicas")
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
	denied(decide(scaled(base, 21)), "21 replicas are more than 20")
	decide(scaled(production, 50)).allow
	denied(decide(scaled(production, 51)), "51 replicas")
}

test_statefulsets_are_bounded_as_well if denied(decide(object.union(scaled(base, 21), {"action": {"name": "scale_statefulset"}})), "21 replicas")

test_replicas_that_are_text_are_denied if {
	d := decide(scaled(base, "5"))
	d.violations == {"replicas is no number"}
}

hpa(from, least, most) := object.union(from, {"action": {"name": "update_hpa"}, "request": {"parameters": {"minReplicas": least, "maxReplicas": most}}})

test_autoscalers_are_bounded if {
	decide(hpa(base, 1, 20)).allow
	denied(decide(hpa(base, 1, 21)), "maxReplicas 21")
	denied(decide(hpa(base, 1, "9")), "maxReplicas is no number")
	denied(decide(hpa(critical, 1, 5)), "needs 2 replicas")
}
