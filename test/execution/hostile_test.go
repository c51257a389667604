package execution

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// What conditions of one requester ask for harms nobody else: those that take the
// CPU delay nobody, and those that take the memory end for a reason of their own,
// once.
func TestHostileConditions(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{})
	const digits = "package a\nl := [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]\n"
	const endless = digits + "allow if count({1 | some a in l; some b in l; some c in l; some d in l; some e in l; some f in l; some g in l; some h in l; some i in l; some j in l; a + b + c + d + e + f + g + h + i + j == 0}) == 0"
	const gigabytes = digits + "allow if count([[a, b, c, d, e, f] | some a in l; some b in l; some c in l; some d in l; some e in l; some f in l]) > 3"
	says := func(user, name, module string) {
		t.Helper()
		f.CreateExecution(user, &v1alpha1.KubernetesExecution{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.KubernetesExecutionSpec{
				Action: "notify_only", Parameters: &runtime.RawExtension{Raw: []byte(`{"message":"look here"}`)},
				PreConditions: []v1alpha1.Condition{{Type: "a", Rego: module, Required: true}},
			},
		})
	}
	for i := range 20 {
		says(fleettest.Admin, fmt.Sprint("endless-", i), endless)
	}
	says(alice, "quick", "package a\nallow if input.now > 0")
	quick := f.AwaitPhase("quick", v1alpha1.PhaseCompleted)
	ended := func() (n int) {
		for i := range 20 {
			if f.GetExecution(fmt.Sprint("endless-", i)).Status.Phase == v1alpha1.PhaseFailed {
				n++
			}
		}
		return n
	}
	if ended() == 20 {
		t.Errorf("it was done at %v, after all that another had asked for before", quick.Status.PhaseTransitions)
	}
	// Each takes a second of CPU, and they wait for each other in no order: the next must end in time.
	for n := range 20 {
		f.Until(func() error {
			if got := ended(); got <= n {
				return fmt.Errorf("%d endless executions have ended", got)
			}
			return nil
		})
	}
	for i := range 20 {
		f.AwaitFailure(fmt.Sprint("endless-", i), v1alpha1.ReasonValidationError, v1alpha1.DetailConditionKilled)
	}

	says(fleettest.Admin, "gigabytes", gigabytes)
	ke := f.AwaitFailure("gigabytes", v1alpha1.ReasonValidationError, v1alpha1.DetailConditionKilled)
	if !strings.Contains(ke.Status.Message, "it used more than 64 MiB of memory") || !ke.Status.ValidationResults.PreConditionResults[0].Killed {
		t.Errorf("it says %q", ke.Status.Message)
	}
	f.Controller().Kill()
	f.StartController("--leader-elect=false") // the Lease of the dead is not what this is about
	says(alice, "afterwards", "package a\nallow if input.now > 0")
	f.AwaitPhase("afterwards", v1alpha1.PhaseCompleted)
	if again := f.GetExecution("gigabytes"); again.Status.ValidationResults.PreConditionResults[0].Attempts != 1 || len(again.Status.PhaseTransitions) != len(ke.Status.PhaseTransitions) {
		t.Errorf("it was looked at again: %+v", again.Status)
	}
	if n := strings.Count(f.Controller().Metrics(), `kubernetesexecution_condition_evaluation_duration_seconds_count{result="killed"}`); n > 0 {
		t.Error("a condition was killed after the restart")
	}
}
