package check_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

const minute = time.Minute

// within is a condition that is given some seconds.
func within(seconds int, kind, rego string, required bool) v1alpha1.Condition {
	return v1alpha1.Condition{Type: kind, Rego: rego, Required: required, Timeout: &metav1.Duration{Duration: time.Duration(seconds) * time.Second}}
}

func TestPreConditions(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	type result struct {
		Type                        string
		Evaluated, Passed, Required bool
		Message                     string
	}
	for name, c := range map[string]struct {
		reason     string
		conditions []v1alpha1.Condition
		after      time.Duration // of the beginning
		wait       time.Duration
		failed     []string        // what the message says
		detail     v1alpha1.Detail // of the failure; empty is precondition_failed
		want       []result
	}{
		"AllHold": {
			reason:     "nothing is in the way",
			conditions: []v1alpha1.Condition{within(30, "a", "true", true), within(30, "b", "true", false)},
			want:       []result{{"a", true, true, true, ""}, {"b", true, true, false, ""}},
		},
		"NotYet": {
			reason:     "it has time",
			conditions: []v1alpha1.Condition{within(30, "a", "10s", true)}, after: 4 * time.Second, wait: 3 * time.Second,
			want: []result{{"a", true, false, true, "not yet"}},
		},
		"InTime": {
			reason:     "it came to hold",
			conditions: []v1alpha1.Condition{within(30, "a", "10s", true)}, after: 15 * time.Second,
			want: []result{{"a", true, true, true, ""}},
		},
		"NotInTime": {
			reason:     "due is when the time is reached",
			conditions: []v1alpha1.Condition{within(5, "a", "10s", true), within(30, "b", "true", true)}, after: 5 * time.Second,
			failed: []string{`precondition "a"`, "5s", "not yet"},
			want:   []result{{"a", true, false, true, "not yet"}, {"b", true, true, true, ""}},
		},
		"ItsEndIsNear": {
			reason:     "nobody waits beyond it",
			conditions: []v1alpha1.Condition{within(5, "a", "10s", true)}, after: 4500 * time.Millisecond, wait: 500 * time.Millisecond,
			want: []result{{"a", true, false, true, "not yet"}},
		},
		"OneHasFailed": {
			reason:     "nothing helps any more, though another has time; both are told of",
			conditions: []v1alpha1.Condition{within(5, "a", "false", true), within(30, "b", "10s", true)}, after: 6 * time.Second,
			failed: []string{"there is no room"},
			want:   []result{{"a", true, false, true, "there is no room"}, {"b", true, false, true, "not yet"}},
		},
		"NotRequired": {
			reason:     "it is told of, and that is all",
			conditions: []v1alpha1.Condition{within(5, "a", "false", false)}, after: 5 * time.Second,
			want: []result{{"a", true, false, false, "there is no room"}},
		},
		"NotRequiredHasTime": {
			reason:     "it is given its time like any other",
			conditions: []v1alpha1.Condition{within(5, "a", "false", false)}, wait: time.Second,
			want: []result{{"a", true, false, false, "there is no room"}},
		},
		"Broken": {
			reason:     "a rule without an answer holds for nothing",
			conditions: []v1alpha1.Condition{within(0, "a", "error", true)},
			failed:     []string{"undefined"},
			want:       []result{{"a", false, false, true, "rule allow is undefined"}},
		},
		"NeverHolds": {
			reason:     "no time helps what does not compile",
			conditions: []v1alpha1.Condition{within(30, "a", "malformed", true), within(30, "b", "10s", true)},
			failed:     []string{`precondition "a" can never pass: the condition does not compile: line 3`},
			want:       []result{{"a", false, false, true, "the condition does not compile: line 3"}, {"b", true, false, true, "not yet"}},
		},
		"Killed": {
			reason:     "it would be killed again; the reason is its own; nothing else is asked",
			conditions: []v1alpha1.Condition{within(30, "a", "killed", true), within(30, "b", "later", true)}, detail: v1alpha1.DetailConditionKilled,
			failed: []string{`precondition "a": the evaluation was killed: it took too much; it is not evaluated again`},
			want:   []result{{"a", false, false, true, "the evaluation was killed: it took too much"}},
		},
		"NeverHoldsNorHasTo": {
			reason:     "it is told of, and nobody waits for it",
			conditions: []v1alpha1.Condition{within(30, "a", "malformed", false)},
			want:       []result{{"a", false, false, false, "the condition does not compile: line 3"}},
		},
		"TheUsualTime": {
			reason:     "30 seconds, where none is named",
			conditions: []v1alpha1.Condition{{Type: "a", Rego: "false", Required: true}}, after: 30 * time.Second,
			failed: []string{"30s"},
			want:   []result{{"a", true, false, true, "there is no room"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
				always(ke)
				ke.Spec.PreConditions = c.conditions
			})
			out := r.check(t, ke, begun.Add(c.after))
			var got []result
			for _, p := range out.Results.PreConditionResults {
				got = append(got, result{p.ConditionType, p.Evaluated, p.Passed, p.Required, p.ErrorMessage})
				if p.EvaluationTime == nil || p.Attempts < 1 {
					t.Errorf("%+v", p)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s:\n%s", c.reason, diff)
			}
			if out.Wait != c.wait {
				t.Errorf("%s: look again after %s, want %s", c.reason, out.Wait, c.wait)
			}
			switch {
			case c.failed != nil:
				detail := v1alpha1.DetailPreConditionFailed
				if c.detail != "" {
					detail = c.detail
				}
				wantFailed(t, out, validation, detail, c.failed...)
			case c.wait == 0:
				wantPassed(t, out)
			}
			if (c.failed != nil || c.wait > 0) && out.Results.DryRunResults != nil {
				t.Error("it was tried out before the preconditions held")
			}
		})
	}
	// What was not evaluated for lack of a process says nothing; what was killed is
	// not evaluated again, also where it is not required.
	later := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.PreConditions = []v1alpha1.Condition{within(0, "a", "later", true)}
	})
	retry := (*execution.RetryError)(nil)
	if _, err := r.checker(t).Check(t.Context(), later, nil, begun); !errors.As(err, &retry) || retry.After != time.Second {
		t.Errorf("got %v, want to be told when to try again", err)
	}
	known := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
		always(ke)
		ke.Spec.PreConditions = []v1alpha1.Condition{within(30, "a", "killed", false)}
	})
	first := r.check(t, known, begun)
	wantPassed(t, first)
	known.Status.ValidationResults = &first.Results
	known.Spec.PreConditions[0].Rego = "later" // which would be seen
	second := r.check(t, known, begun)
	if diff := cmp.Diff(first.Results.PreConditionResults, second.Results.PreConditionResults); diff != "" || !first.Results.PreConditionResults[0].Killed {
		t.Error(diff)
	}

	r.policy.decision.Allow = false
	out := r.check(t, r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.PreConditions = []v1alpha1.Condition{within(0, "a", "false", true)}
	}), begun)
	wantFailed(t, out, validation, v1alpha1.DetailPolicyDenied)
	if out.Results.PreConditionResults != nil {
		t.Error("an earlier step failed, and the preconditions were asked")
	}
}

