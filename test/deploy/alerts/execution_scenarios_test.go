package alerts_test

import "maps"

// acting are the labels of an alert about all replicas of an execution
// controller, with some of its own.
func acting(own ...string) map[string]string {
	list := map[string]string{"namespace": "kubernaut-executor", "job": "execution-controller"}
	for i := 0; i+1 < len(own); i += 2 {
		maps.Copy(list, map[string]string{own[i]: own[i+1]})
	}
	return list
}

// controller is about the execution controller and what it depends on.
func controller() map[string][]scenario {
	return map[string][]scenario{
		"ExecutionControllerMissing": {
			{
				reason: "nothing is scraped for five minutes",
				series: "  up 1x10\n",
				want:   map[int][]alert{4: nil, 5: {{labels: map[string]string{}, summary: "Prometheus has no metrics of an execution controller."}}},
			},
			{
				reason: "one runs, and has never listed executions",
				series: `  kubernetesexecution_created_total{namespace="kubernaut-executor",job="execution-controller",instance="a"} 0x10
`,
				want: map[int][]alert{5: {{labels: map[string]string{}, summary: "Prometheus has no metrics of an execution controller."}}},
			},
			{
				reason: "one of two was restarted",
				series: `
  kubernetesexecution_active{namespace="kubernaut-executor",job="execution-controller",instance="a",phase="executing"} 0x3 stale _x20
  kubernetesexecution_active{namespace="kubernaut-executor",job="execution-controller",instance="b",phase="executing"} 0x30
`,
				want: map[int][]alert{10: nil, 20: nil},
			},
		},
		"ExecutionSafetyPoliciesNotLoaded": {
			{
				reason: "one of two was restarted after the ConfigMap was spoiled",
				series: `
  kubernetesexecution_created_total{namespace="kubernaut-executor",job="execution-controller",instance="a"} 3x20
  kubernetesexecution_created_total{namespace="kubernaut-executor",job="execution-controller",instance="b"} 0x20
  kubernetes_executor_policy_info{namespace="kubernaut-executor",job="execution-controller",instance="a",hash="11"} 1x20
`,
				want: map[int][]alert{4: nil, 5: {{labels: acting(), summary: "Number of execution controller pods that run without safety policies: 1."}}},
			},
			{
				reason: "another set is taken",
				series: `
  kubernetesexecution_created_total{namespace="kubernaut-executor",job="execution-controller",instance="a"} 3x20
  kubernetes_executor_policy_info{namespace="kubernaut-executor",job="execution-controller",instance="a",hash="11"} 1x5 stale
  kubernetes_executor_policy_info{namespace="kubernaut-executor",job="execution-controller",instance="a",hash="22"} _x6 1x14
`,
				want: map[int][]alert{8: nil, 20: nil},
			},
		},
		"ExecutionSafetyPolicyReloadFailed": {
			{
				reason: "both replicas refuse a change; it is mended, and half an hour later all is well",
				series: `
  kubernetes_executor_policy_reload_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a"} 0x4 1x60
  kubernetes_executor_policy_reload_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="b"} 0x4 1x60
  kubernetes_executor_policy_reloads_total{namespace="kubernaut-executor",job="execution-controller",instance="a"} 1x9 2x60
`,
				want: map[int][]alert{
					4:  nil,
					6:  {{labels: acting(), summary: "The execution controller rejected a new version of the safety policies. Number of rejections in 30 minutes: 1."}},
					36: nil,
				},
			},
			{
				reason: "changes are taken",
				series: `
  kubernetes_executor_policy_reload_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a"} 1x60
  kubernetes_executor_policy_reloads_total{namespace="kubernaut-executor",job="execution-controller",instance="a"} 0+1x60
`,
				want: map[int][]alert{40: nil},
			},
		},
		"ExecutionAdmissionPoliciesMissing": {
			{
				reason: "somebody takes the policies away, both replicas see it, and it is mended",
				series: `
  kubernetesexecution_admission_policies_missing{namespace="kubernaut-executor",job="execution-controller",instance="a"} 0x3 1x10 0x20
  kubernetesexecution_admission_policies_missing{namespace="kubernaut-executor",job="execution-controller",instance="b"} 0x3 1x10 0x20
`,
				want: map[int][]alert{
					8:  nil,
					9:  {{labels: acting(), summary: "The ValidatingAdmissionPolicies that protect KubernetesExecutions are not in force."}},
					16: nil,
				},
			},
			{
				reason: "a replica starts, and has yet to look",
				series: `
  kubernetesexecution_admission_policies_missing{namespace="kubernaut-executor",job="execution-controller",instance="a"} 0x20
  kubernetesexecution_admission_policies_missing{namespace="kubernaut-executor",job="execution-controller",instance="b"} _x5 1 0x14
`,
				want: map[int][]alert{6: nil, 11: nil, 20: nil},
			},
		},
		"ExecutionAuditDelayed": {
			{
				reason: "the database is away",
				series: `
  kubernetesexecution_audit_lag_seconds{namespace="kubernaut-executor",job="execution-controller",instance="a"} 0 0+60x30
  kubernetesexecution_audit_lag_seconds{namespace="kubernaut-executor",job="execution-controller",instance="b"} 0x31
`,
				want: map[int][]alert{
					11: nil,
					12: {{labels: acting(), summary: "An audit record of a KubernetesExecution has waited for 11m 0s to be written."}},
				},
			},
			{
				reason: "the database failed over",
				series: `  kubernetesexecution_audit_lag_seconds{namespace="kubernaut-executor",job="execution-controller",instance="a"} 0+60x4 0x30
`,
				want: map[int][]alert{10: nil, 20: nil},
			},
		},
		"ExecutionAuditVerificationFailed": {
			{
				reason: "who works has verified it",
				series: `
  kubernetesexecution_audit_verification_failed{namespace="kubernaut-executor",job="execution-controller",instance="a"} 0x3 1x20
  kubernetesexecution_audit_verification_failed{namespace="kubernaut-executor",job="execution-controller",instance="b"} 0x23
`,
				want: map[int][]alert{4: nil, 5: {{labels: acting(), summary: "The audit database of KubernetesExecutions contains changed, removed or inserted records."}}},
			},
			{
				reason: "it holds",
				series: `  kubernetesexecution_audit_verification_failed{namespace="kubernaut-executor",job="execution-controller",instance="a"} 0x20
`,
				want: map[int][]alert{20: nil},
			},
		},
	}
}

