package fleetloop.safety_test

import data.fleetloop.safety

node(action, name, cluster) := object.union(base, {
	"action": {"name": action},
	"request": {"parameters": {"node": name, "effect": "NoSchedule"}},
	"target": {"kind": "Node", "namespace": "", "name": name},
	"cluster": cluster,
})

test_small_clusters_are_not_drained if {
	denied(decide(node("drain_node", "worker-1", {"readyNodes": 2})), "2 ready nodes")
	decide(node("drain_node", "worker-1", {"readyNodes": 3})).allow
}

test_the_last_node_is_kept if {
	every action in ["cordon_node", "drain_node", "taint_node"] {
		denied(decide(node(action, "worker-1", {"schedulableNodes": 1})), "last schedulable node")
		decide(node(action, "worker-1", {"schedulableNodes": 2})).allow
	}
}

test_a_node_that_takes_no_pods_is_not_the_last if decide(node("drain_node", "worker-5", {"schedulableNodes": 1})).allow

test_taints_that_keep_nothing_away_are_free if {
	asks := object.union(node("taint_node", "worker-1", {"schedulableNodes": 1}), {"request": {"parameters": {"effect": "PreferNoSchedule"}}})
	decide(asks).allow
}

# Saturday, ten o'clock UTC, is in base.
test_hours_are_off if decide(production).allow

in_hours(at, hours) := d if {
	d := safety.decision with input as object.union(production, {"now": at}) with data.fleetloop.safety.config.business_hours as hours
}

hours := {"enabled": true, "timezone": "Europe/Berlin", "days": {"Monday", "Friday"}, "from": 9, "until": 17}

test_hours_close_production if {
	denied(in_hours(1763805600, hours), "from 9 to 17")

	# Monday, 8:59 and 9:00, then 16:59 and 17:00, in Berlin.
	denied(in_hours(1763971140, hours), "from 9 to 17")
	in_hours(1763971200, hours).allow
	in_hours(1763999940, hours).allow
	denied(in_hours(1764000000, hours), "from 9 to 17")
}

test_hours_leave_the_rest_open if {
	d := safety.decision with input as base with data.fleetloop.safety.config.business_hours as hours
	d.allow
	low := object.union(production, {"action": {"risk": "low"}})
	e := safety.decision with input as low with data.fleetloop.safety.config.business_hours as hours
	e.allow
}
