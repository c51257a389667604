package check_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// TestAwaitTarget checks that a change of the target by someone else does not end an execution before the
// controller of the target could observe it.
func TestAwaitTarget(t *testing.T) {
	r := newFixture(t, scale)
	d := r.deploy(t, nil)
	patch := func(text string, subresource ...string) {
		t.Helper()
		if _, err := r.admin.AppsV1().Deployments(r.shop).Patch(t.Context(), d.Name, types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresource...); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"metadata":{"annotations":{"changed":"by another"}},"spec":{"replicas":4}}`)
	patch(`{"status":{"observedGeneration":1}}`, "status")
	d.Annotations = map[string]string{"changed": "by another"}
	const refusal = "has not observed the latest change"

	hour := &metav1.Duration{Duration: time.Hour}
	for name, tc := range map[string]struct {
		conditions []v1alpha1.Condition
		after      time.Duration
		waits      bool
	}{
		"AtOnce":            {nil, 0, true},
		"Within30Seconds":   {nil, 29 * time.Second, true},
		"After30Seconds":    {nil, 30 * time.Second, false},
		"RequiredCondition": {[]v1alpha1.Condition{{Type: "fit", Rego: "false", Required: true, Timeout: hour}}, 59 * minute, true},
		"ConditionOver":     {[]v1alpha1.Condition{{Type: "fit", Rego: "false", Required: true, Timeout: hour}}, time.Hour, false},
		"OptionalCondition": {[]v1alpha1.Condition{{Type: "fit", Rego: "false", Timeout: hour}}, minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.PreConditions = tc.conditions })
			ke.Status.Phase = v1alpha1.PhaseValidating
			ke.Status.PhaseTransitions = []v1alpha1.PhaseTransition{{Phase: v1alpha1.PhaseValidating, At: metav1.NewMicroTime(begun)}}
			earlier := []v1alpha1.ConditionResult{{ConditionType: "fit", Attempts: 7}}
			ke.Status.ValidationResults = &v1alpha1.ValidationResults{PreConditionResults: earlier}
			out := r.check(t, ke, begun.Add(tc.after))
			if !tc.waits {
				wantFailed(t, out, validation, v1alpha1.DetailInvalidTargetState, refusal)
				return
			}
			if out.Failed != nil || out.Wait <= 0 || !out.WaitsForTarget {
				t.Errorf("%+v, want to wait for the target", out)
			}
			if diff := cmp.Diff(earlier, out.Results.PreConditionResults); diff != "" {
				t.Errorf("the results of the preconditions (-want +got)\n%s", diff)
			}
		})
	}

	t.Run("Replan", func(t *testing.T) {
		ke := r.execution(scale, nil)
		out, err := r.checker(t).Replan(t.Context(), ke, begun)
		if err != nil {
			t.Fatal(err)
		}
		wantFailed(t, out, validation, v1alpha1.DetailInvalidTargetState, refusal)
	})
	patch(`{"status":{"observedGeneration":2}}`, "status")
	wantPassed(t, r.check(t, r.execution(scale, nil), begun))
}