// TestPostConditionsThatNeverHold verifies that a postcondition that can never hold is reported
// before the action.
func TestPostConditionsThatNeverHold(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	asks := func(required bool) *v1alpha1.KubernetesExecution {
		return r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
			ke.Spec.PostConditions = []v1alpha1.Condition{within(60, "a", "malformed", required)}
		})
	}
	wantFailed(t, r.check(t, asks(true), begun), validation, v1alpha1.DetailInvalidParameters, `postcondition "a" can never pass: the condition does not compile: line 3`)
	out := r.check(t, asks(false), begun)
	wantPassed(t, out)
	ke := asks(false)
	ke.Status.Plan = out.Plan
	results, wait, err := r.checker(t).EvaluatePostConditions(t.Context(), ke, begun, begun)
	if err != nil || wait != 0 || len(results) != 1 || results[0].Passed || results[0].ErrorMessage != "the condition does not compile: line 3" {
		t.Errorf("%+v, wait %s: %v", results, wait, err)
	}
}

// Nothing is waited for once a required postcondition was killed, nor is another asked.
func TestPostConditionsEndWithOneThatIsKilled(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.PostConditions = []v1alpha1.Condition{within(60, "a", "10s", true), within(60, "b", "killed", true), within(60, "c", "later", true)}
	})
	results, wait, err := r.checker(t).EvaluatePostConditions(t.Context(), ke, begun, begun)
	if err != nil || wait != 0 || len(results) != 2 || !results[1].Killed {
		t.Errorf("%+v, wait %s: %v", results, wait, err)
	}
}

