package alerts_test

import (
	"maps"
	"strings"
)

// repairing are the labels of an alert about all replicas of a node fault
// controller, with some of its own.
func repairing(own ...string) map[string]string {
	list := map[string]string{"namespace": "fleet", "job": "node-fault-controller"}
	for i := 0; i+1 < len(own); i += 2 {
		maps.Copy(list, map[string]string{own[i]: own[i+1]})
	}
	return list
}

const ofNodes = `{namespace="fleet",job="node-fault-controller",instance="a"`

// faults is about the node fault controller and what it is told.
func faults() map[string][]scenario {
	return map[string][]scenario{
		"NodeFaultControllerMissing": {
			{
				reason: "nothing is scraped for five minutes",
				series: "  up 1x10\n",
				want:   map[int][]alert{4: nil, 5: {{labels: map[string]string{}, summary: "Prometheus has no metrics of node-fault-controller."}}},
			},
			{
				reason: "one of two was restarted",
				series: "  fleetloop_node_faults" + ofNodes + ",phase=\"Stuck\"} 0x3 stale _x20\n  fleetloop_node_faults{namespace=\"fleet\",job=\"node-fault-controller\",instance=\"b\",phase=\"Stuck\"} 0x30\n",
				want:   map[int][]alert{10: nil, 20: nil},
			},
		},
		"NodeFaultReportsNotStored": {
			{
				reason: "the API server is away: the first that are refused, and more",
				series: "  fleetloop_node_fault_reports_total" + ofNodes + ",source_kind=\"health_events\",result=\"unavailable\"} _x4 1+6x30\n",
				want:   map[int][]alert{4: nil, 12: {{labels: repairing("result", "unavailable"), summary: "node-fault-controller cannot store fault reports (unavailable). Number of reports in 10 minutes: 49."}}},
			},
			{
				reason: "they are stored, or their senders' fault",
				series: "  fleetloop_node_fault_reports_total" + ofNodes + ",source_kind=\"health_events\",result=\"stored\"} 0+9x30\n  fleetloop_node_fault_reports_total" + ofNodes + ",source_kind=\"grpc\",result=\"invalid\"} 0+9x30\n",
				want:   map[int][]alert{20: nil},
			},
		},
		"NodeFaultReportsInvalid": {
			{
				reason: "half of them are about nodes that are not there",
				series: "  fleetloop_node_fault_reports_total" + ofNodes + ",source_kind=\"alertmanager\",result=\"stored\"} 0+1x90\n  fleetloop_node_fault_reports_total" + ofNodes + ",source_kind=\"alertmanager\",result=\"unknown_node\"} 0+1x90\n",
				want:   map[int][]alert{5: nil, 60: {{labels: repairing("source_kind", "alertmanager"), summary: "50% of the fault reports from alertmanager are rejected."}}},
			},
			{
				reason: "one in fifty",
				series: "  fleetloop_node_fault_reports_total" + ofNodes + ",source_kind=\"grpc\",result=\"stored\"} 0+49x90\n  fleetloop_node_fault_reports_total" + ofNodes + ",source_kind=\"grpc\",result=\"invalid\"} 0+1x90\n",
				want:   map[int][]alert{60: nil},
			},
		},
		"NodeFaultRuleErrors": {
			{
				reason: "each look at a node fails",
				series: "  fleetloop_node_fault_rule_errors_total" + ofNodes + "} 0x5 0+1x30\n",
				want:   map[int][]alert{5: nil, 15: {{labels: repairing(), summary: "node-fault-controller cannot evaluate a rule. Number of failures in 10 minutes: 9."}}},
			},
			{
				reason: "it was mended",
				series: "  fleetloop_node_fault_rule_errors_total" + ofNodes + "} 7x60\n",
				want:   map[int][]alert{30: nil},
			},
		},
		"NodeFaultStuck": {
			{
				reason: "two nodes wait for a person; both replicas see them, and one is behind",
				series: "  fleetloop_node_faults" + ofNodes + ",phase=\"Stuck\"} 0x4 2x60\n  fleetloop_node_faults{namespace=\"fleet\",job=\"node-fault-controller\",instance=\"b\",phase=\"Stuck\"} 0x6 2x60\n",
				want:   map[int][]alert{19: nil, 20: {{labels: repairing(), summary: "Number of nodes that need manual repair: 2."}}},
			},
			{
				reason: "nodes come and go, and those that are drained are no matter",
				series: "  fleetloop_node_faults" + ofNodes + ",phase=\"Stuck\"} 0x4 1x9 0x60\n  fleetloop_node_faults" + ofNodes + ",phase=\"Draining\"} 3x60\n",
				want:   map[int][]alert{19: nil, 40: nil},
			},
		},
		"NodeFaultBudgetExhausted": {
			{
				reason: "one pool, latched, as the one that acts sees it",
				series: "  fleetloop_node_fault_budget_exhausted_pools" + ofNodes + ",manual_reset=\"true\"} 0x4 1x60\n  fleetloop_node_fault_budget_exhausted_pools" + ofNodes + ",manual_reset=\"false\"} 0x60\n  fleetloop_node_fault_budget_exhausted_pools{namespace=\"fleet\",job=\"node-fault-controller\",instance=\"b\",manual_reset=\"true\"} 0x60\n",
				want:   map[int][]alert{34: nil, 35: {{labels: repairing(), summary: "Number of node pools with too many nodes out of service: 1."}}},
			},
			{
				reason: "a quarter of an hour of waiting for a turn",
				series: "  fleetloop_node_fault_budget_exhausted_pools" + ofNodes + ",manual_reset=\"false\"} 0x4 1x15 0x60\n",
				want:   map[int][]alert{15: nil, 40: nil},
			},
		},
		"NodeFaultDrainStuck": {
			{
				reason: "longer than its deadline",
				series: "  fleetloop_node_fault_phase_max_age_seconds" + ofNodes + ",phase=\"Draining\"} 0+60x90\n",
				want:   map[int][]alert{45: nil, 51: {{labels: repairing(), summary: "A node has been draining for 51m 0s."}}},
			},
			{
				reason: "as long as it may, and others for longer in other phases",
				series: "  fleetloop_node_fault_phase_max_age_seconds" + ofNodes + ",phase=\"Draining\"} 0+60x30 0x60\n  fleetloop_node_fault_phase_max_age_seconds" + ofNodes + ",phase=\"Held\"} 0+60x90\n",
				want:   map[int][]alert{30: nil, 80: nil},
			},
		},
		"NodeFaultDrainFailed": {
			{
				reason: "one did; an hour later it is history",
				series: "  fleetloop_node_fault_drains_total" + ofNodes + ",state=\"Failed\"} 0x9 1x90\n",
				want:   map[int][]alert{9: nil, 12: {{labels: repairing(), summary: "Number of node drains that failed in the last hour: 1."}}, 80: nil},
			},
			{
				reason: "others ended well, or were called off",
				series: "  fleetloop_node_fault_drains_total" + ofNodes + ",state=\"Completed\"} 0+1x90\n  fleetloop_node_fault_drains_total" + ofNodes + ",state=\"Cancelled\"} 0+1x90\n",
				want:   map[int][]alert{40: nil},
			},
		},
	}
}

