package wake

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

const (
	// A condition that does not hold is looked at again by time, too: regularly
	// when it has waited for so long, and then at each end of a pause.
	regular = 15 * time.Second
	pause   = 10 * time.Second
	// settled is how far into a pause its first look is over for certain.
	settled = pause / 5
	// tries is how often a change may be noticed later than that, as where
	// the machine is busy. Who does not watch never notices one in time.
	tries = 4
)

// A change of the target has conditions be looked at, before their time has come.
func TestTarget(t *testing.T) {
	t.Parallel()
	each(t, map[string]func(w fixture){
		"precondition": func(w fixture) {
			w.inTime(func(name string) (since, seen time.Time, due time.Time) {
				w.asks(w.Cheap, name, func(s *v1alpha1.KubernetesExecutionSpec) { s.PreConditions = replicas(4) })
				ke := w.AwaitExecution(name, waits(v1alpha1.ConditionValidated))
				since = at(ke, v1alpha1.PhaseValidating)
				due = w.changes(name, 4, since)
				return since, at(w.AwaitPhase(name, v1alpha1.PhaseExecuting), v1alpha1.PhaseValidated), due
			})
		},
		"postcondition": func(w fixture) {
			w.inTime(func(name string) (since, seen time.Time, due time.Time) {
				j := w.executes(name, func(s *v1alpha1.KubernetesExecutionSpec) { s.PostConditions = replicas(5) })
				w.ends(w.runs(j), action.Result{Code: action.CodeOK, Changed: true, Count: 1})
				ke := w.AwaitExecution(name, waits(v1alpha1.ConditionPostConditionsMet))
				since = meta.FindStatusCondition(ke.Status.Conditions, v1alpha1.ConditionPostConditionsMet).LastTransitionTime.Time
				due = w.changes(name, 5, since)
				return since, at(w.AwaitPhase(name, v1alpha1.PhaseRollbackReady), v1alpha1.PhaseRollbackReady), due
			})
		},
	})
}

// inTime holds that a change was seen before it would have been looked for. Of
// an execution course gives when it began to wait, when it waited no more, and
// when it was due to look after the change.
func (w fixture) inTime(course func(name string) (since, seen, due time.Time)) {
	w.Helper()
	for n := range tries {
		since, seen, due := course(fmt.Sprintf("%s-%d", w.own(), n))
		if seen.Before(due) {
			return
		}
		w.Logf("the change was seen %s after the wait began, and was due to be at %s", seen.Sub(since), due.Sub(since))
	}
	w.Errorf("in %d tries no change was seen before it was looked for", tries)
}

// changes gives a target so many replicas just after its conditions were looked
// at, and says when they will be again if nobody notices.
func (w fixture) changes(name string, replicas int, since time.Time) (due time.Time) {
	w.Helper()
	w.Until(func() error {
		passed := time.Since(since.Add(regular))
		if into := passed % pause; passed < 0 || into < settled || into > 2*settled {
			return fmt.Errorf("%s is no time for a change", passed)
		}
		due = since.Add(regular + passed.Truncate(pause) + pause)
		return nil
	})
	w.rests()
	w.PatchDeploymentAndAwaitObserved(w.Cheap, name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	return due
}

// replicas is a condition on how many the target is to have, which has much time.
func replicas(n int) []v1alpha1.Condition {
	return []v1alpha1.Condition{{
		Type: "replicas", Required: true, Timeout: &metav1.Duration{Duration: long},
		Rego: fmt.Sprintf("package replicas\n\ndefault allow := false\n\nallow if input.target.object.spec.replicas == %d\n", n),
	}}
}

// waits says whether an execution waits for its conditions to hold.
func waits(condition string) func(ke *v1alpha1.KubernetesExecution) error {
	return func(ke *v1alpha1.KubernetesExecution) error {
		if c := meta.FindStatusCondition(ke.Status.Conditions, condition); c == nil || c.Status != metav1.ConditionUnknown {
			return errors.New("its conditions were not looked at yet")
		}
		return nil
	}
}

// at is when an execution entered a phase.
func at(ke *v1alpha1.KubernetesExecution, p v1alpha1.Phase) time.Time {
	for _, t := range ke.Status.PhaseTransitions {
		if t.Phase == p {
			return t.At.Time
		}
	}
	return time.Time{}
}
