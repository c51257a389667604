package operator

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
)

// TestTroubleWhileWaiting verifies that a short error does not fail an execution that has waited
// for long, before or after the action.
func TestTroubleWhileWaiting(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	long := []v1alpha1.Condition{{Type: "room", Rego: "package room", Required: true, Timeout: &metav1.Duration{Duration: time.Hour}}}
	w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.PreConditions, ke.Spec.PostConditions = long, long })
	trouble := func(phase v1alpha1.Phase) {
		t.Helper()
		w.now = w.now.Add(3 * r.cfg.CheckTimeout)
		healthy := r.validation.check.checker
		r.validation.check.checker = troubled{}
		w.must(t, r, "a")
		wantPhase(t, w, "a", phase, w.get("a").Status.ReasonDetail)
		w.now = w.now.Add(r.cfg.CheckTimeout - time.Second)
		w.must(t, r, "a")
		wantPhase(t, w, "a", phase, w.get("a").Status.ReasonDetail)
		r.validation.check.checker = healthy
		w.must(t, r, "a")
	}
	r.validation.check.checker = hesitant{checks{w}}
	w.must(t, r, "a")
	trouble(v1alpha1.PhaseValidating)
	trouble(v1alpha1.PhaseValidating) // another one, with a time of its own
	r.validation.check.checker = checks{w}
	w.must(t, r, "a")
	w.postWait = time.Minute
	w.end("a", action.CodeOK)
	w.must(t, r, "a")
	trouble(v1alpha1.PhaseExecuting)
	trouble(v1alpha1.PhaseExecuting)

	r.validation.check.checker = troubled{}
	w.now = w.now.Add(time.Hour)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseRollbackReady, v1alpha1.Detail(v1alpha1.ReasonPostConditionFailed))
}

// hesitant are checks that wait for a precondition.
type hesitant struct{ checks }

func (hesitant) Check(context.Context, *v1alpha1.KubernetesExecution, *action.Result, time.Time) (check.Outcome, error) {
	return check.Outcome{Wait: time.Minute}, nil
}

// TestKilledIsStored verifies that a killed evaluation is stored immediately, independent of the
// other results.
func TestKilledIsStored(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	both := []v1alpha1.Condition{{Type: "slow", Rego: "package a", Timeout: &metav1.Duration{Duration: time.Hour}}, {Type: "greedy", Rego: "package b"}}
	w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.PreConditions, ke.Spec.PostConditions = both, both })
	results := func(killed bool) []v1alpha1.ConditionResult {
		return []v1alpha1.ConditionResult{{ConditionType: "slow", Evaluated: true}, {ConditionType: "greedy", Killed: killed}}
	}
	stored := func(phase v1alpha1.Phase, pre, post bool) {
		t.Helper()
		w.must(t, r, "a")
		wantPhase(t, w, "a", phase, w.get("a").Status.ReasonDetail)
		v := w.get("a").Status.ValidationResults
		if v == nil {
			v = &v1alpha1.ValidationResults{}
		}
		of := func(list []v1alpha1.ConditionResult) bool { return len(list) == 2 && list[1].Killed }
		if of(v.PreConditionResults) != pre || of(v.PostConditionResults) != post {
			t.Errorf("stored is %+v, want that the precondition was killed: %t, the postcondition: %t", v, pre, post)
		}
	}
	looks := &looking{checks: checks{w}, out: check.Outcome{Wait: time.Minute}}
	r.validation.check.checker = looks
	looks.out.Results.PreConditionResults = results(false)
	stored(v1alpha1.PhaseValidating, false, false)
	looks.out.Results.PreConditionResults = results(true)
	stored(v1alpha1.PhaseValidating, true, false)
	looks.out.Results.PostConditionResults, looks.err = results(true), errNoAnswer
	stored(v1alpha1.PhaseValidating, true, true)

	r.validation.check.checker = checks{w}
	// The rest is of another execution, after its action.
	w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.PostConditions = both })
	w.must(t, r, "a")
	w.end("a", action.CodeOK)
	w.post, w.postWait = results(false), time.Minute
	stored(v1alpha1.PhaseExecuting, false, false)
	w.post = results(true)
	stored(v1alpha1.PhaseExecuting, false, true)
	r.validation.check.checker = troubled{}
	stored(v1alpha1.PhaseExecuting, false, true)
	w.now = w.now.Add(2 * time.Hour)
	stored(v1alpha1.PhaseRollbackReady, false, true)
}

