package operator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
)

// lose has the answer to one write be lost, which was done.
func (w *fixture) lose(what string) {
	w.fault = func(is string, before bool) error {
		if is == what && !before {
			w.fault = func(string, bool) error { return nil }
			return errors.New("connection reset by peer")
		}
		return nil
	}
}

// TestLostAnswers verifies that a lost response of a write neither admits a second execution nor
// blocks others forever.
func TestLostAnswers(t *testing.T) {
	for _, what := range []string{"job", "status executing", "status rollback_ready", "status completed", "job patch"} {
		t.Run(what, func(t *testing.T) {
			w := newFixture()
			r := w.newReconciler(Config{})
			w.create("a", "web", nil)
			w.create("b", "web", nil)
			w.lose(what)
			look := func() {
				for range 4 {
					_, _ = w.reconcile(r, "a")
					_, _ = w.reconcile(r, "b")
				}
			}
			look()
			if len(w.effects) != 1 {
				t.Fatalf("%d act on one target", len(w.effects))
			}
			w.end("a", action.CodeOK)
			w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Finalize = true })
			look()
			wantPhase(t, w, "a", v1alpha1.PhaseCompleted, "")
			wantPhase(t, w, "b", v1alpha1.PhaseExecuting, "")
		})
	}
}

// TestRefusedJob verifies that a Job that a quota refuses is retried visibly, given up after a
// timeout, and blocks no other execution.
func TestRefusedJob(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	told := events.NewFakeRecorder(16)
	r.events.recorder = told
	w.fault = func(what string, before bool) error {
		if what == "job" && before {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "x", errors.New("exceeded quota"))
		}
		return nil
	}
	w.create("a", "web", nil)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseValidated, v1alpha1.DetailExecutorUnavailable)
	if s := w.get("a").Status; !strings.Contains(s.Message, "exceeded quota") || r.slots.gate.Stats().Inside != 0 {
		t.Errorf("it says %q, and %d are inside", s.Message, r.slots.gate.Stats().Inside)
	}
	before := len(w.writes)
	w.must(t, r, "a")
	if len(w.writes) != before {
		t.Errorf("each try is a write: %v", w.writes[before:])
	}
	if n := len(told.Events); n != 1 {
		t.Fatalf("%d events of two tries, want one", n)
	}
	if e := <-told.Events; !strings.Contains(e, "ExecutorUnavailable") || !strings.Contains(e, "exceeded quota") {
		t.Errorf("the event is %q", e)
	}
	w.now = w.now.Add(r.cfg.CheckTimeout)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailExecutorUnavailable)
}

// TestDryRunOfAll verifies that a controller in dry-run mode executes nothing, including approved
// plans.
func TestDryRunOfAll(t *testing.T) {
	w := newFixture()
	w.approval = true
	w.create("a", "web", nil)
	w.must(t, w.newReconciler(Config{}), "a")
	wantPhase(t, w, "a", v1alpha1.PhaseWaitingApproval, "")
	w.edit("a", approve("bob"))
	r := w.newReconciler(Config{DryRun: true})
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseCompleted, "")
	w.approval = false
	w.create("b", "api", nil)
	w.must(t, r, "b")
	wantPhase(t, w, "b", v1alpha1.PhaseCompleted, "")
	if len(w.effects) != 0 {
		t.Errorf("%d Jobs were made", len(w.effects))
	}
}

// TestUnknownJob verifies that the plan of an existing Job replaces the plan in the status.
func TestUnknownJob(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	w.create("a", "web", nil)
	w.lose("status executing")
	w.fault = func(what string, before bool) error {
		if what == "status executing" && before {
			return errCrash
		}
		return nil
	}
	_, _ = w.reconcile(r, "a")
	ran := w.effects[0].plan
	w.fault = func(string, bool) error { return nil }
	w.targets["web"] = 5 // it has acted meanwhile
	next := w.newReconciler(Config{})
	next.restored = true // the cache does not have the Job
	next.runs.jobs = lagging{storedJobs{w}}
	w.must(t, next, "a")
	s := w.get("a").Status
	if s.Plan.Hash != ran.Hash || s.ExecutionResults.PlanHash != ran.Hash || s.Plan.Rollback == nil {
		t.Errorf("the plan is %s, that of the run %s, and %s ran", s.Plan.Hash, s.ExecutionResults.PlanHash, ran.Hash)
	}
}

// lagging are Jobs of which the cache knows none.
type lagging struct{ storedJobs }

func (l lagging) Job(ctx context.Context, ke *v1alpha1.KubernetesExecution, name string, live bool) (*batchv1.Job, error) {
	if !live {
		return nil, nil //nolint:nilnil // as the port has it
	}
	return l.storedJobs.Job(ctx, ke, name, live)
}

// TestRestoreAsksTheHost verifies that a new leader finds a Job that its cache does not have yet,
// so that a cancel stops it.
func TestRestoreAsksTheHost(t *testing.T) {
	w := newFixture()
	w.fault = func(what string, before bool) error {
		if what == "status executing" && before {
			return errCrash
		}
		return nil
	}
	w.create("a", "web", nil)
	_, _ = w.reconcile(w.newReconciler(Config{}), "a")
	w.fault = func(string, bool) error { return nil }
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
	r := w.newReconciler(Config{})
	r.runs.jobs = lagging{storedJobs{w}}
	w.must(t, r, "a")
	if got := phases(w.get("a")); !slices.Contains(got, v1alpha1.PhaseExecuting) {
		t.Errorf("it went through %v, although its Job runs", got)
	}
}