// repairs is about reboots and terminations, and what is told of nodes.
func repairs() map[string][]scenario {
	const janitor = `{namespace="fleet",job="node-janitor",instance="a"`
	ofJanitor := func(own ...string) map[string]string {
		list := repairing(own...)
		list["job"] = "node-janitor"
		return list
	}
	return map[string][]scenario{
		"NodeFaultRepairsFailing": {
			{
				reason: "three of four reboots time out",
				series: "  fleetloop_janitor_actions_total" + janitor + ",action=\"reboot\",result=\"timeout\"} 0+0.3x300\n  fleetloop_janitor_actions_total" + janitor + ",action=\"reboot\",result=\"succeeded\"} 0+0.1x300\n",
				want:   map[int][]alert{4: nil, 120: {{labels: ofJanitor("action", "reboot"), summary: "75% of the reboot actions on nodes failed or timed out in the last 6 hours."}}},
			},
			{
				reason: "one fails, which says little, and many succeed",
				series: "  fleetloop_janitor_actions_total" + janitor + ",action=\"terminate\",result=\"failed\"} 0x9 1x300\n  fleetloop_janitor_actions_total" + janitor + ",action=\"reboot\",result=\"succeeded\"} 0+1x300\n  fleetloop_janitor_actions_total" + janitor + ",action=\"reboot\",result=\"failed\"} 0+0.2x300\n",
				want:   map[int][]alert{60: nil, 200: nil},
			},
		},
		"NodeFaultProviderErrors": {
			{
				reason: "each request is answered with an error",
				series: "  fleetloop_janitor_action_provider_requests_total" + janitor + ",action=\"reboot\",result=\"error\"} 0x5 0+2x60\n",
				want:   map[int][]alert{5: nil, 30: {{labels: ofJanitor(), summary: "30 requests to the provider that reboots and terminates nodes failed in 15 minutes."}}},
			},
			{
				reason: "nobody can say how far it is",
				series: "  fleetloop_janitor_action_status_checks_failed_total" + janitor + "} 0+2x60\n",
				want:   map[int][]alert{30: {{labels: ofJanitor(), summary: "30 requests to the provider that reboots and terminates nodes failed in 15 minutes."}}},
			},
			{
				reason: "a person is waited for, and one request went wrong",
				series: "  fleetloop_janitor_action_provider_requests_total" + janitor + ",action=\"reboot\",result=\"pending\"} 0+6x60\n  fleetloop_janitor_action_provider_requests_total" + janitor + ",action=\"reboot\",result=\"error\"} 0x9 1x60\n",
				want:   map[int][]alert{30: nil},
			},
		},
		"NodeFaultChangeEventsDelayed": {
			{
				reason: "a sink takes nothing",
				series: "  fleetloop_node_fault_change_events_pending" + ofNodes + "} 0x4 3x60\n",
				want:   map[int][]alert{30: nil, 40: {{labels: repairing(), summary: "Change events about nodes have been waiting for delivery for 30 minutes."}}},
			},
			{
				reason: "there is always something, and it goes",
				series: "  fleetloop_node_fault_change_events_pending" + ofNodes + "} 3 1 0 2 1 0 4 1 0 3 1 0 2 1 0 2 1 0 2 1 0 1 1 0 1 1 0 1 1 0 1 1 0 1 1 0 1 1 0 1\n",
				want:   map[int][]alert{30: nil, 38: nil},
			},
		},
		"NodeFaultChangeEventsUndeliverable": {
			{
				reason: "the first that a sink refuses",
				series: "  fleetloop_node_fault_change_events_undeliverable_total" + ofNodes + ",error=\"client_error\"} _x5 1x30\n",
				want:   map[int][]alert{5: nil, 8: {{labels: repairing("error", "client_error"), summary: "node-fault-controller could not deliver change events about nodes (client_error). Number of events in the last hour: 1."}}},
			},
			{
				reason: "it was long ago",
				series: "  fleetloop_node_fault_change_events_undeliverable_total" + ofNodes + ",error=\"expired\"} 4x120\n",
				want:   map[int][]alert{90: nil},
			},
		},
	}
}

