package fleettest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// replicasCondition returns a condition on the number of replicas of the target.
func replicasCondition(kind string, replicas int, required bool, timeout time.Duration) v1alpha1.Condition {
	return v1alpha1.Condition{
		Type: kind, Required: required, Timeout: &metav1.Duration{Duration: timeout},
		Rego: fmt.Sprintf(
			"package %s\n\ndefault allow := false\n\nallow if input.target.object.spec.replicas == %d\n\nmessage := \"the replicas are others\"\n",
			kind,
			replicas,
		),
	}
}

func testPreconditionFails(f *Fleet) {
	name := newTarget(f)
	fromThree(f, f.Cheap, name, func(s *v1alpha1.KubernetesExecutionSpec) {
		s.PreConditions = []v1alpha1.Condition{replicasCondition("four", 4, true, time.Second), replicasCondition("three", 3, true, time.Second)}
	})
	ke := f.AwaitFailure(name, v1alpha1.ReasonValidationError, v1alpha1.DetailPreConditionFailed)
	if got := ke.Status.ValidationResults.PreConditionResults; len(got) != 2 || got[0].Passed || !got[1].Passed || got[0].ErrorMessage == "" {
		f.Errorf("preconditions %+v", got)
	}
	wantNoJob(f, name)
}

// testBrokenConditionRejected verifies that conditions that can never pass fail immediately, without any change.
func testBrokenConditionRejected(f *Fleet) {
	name := newTarget(f)
	broken := v1alpha1.Condition{
		Type:     "broken",
		Rego:     "package condition\n\nallow if {",
		Required: true,
		Timeout:  &metav1.Duration{Duration: time.Hour},
	}
	for kind, change := range map[string]func(*v1alpha1.KubernetesExecutionSpec){
		"pre":  func(s *v1alpha1.KubernetesExecutionSpec) { s.PreConditions = []v1alpha1.Condition{broken} },
		"post": func(s *v1alpha1.KubernetesExecutionSpec) { s.PostConditions = []v1alpha1.Condition{broken} },
	} {
		ke := newScaleExecution(f.Cheap, name, change)
		ke.Name += "-" + kind
		f.CreateExecution(alice, ke)
		ke = f.AwaitFailure(ke.Name, v1alpha1.ReasonValidationError, "")
		if says := kind + `condition "broken" can never pass: the condition does not compile: condition:3: `; !strings.Contains(ke.Status.Message, says) {
			f.Errorf("it says %q, want %q", ke.Status.Message, says)
		}
		wantNoJob(f, ke.Name)
	}
	f.WantReplicas(f.Cheap, name, 3)
}

// testPreconditionWaits verifies that an execution waits until another client makes its precondition
// pass.
func testPreconditionWaits(f *Fleet) {
	name := newTarget(f)
	fromThree(f, f.Cheap, name, func(s *v1alpha1.KubernetesExecutionSpec) {
		s.PreConditions = []v1alpha1.Condition{replicasCondition("four", 4, true, 2*time.Minute)}
	})
	f.AwaitExecution(name, func(ke *v1alpha1.KubernetesExecution) error {
		if v := ke.Status.ValidationResults; v == nil || len(v.PreConditionResults) == 0 {
			return errors.New("the precondition was not looked at yet")
		}
		return nil
	})
	f.WantCommand(alice, cli.CodeOK, []string{"exec", "describe", name}, "The execution is waiting for its preconditions to pass: four.")
	wantNoJob(f, name)
	f.PatchDeploymentAndAwaitObserved(f.Cheap, name, `{"spec":{"replicas":4}}`)
	ke := f.AwaitPhase(name, v1alpha1.PhaseRollbackReady)
	f.WantReplicas(f.Cheap, name, 5)
	if back := string(ke.Status.RollbackInformation.RollbackParameters.Raw); !strings.Contains(back, `"replicas":4`) {
		f.Errorf("the way back is %s, want to what was there when it ran", back)
	}
}

func testPostconditionFails(f *Fleet) {
	name := newTarget(f)
	fromThree(f, f.Cheap, name, func(s *v1alpha1.KubernetesExecutionSpec) {
		s.PostConditions = []v1alpha1.Condition{replicasCondition("six", 6, true, time.Second), replicasCondition("five", 5, true, time.Second)}
	})
	ke := f.AwaitPhase(name, v1alpha1.PhaseRollbackReady)
	if ke.Status.Outcome != v1alpha1.OutcomeFailed || ke.Status.Reason != v1alpha1.ReasonPostConditionFailed || !ke.Status.RollbackInformation.Available {
		f.Errorf("status %+v", ke.Status)
	}
	if got := ke.Status.ValidationResults.PostConditionResults; len(got) != 2 || got[0].Passed || !got[1].Passed {
		f.Errorf("postconditions %+v", got)
	}
	f.WantReplicas(f.Cheap, name, 5) // no automatic rollback
	f.AwaitEvent(name, "ExecutionFailed", "Warning")
	f.WantCommand(alice, cli.CodeOK, []string{"exec", "describe", name}, "required postconditions failed: six", "fleetloop rollback "+name)
	f.WantCommand(alice, cli.CodeOK, []string{"exec", "finalize", name})
	f.AwaitFailure(name, v1alpha1.ReasonPostConditionFailed, "")
}

func testOptionalConditionsPartial(f *Fleet) {
	name := newTarget(f)
	fromThree(f, f.Cheap, name, func(s *v1alpha1.KubernetesExecutionSpec) {
		s.PreConditions = []v1alpha1.Condition{replicasCondition("four", 4, false, time.Second)}
		s.PostConditions = []v1alpha1.Condition{replicasCondition("six", 6, false, time.Second)}
	})
	if ke := f.AwaitPhase(name, v1alpha1.PhaseRollbackReady); ke.Status.Outcome != v1alpha1.OutcomePartial {
		f.Errorf("outcome %q, want a partial success", ke.Status.Outcome)
	}
}