// TestNameReborn verifies that an execution does not wait for an earlier one of the same name.
func TestNameReborn(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	w.create("a", "web", nil)
	w.must(t, r, "a")
	w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.UID = "another" })
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
}

// TestNoPolicies verifies that executions wait visibly for policies, but not forever.
func TestNoPolicies(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	r.validation.check.checker = unasked{checks{w}}
	w.create("a", "web", nil)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseValidating, v1alpha1.DetailPolicyUnavailable)
	before := len(w.writes)
	res, err := w.reconcile(r, "a")
	if err != nil || res.RequeueAfter != checkRetryDelay || len(w.writes) != before {
		t.Errorf("it is looked at again after %s, %v, with the writes %v", res.RequeueAfter, err, w.writes[before:])
	}
	r.validation.check.checker = checks{w}
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")

	r.validation.check.checker = unasked{checks{w}}
	w.create("b", "api", nil)
	w.must(t, r, "b")
	w.now = w.now.Add(r.cfg.CheckTimeout)
	w.must(t, r, "b")
	wantPhase(t, w, "b", v1alpha1.PhaseFailed, v1alpha1.DetailPolicyUnavailable)
}

// unasked are checks without policies.
type unasked struct{ checks }

func (unasked) Check(context.Context, *v1alpha1.KubernetesExecution, *action.Result, time.Time) (check.Outcome, error) {
	return check.Outcome{}, execution.ErrNoPolicies
}

// TestDeletedWhileExecuting verifies that the action of a deleted execution is stopped and reports
// its result before the gate releases the target.
func TestDeletedWhileExecuting(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{Audited: true})
	w.create("a", "web", nil)
	w.create("b", "web", nil)
	w.must(t, r, "a")
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) {
		now := metav1.NewTime(w.now)
		ke.DeletionTimestamp = &now
	})
	w.must(t, r, "a")
	w.must(t, r, "b")
	if len(w.effects) != 1 {
		t.Fatal("another acts on the target")
	}
	w.end("a", action.CodeCancelled)
	w.must(t, r, "a")
	w.must(t, r, "b")
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.Detail(v1alpha1.ReasonCancelled))
	wantPhase(t, w, "b", v1alpha1.PhaseExecuting, "")
}

// TestDeletedWithoutAudit verifies that an execution with a finalizer can be deleted after the
// audit was disabled.
func TestDeletedWithoutAudit(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{Audited: true})
	w.create("a", "web", nil)
	w.must(t, r, "a")
	w.end("a", action.CodeOK)
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) {
		now := metav1.NewTime(w.now.Add(-time.Hour))
		ke.DeletionTimestamp = &now
	})
	w.must(t, w.newReconciler(Config{}), "a")
	if ke := w.get("a"); ke != nil {
		t.Errorf("it is held by %v", ke.Finalizers)
	}
}

// TestInlineOfAnother verifies that an inline action of an earlier operator is not run after its
// timeout or a cancel.
func TestInlineOfAnother(t *testing.T) {
	cases := map[string]struct {
		reason string
		before func(w *fixture, r *reconciler)
		want   v1alpha1.Reason
	}{
		"Late":    {"its time is over", func(w *fixture, _ *reconciler) { w.now = w.now.Add(72 * time.Hour) }, v1alpha1.ReasonExecutionTimeout},
		"Stopped": {"the emergency stop says so", func(_ *fixture, r *reconciler) { r.halted.Store(true) }, v1alpha1.ReasonCancelled},
		"Cancelled": {"a person has cancelled it", func(w *fixture, _ *reconciler) {
			w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
		}, v1alpha1.ReasonCancelled},
		"DryRun": {"nothing is executed any more", func(_ *fixture, r *reconciler) { r.cfg.DryRun = true }, v1alpha1.ReasonCancelled},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.ExecutionMode = v1alpha1.ExecuteInline })
			first := w.newReconciler(Config{Inline: []string{"scale_deployment"}})
			first.running.identities = nobodyActs{t}
			w.fault = func(what string, before bool) error {
				if what == "status executing" && !before {
					return errCrash
				}
				return nil
			}
			_, _ = w.reconcile(first, "a")
			wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
			w.fault = func(string, bool) error { return nil }
			next := w.newReconciler(Config{Inline: []string{"scale_deployment"}})
			next.running.identities = nobodyActs{t}
			tc.before(w, next)
			w.must(t, next, "a")
			wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailResultUnknown)
			if got := w.get("a").Status.Reason; got != tc.want {
				t.Errorf("%s: it failed by %s", tc.reason, got)
			}
		})
	}
}

// nobodyActs fails a test in which somebody acts.
type nobodyActs struct{ t *testing.T }

func (n nobodyActs) Client(context.Context, *action.Action) (action.Client, error) {
	n.t.Error("it acts")
	return action.Client{}, errors.New("nobody may")
}