// changeEvents is about what components tell sinks.
func changeEvents() map[string][]scenario {
	const worker = `{namespace="fleet",job="cluster-worker",instance="a"`
	of := func(own ...string) map[string]string {
		list := repairing(own...)
		list["job"] = "cluster-worker"
		return list
	}
	return map[string][]scenario{
		"ChangeEventsFailing": {
			{
				reason: "the token is not good any more",
				series: "  nvsentinel_change_events_failed_total" + worker + ",action=\"cluster-created\",error=\"unauthorized\"} _x4 1x60\n",
				want:   map[int][]alert{4: nil, 11: {{labels: of("error", "unauthorized"), summary: "cluster-worker fails to deliver change events (unauthorized)."}}, 50: nil},
			},
			{
				reason: "they are delivered",
				series: "  nvsentinel_change_events_total" + worker + ",action=\"cluster-created\",status=\"success\"} 0+3x60\n  nvsentinel_change_events_failed_total" + worker + ",action=\"cluster-created\",error=\"timeout\"} 2x60\n",
				want:   map[int][]alert{50: nil},
			},
		},
		"ChangeEventsSinkFileUnreadable": {
			{
				reason: "the Secret is not there, and then it is; the other file is",
				series: "  fleetloop_change_events_sink_file_unreadable" + worker + ",sink=\"default\",file=\"auth_token\"} 1x9 0x20\n" +
					"  fleetloop_change_events_sink_file_unreadable" + worker + ",sink=\"default\",file=\"ca\"} 0x30\n",
				want: map[int][]alert{
					4:  nil,
					5:  {{labels: of("sink", "default", "file", "auth_token"), summary: "cluster-worker cannot read the auth_token file of the change event sink default."}},
					10: nil,
				},
			},
			{
				reason: "it is being replaced",
				series: "  fleetloop_change_events_sink_file_unreadable" + worker + ",sink=\"default\",file=\"auth_token\"} 0x9 1x2 0x20\n",
				want:   map[int][]alert{12: nil, 20: nil},
			},
		},
		"ChangeEventsSinkConfigInvalid": {
			{
				reason: "the URL of one sink cannot work, and then it is mended; the other is well",
				series: "  fleetloop_change_events_sink_config_valid" + worker + ",sink=\"chat\"} 0x9 1x20\n" +
					"  fleetloop_change_events_sink_config_valid" + worker + ",sink=\"default\"} 1x30\n",
				want: map[int][]alert{
					4:  nil,
					5:  {{labels: of("sink", "chat"), summary: "cluster-worker sends no change events to the sink chat, because its configuration is invalid."}},
					10: nil,
				},
			},
			{
				reason: "its Secret is not there, which another alert says",
				series: "  fleetloop_change_events_sink_config_valid" + worker + ",sink=\"default\"} 0x30\n" +
					"  fleetloop_change_events_sink_file_unreadable" + worker + ",sink=\"default\",file=\"auth_token\"} 1x30\n",
				want: map[int][]alert{20: nil},
			},
			{
				reason: "one of two replicas has the wrong settings",
				series: "  fleetloop_change_events_sink_config_valid" + worker + ",sink=\"default\"} 1x30\n" +
					"  fleetloop_change_events_sink_config_valid" + strings.Replace(worker, `"a"`, `"b"`, 1) + ",sink=\"default\"} 0x30\n",
				want: map[int][]alert{20: {{labels: of("sink", "default"), summary: "cluster-worker sends no change events to the sink default, because its configuration is invalid."}}},
			},
		},
		"ChangeEventsDelayed": {
			{
				reason: "the sink does not answer",
				series: "  fleetloop_change_events_oldest_pending_age_seconds" + worker + ",sink=\"default\"} 0x4 0+60x60\n",
				want:   map[int][]alert{6: nil, 13: {{labels: of("sink", "default"), summary: "The oldest undelivered change event of cluster-worker for the sink default is 8m 0s old."}}},
			},
			{
				reason: "it answers after a minute",
				series: "  fleetloop_change_events_oldest_pending_age_seconds" + worker + ",sink=\"default\"} 60x60\n",
				want:   map[int][]alert{30: nil},
			},
		},
	}
}