// A postcondition that was killed when it was compiled is neither compiled nor
// evaluated again.
func TestPostConditionsThatWereKilled(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.PostConditions = []v1alpha1.Condition{within(60, "a", "true", true), within(60, "b", "killed", false)}
	})
	first := r.check(t, ke, begun)
	wantPassed(t, first)
	got := first.Results.PostConditionResults
	if len(got) != 2 || got[0].Killed || got[0].Evaluated || !got[1].Killed || got[1].ConditionType != "b" {
		t.Fatalf("%+v", got)
	}
	ke.Status.ValidationResults, ke.Status.Plan = &first.Results, first.Plan
	ke.Spec.PostConditions[1].Rego = "later" // which would be seen
	second := r.check(t, ke, begun)
	wantPassed(t, second)
	if diff := cmp.Diff(got, second.Results.PostConditionResults); diff != "" {
		t.Error(diff)
	}
	results, wait, err := r.checker(t).EvaluatePostConditions(t.Context(), ke, begun, begun)
	if err != nil || wait != 0 || len(results) != 2 || !results[0].Passed || !results[1].Killed {
		t.Errorf("%+v, wait %s: %v", results, wait, err)
	}
}

// TestConditionsAreToldOfTheCluster verifies that a precondition sees the present cluster.
func TestConditionsAreToldOfTheCluster(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	r.check(t, r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.PreConditions = []v1alpha1.Condition{within(0, "a", "true", true)}
	}), begun)
	var in struct {
		CurrentReplicas  int    `json:"current_replicas"`
		NewReplicas      int    `json:"new_replicas"`
		ExpectedBaseline int    `json:"expected_baseline"`
		DeploymentName   string `json:"deployment_name"`
		RunningPods      *int   `json:"running_pods"`
		Target           struct{ UID string }
	}
	if err := json.Unmarshal(r.conditions.inputs[0], &in); err != nil {
		t.Fatal(err)
	}
	if in.CurrentReplicas != 3 || in.NewReplicas != 5 || in.ExpectedBaseline != 3 || in.DeploymentName != "web" || in.RunningPods == nil || in.Target.UID == "" {
		t.Errorf("%s", r.conditions.inputs[0])
	}
}

func TestPostConditions(t *testing.T) {
	t.Parallel() // the API server knows a deleted account for ten seconds
	r := newFixture(t, scale)
	d := r.deploy(t, func(d *appsv1.Deployment) { d.Annotations = map[string]string{"changed": "by the action"} })
	ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.PostConditions = []v1alpha1.Condition{within(60, "a", "10s", true), {Type: "b", Rego: "false"}}
	})
	ke.Status.Plan = r.check(t, r.execution(scale, nil), begun).Plan
	at := func(after time.Duration) ([]v1alpha1.ConditionResult, time.Duration) {
		t.Helper()
		results, wait, err := r.checker(t).EvaluatePostConditions(t.Context(), ke, begun, begun.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		if len(results) != 2 || results[0].ConditionType != "a" || results[1].ConditionType != "b" || results[1].Passed {
			t.Fatalf("%+v", results)
		}
		return results, wait
	}
	if results, wait := at(2 * time.Second); results[0].Passed || wait != time.Second {
		t.Errorf("%+v, wait %s", results[0], wait)
	}
	if results, wait := at(12 * time.Second); !results[0].Passed || results[0].Attempts != 4 || wait != 3*time.Second {
		t.Errorf("%+v, wait %s", results[0], wait)
	}
	if _, wait := at(2 * minute); wait != 0 {
		t.Errorf("the usual time is over, and it waits for %s", wait)
	}

	n := int32(5)
	d.Spec.Replicas = &n
	if _, err := r.admin.AppsV1().Deployments(r.shop).Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	at(minute)
	last := string(r.conditions.inputs[len(r.conditions.inputs)-1])
	for _, says := range []string{`"current_replicas":5`, `"expected_baseline":3`, `"target_replicas":5`, `"replicasChanged":"3 -\u003e 5"`} {
		if !strings.Contains(last, says) {
			t.Errorf("the condition is not told %s: %s", says, last)
		}
	}

	if err := r.admin.AppsV1().Deployments(r.shop).Delete(t.Context(), d.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	at(minute)
	if last := string(r.conditions.inputs[len(r.conditions.inputs)-1]); !strings.Contains(last, `"deployment_found":false`) {
		t.Errorf("the target is gone, and the condition is told %s", last)
	}

	a, _ := action.Find(scale)
	if err := r.admin.CoreV1().ServiceAccounts(r.executor).Delete(t.Context(), a.ServiceAccount(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(t, func(context.Context) error {
		results, _ := at(12 * time.Second)
		if results[0].Passed {
			return context.DeadlineExceeded
		}
		if !strings.Contains(results[0].ErrorMessage, "does not exist") {
			t.Errorf("%+v", results[0])
		}
		return nil
	})
}