// TestWaitNamesItsCause verifies that the status tells a wait for the target from one for preconditions.
func TestWaitNamesItsCause(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	w.create("a", "web", nil)
	looks := &looking{checks: checks{w}}
	r.validation.check.checker = looks
	for i, tc := range []struct {
		out    check.Outcome
		reason string
	}{
		{check.Outcome{Wait: time.Minute, WaitsForTarget: true}, "WaitingForTarget"},
		{check.Outcome{Wait: time.Minute}, "WaitingForPreconditions"},
		{check.Outcome{Wait: time.Minute, WaitsForTarget: true}, "WaitingForTarget"},
	} {
		tc.out.Results.PreConditionResults = make([]v1alpha1.ConditionResult, i)
		looks.out = tc.out
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseValidating, "")
		s := w.get("a").Status
		if c := findCondition(&s, v1alpha1.ConditionValidated); c == nil || c.Reason != tc.reason || c.Message != s.Message || s.Message == "" {
			t.Errorf("condition %+v with the message %q, want the reason %s", c, s.Message, tc.reason)
		}
		if got := len(s.ValidationResults.PreConditionResults); got != i {
			t.Errorf("%d results of preconditions are stored, want %d", got, i)
		}
	}
	r.validation.check.checker = checks{w}
	w.must(t, r, "a")
	if phase := w.get("a").Status.Phase; phase == v1alpha1.PhaseValidating {
		t.Errorf("it is still %s", phase)
	}
}

// looking are checks of which the first says something, and maybe fails.
type looking struct {
	checks
	out check.Outcome
	err error
}

func (l *looking) Check(context.Context, *v1alpha1.KubernetesExecution, *action.Result, time.Time) (check.Outcome, error) {
	return l.out, l.err
}

// troubled are checks that cannot be made.
type troubled struct{}

func (troubled) Check(context.Context, *v1alpha1.KubernetesExecution, *action.Result, time.Time) (check.Outcome, error) {
	return check.Outcome{}, errNoAnswer
}

func (troubled) Replan(context.Context, *v1alpha1.KubernetesExecution, time.Time) (check.Outcome, error) {
	return check.Outcome{}, errNoAnswer
}

func (troubled) EvaluatePostConditions(context.Context, *v1alpha1.KubernetesExecution, time.Time, time.Time) ([]v1alpha1.ConditionResult, time.Duration, error) {
	return nil, 0, errNoAnswer
}

// TestOverdueAsksTheHost verifies that a succeeded Job is not reported as failed if its result is
// seen long after its deadline.
func TestOverdueAsksTheHost(t *testing.T) {
	for name, c := range map[string]struct {
		ended bool
		phase v1alpha1.Phase
	}{
		"Ended": {true, v1alpha1.PhaseRollbackReady},
		"Runs":  {false, v1alpha1.PhaseFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r := w.newReconciler(Config{})
			w.create("a", "web", nil)
			w.must(t, r, "a")
			if c.ended {
				w.end("a", action.CodeOK)
			}
			for _, j := range w.jobs {
				j.Status.Conditions = nil
			}
			r.runs.jobs = podless{storedJobs{w}}
			w.now = w.now.Add(time.Hour)
			w.must(t, r, "a")
			w.must(t, r, "a") // the first stops it
			if ke := w.get("a"); ke.Status.Phase != c.phase || ke.Status.ExecutionResults.Success != c.ended {
				t.Errorf("it is %s: %s", ke.Status.Phase, ke.Status.Message)
			}
		})
	}
}

// podless are Jobs of whose Pods the cache knows none.
type podless struct{ storedJobs }

func (p podless) Pods(ctx context.Context, j *batchv1.Job, live bool) ([]corev1.Pod, error) {
	if !live {
		return nil, nil
	}
	return p.storedJobs.Pods(ctx, j, live)
}