// executions is about how they fare.
func executions() map[string][]scenario {
	return map[string][]scenario{
		"ExecutionStuck": {
			{
				reason: "one waits for its turn for ever, and another runs for ever; both replicas see it",
				series: `
  kubernetesexecution_phase_max_age_seconds{namespace="kubernaut-executor",job="execution-controller",instance="a",phase="validated"} 0+60x99
  kubernetesexecution_phase_max_age_seconds{namespace="kubernaut-executor",job="execution-controller",instance="b",phase="validated"} 0+60x99
  kubernetesexecution_phase_max_age_seconds{namespace="kubernaut-executor",job="execution-controller",instance="a",phase="executing"} 0+60x99
`,
				want: map[int][]alert{
					25: nil,
					26: {{labels: acting("phase", "validated"), summary: "A KubernetesExecution has been in phase validated for 26m 0s."}},
					81: {
						{labels: acting("phase", "executing"), summary: "A KubernetesExecution has been in phase executing for 1h 21m 0s."},
						{labels: acting("phase", "validated"), summary: "A KubernetesExecution has been in phase validated for 1h 21m 0s."},
					},
				},
			},
			{
				reason: "the longest drain that there can be, an approval that nobody gives, and many that come and go",
				series: `
  kubernetesexecution_phase_max_age_seconds{namespace="kubernaut-executor",job="execution-controller",instance="a",phase="executing"} 0+60x60 0x39
  kubernetesexecution_phase_max_age_seconds{namespace="kubernaut-executor",job="execution-controller",instance="a",phase="waiting_approval"} 0+60x99
  kubernetesexecution_phase_max_age_seconds{namespace="kubernaut-executor",job="execution-controller",instance="a",phase="validating"} 0+60x15 0+60x15 0+60x15
`,
				want: map[int][]alert{30: nil, 60: nil, 99: nil},
			},
		},
		"ExecutionApprovalPending": {
			{
				reason: "nobody looks",
				series: `
  kubernetesexecution_phase_max_age_seconds{namespace="kubernaut-executor",job="execution-controller",instance="a",phase="waiting_approval"} 0+60x59 0x9
  kubernetesexecution_phase_max_age_seconds{namespace="kubernaut-executor",job="execution-controller",instance="b",phase="waiting_approval"} 0+60x59 0x9
`,
				want: map[int][]alert{
					31: nil,
					32: {{labels: acting(), summary: "A KubernetesExecution has been waiting for approval for 32m 0s."}},
					62: nil,
				},
			},
			{
				reason: "each is looked at within a quarter of an hour",
				series: `  kubernetesexecution_phase_max_age_seconds{namespace="kubernaut-executor",job="execution-controller",instance="a",phase="waiting_approval"} 0+60x14 0+60x14 0+60x14
`,
				want: map[int][]alert{14: nil, 44: nil},
			},
		},
		"ExecutionFailureRateHigh": {
			{
				reason: "a quarter of them fails when it runs, on whichever replica works",
				series: `
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_failed",detail=""} 0+1x90
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="validation_error",detail="policy_denied"} 0+1x90
  kubernetesexecution_action_execution_duration_seconds_count{namespace="kubernaut-executor",job="execution-controller",instance="a",action="restart_pod"} 0+4x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="failed",action="restart_pod"} 0+2x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="succeeded",action="restart_pod"} 0+3x90
`,
				want: map[int][]alert{
					5:  nil,
					70: {{labels: acting(), summary: "25% of the actions of KubernetesExecutions failed in the last hour."}},
				},
			},
			{
				reason: "half of what begins fails, however much else is denied",
				series: `
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_failed",detail=""} 0+1x90
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="validation_error",detail="policy_denied"} 0+20x90
  kubernetesexecution_action_execution_duration_seconds_count{namespace="kubernaut-executor",job="execution-controller",instance="a",action="restart_pod"} 0+2x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="failed",action="restart_pod"} 0+21x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="succeeded",action="restart_pod"} 0+1x90
`,
				want: map[int][]alert{
					5:  nil,
					70: {{labels: acting(), summary: "50% of the actions of KubernetesExecutions failed in the last hour."}},
				},
			},
			{
				reason: "half of what begins fails, however much else is only tried out",
				series: `
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="postcondition_failed",detail="postcondition_failed"} 0+1x90
  kubernetesexecution_action_execution_duration_seconds_count{namespace="kubernaut-executor",job="execution-controller",instance="a",action="restart_pod"} 0+2x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="failed",action="restart_pod"} 0+1x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="succeeded",action="restart_pod"} 0+21x90
`,
				want: map[int][]alert{
					5:  nil,
					70: {{labels: acting(), summary: "50% of the actions of KubernetesExecutions failed in the last hour."}},
				},
			},
			{
				reason: "nothing can begin, since no Job can be made",
				series: `
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_failed",detail="executor_unavailable"} 0+1x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="failed",action="restart_pod"} 0+1x90
`,
				want: map[int][]alert{
					5:  nil,
					70: {{labels: acting(), summary: "100% of the actions of KubernetesExecutions failed in the last hour."}},
				},
			},
			{
				reason: "most wait for their turn, or for an approval, in vain, or are given up, which is no fault of what runs",
				series: `
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_timeout",detail="target_busy"} 0+1x90
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_timeout",detail="cooldown"} 0+1x90
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_timeout",detail="budget_exceeded"} 0+1x90
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_timeout",detail="emergency_stop"} 0+1x90
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="approval_timeout",detail="approval_timeout"} 0+1x90
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="cancelled",detail="cancelled"} 0+1x90
  kubernetesexecution_action_execution_duration_seconds_count{namespace="kubernaut-executor",job="execution-controller",instance="a",action="restart_pod"} 0+3x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="failed",action="restart_pod"} 0+6x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="succeeded",action="restart_pod"} 0+2x90
`,
				want: map[int][]alert{70: nil},
			},
			{
				reason: "two of two fail, which is too few to tell",
				series: `
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_failed",detail=""} 0x9 1x9 2x60
  kubernetesexecution_action_execution_duration_seconds_count{namespace="kubernaut-executor",job="execution-controller",instance="a",action="restart_pod"} 0x9 1x9 2x60
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="failed",action="restart_pod"} 0x9 1x9 2x60
`,
				want: map[int][]alert{15: nil, 30: nil, 70: nil},
			},
			{
				reason: "many are denied, and rejected, as they should be",
				series: `
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="validation_error",detail="policy_denied"} 0+5x90
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="approval_rejected",detail=""} 0+5x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="failed",action="restart_pod"} 0+10x90
`,
				want: map[int][]alert{70: nil},
			},
			{
				reason: "one in eleven fails",
				series: `
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_timeout",detail=""} 0+1x90
  kubernetesexecution_action_execution_duration_seconds_count{namespace="kubernaut-executor",job="execution-controller",instance="a",action="restart_pod"} 0+11x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="failed",action="restart_pod"} 0+1x90
  kubernetesexecution_action_execution_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="succeeded",action="restart_pod"} 0+10x90
`,
				want: map[int][]alert{70: nil},
			},
		},
		"ExecutionResultUnknown": {
			{
				reason: "the first since the controller began, which is no increase; an hour later it is history",
				series: `
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_failed",detail="result_unknown"} _x9 1x90
  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_failed",detail="partial"} 0+1x99
`,
				want: map[int][]alert{
					9:  nil,
					11: {{labels: acting(), summary: "Number of KubernetesExecutions with an unknown result in the last hour: 1."}},
					68: {{labels: acting(), summary: "Number of KubernetesExecutions with an unknown result in the last hour: 1."}},
					72: nil,
				},
			},
			{
				reason: "two more",
				series: `  kubernetesexecution_failures_total{namespace="kubernaut-executor",job="execution-controller",instance="a",reason="execution_failed",detail="result_unknown"} 3x99 5x90
`,
				want: map[int][]alert{
					99:  nil,
					130: {{labels: acting(), summary: "Number of KubernetesExecutions with an unknown result in the last hour: 2."}},
				},
			},
		},
		"ExecutionJobCreationFailed": {
			{
				reason: "the quota is used up: each attempt is refused",
				series: `  kubernetesexecution_job_creation_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="failed"} _x4 1+6x5 31x30
`,
				want: map[int][]alert{
					4:  nil,
					7:  {{labels: acting(), summary: "The API server rejects Jobs of KubernetesExecutions. Number of rejections in 10 minutes: 19."}},
					30: nil,
				},
			},
			{
				reason: "Jobs are made",
				series: `
  kubernetesexecution_job_creation_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="created"} 0+5x30
  kubernetesexecution_job_creation_total{namespace="kubernaut-executor",job="execution-controller",instance="a",status="failed"} 2x30
`,
				want: map[int][]alert{20: nil, 30: nil},
			},
		},
		"ExecutionChangeEventsDelayed": {
			{
				reason: "a sink takes nothing",
				series: `  kubernetesexecution_change_events_pending{namespace="kubernaut-executor",job="execution-controller",instance="a"} 0x4 3x60
`,
				want: map[int][]alert{30: nil, 40: {{labels: acting(), summary: "Change events about KubernetesExecutions have been waiting for delivery for 30 minutes."}}},
			},
			{
				reason: "there is always something, and it goes",
				series: `  kubernetesexecution_change_events_pending{namespace="kubernaut-executor",job="execution-controller",instance="a"} 3 1 0 2 1 0 4 1 0 3 1 0 2 1 0 2 1 0 2 1 0 1 1 0 1 1 0 1 1 0 1 1 0 1 1 0 1 1 0 1
`,
				want: map[int][]alert{30: nil, 38: nil},
			},
		},
		"ExecutionChangeEventsUndeliverable": {
			{
				reason: "a sink rejects an event",
				series: `  kubernetesexecution_change_events_undeliverable_total{namespace="kubernaut-executor",job="execution-controller",instance="a",error="client_error"} 0x5 1x80
`,
				want: map[int][]alert{
					5:  nil,
					8:  {{labels: acting("error", "client_error"), summary: "The execution controller could not deliver change events about KubernetesExecutions (client_error). Number of events in the last hour: 1."}},
					70: nil,
				},
			},
		},
	}
}
