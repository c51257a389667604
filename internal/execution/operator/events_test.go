package operator

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
)

// outcomes are checks whose outcome something is done to.
type outcomes struct {
	checks

	change func(*check.Outcome)
}

func (c outcomes) Check(ctx context.Context, ke *v1alpha1.KubernetesExecution, dry *action.Result, now time.Time) (check.Outcome, error) {
	out, err := c.checks.Check(ctx, ke, dry, now)
	c.change(&out)
	return out, err
}

func (c outcomes) Replan(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (check.Outcome, error) {
	return c.Check(ctx, ke, nil, now)
}

// told are the Kubernetes events since the last time, as type and reason.
func told(recorder *events.FakeRecorder) (list []string) {
	for len(recorder.Events) > 0 {
		words := strings.Fields(<-recorder.Events)
		list = append(list, words[0]+" "+words[1])
	}
	return list
}

// changed are the kinds of changes that were told to other systems.
func (w *fixture) changed() (list []execution.ChangeAction) {
	for _, c := range w.changes {
		list = append(list, c.Action)
	}
	return list
}

// again has a write be refused the first time that it is tried, since somebody
// has changed the execution.
func (w *fixture) again(what string) {
	w.once(what, true, w.edited(func(ke *v1alpha1.KubernetesExecution) { ke.Labels = map[string]string{"changed": what} }))
}

// optional are results of conditions of which one is to be warned of.
func optional() []v1alpha1.ConditionResult {
	return []v1alpha1.ConditionResult{
		{ConditionType: "holds", Passed: true, Evaluated: true},
		{ConditionType: "must", Passed: true, Required: true, Evaluated: true},
		{ConditionType: "should", Evaluated: true, ErrorMessage: "it does not"},
	}
}

// TestTold verifies that each event of an execution is emitted once, independent of repeated
// reconciles and retried writes.
func TestTold(t *testing.T) {
	postcondition := func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.PostConditions = []v1alpha1.Condition{{Type: "x", Rego: "x"}}
	}
	runs := func(w *fixture, r *reconciler, code action.Code) {
		w.end("a", code)
		w.again("status rollback_ready")
		w.look(r)
		w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Finalize = true })
		w.again("status completed")
	}
	for name, tc := range map[string]struct {
		approval bool
		spec     func(*v1alpha1.KubernetesExecution)
		outcome  func(*check.Outcome)
		then     func(w *fixture, r *reconciler)
		events   []string
		changes  []execution.ChangeAction
	}{
		"Succeeded": {
			then:    func(w *fixture, r *reconciler) { runs(w, r, action.CodeOK) },
			events:  []string{"Normal JobCreated", "Normal ExecutionCompleted", "Normal ExecutionCompletedPermanent"},
			changes: []execution.ChangeAction{execution.ChangeStarted, execution.ChangeSucceeded},
		},
		"NoWayBack": {
			outcome: func(out *check.Outcome) { out.Plan.Rollback = nil },
			then: func(w *fixture, r *reconciler) {
				w.again("status completed")
				w.end("a", action.CodeOK)
				w.look(r)
			},
			events:  []string{"Normal JobCreated", "Normal ExecutionCompletedPermanent"},
			changes: []execution.ChangeAction{execution.ChangeStarted, execution.ChangeSucceeded},
		},
		"TakenBack": {
			spec:    func(ke *v1alpha1.KubernetesExecution) { ke.Spec.RollbackOf = &v1alpha1.ObjectReference{Name: "before"} },
			then:    func(w *fixture, r *reconciler) { runs(w, r, action.CodeOK) },
			events:  []string{"Normal JobCreated", "Normal ExecutionCompleted", "Normal ExecutionCompletedPermanent"},
			changes: []execution.ChangeAction{execution.ChangeStarted, execution.ChangeRolledBack},
		},
		"Failed": {
			then: func(w *fixture, _ *reconciler) {
				w.end("a", action.CodeForbidden)
				w.again("status failed")
			},
			events:  []string{"Normal JobCreated", "Warning ExecutionFailed"},
			changes: []execution.ChangeAction{execution.ChangeStarted, execution.ChangeFailed},
		},
		"Approved": {
			approval: true,
			then: func(w *fixture, r *reconciler) {
				w.edit("a", approve("bob"))
				w.again("status waiting_approval")
				w.look(r)
				runs(w, r, action.CodeOK)
			},
			events:  []string{"Normal ApprovalRequired", "Normal JobCreated", "Normal ExecutionCompleted", "Normal ExecutionCompletedPermanent"},
			changes: []execution.ChangeAction{execution.ChangeApproved, execution.ChangeStarted, execution.ChangeSucceeded},
		},
		"Rejected": {
			approval: true,
			then: func(w *fixture, _ *reconciler) {
				w.edit("a", func(ke *v1alpha1.KubernetesExecution) {
					ke.Spec.Approvals = []v1alpha1.Approval{{Approver: "bob", Decision: v1alpha1.Reject, PlanHash: ke.Status.Plan.Hash}}
				})
				w.again("status failed")
			},
			events:  []string{"Normal ApprovalRequired", "Warning ApprovalRejected", "Warning ExecutionFailed"},
			changes: []execution.ChangeAction{execution.ChangeRejected, execution.ChangeFailed},
		},
		"Stale": {
			approval: true,
			then: func(w *fixture, _ *reconciler) {
				w.targets["web"] = 4
				w.edit("a", approve("bob"))
				w.again("status failed")
			},
			events:  []string{"Normal ApprovalRequired", "Warning PlanStale", "Warning ExecutionFailed"},
			changes: []execution.ChangeAction{execution.ChangeApproved, execution.ChangeFailed},
		},
		"Denied": {
			outcome: func(out *check.Outcome) {
				out.Failed = &execution.Failure{Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailPolicyDenied, Message: "no"}
			},
			then:    func(w *fixture, _ *reconciler) { w.again("status failed") },
			events:  []string{"Warning PolicyDenied", "Warning ExecutionFailed"},
			changes: []execution.ChangeAction{execution.ChangeFailed},
		},
		"Expired": {
			approval: true,
			then:     func(w *fixture, _ *reconciler) { w.now = w.now.Add(2 * time.Hour) },
			events:   []string{"Normal ApprovalRequired", "Warning ExecutionFailed"},
			changes:  []execution.ChangeAction{execution.ChangeFailed},
		},
		"Warned": {
			outcome: func(out *check.Outcome) {
				out.Warnings, out.Results.PreConditionResults = []string{"it is late"}, optional()
			},
			spec: postcondition,
			then: func(w *fixture, r *reconciler) {
				w.post = optional()
				runs(w, r, action.CodeOK)
			},
			events: []string{
				"Warning PreconditionWarning", "Warning PolicyWarning", "Normal JobCreated", "Warning PostconditionWarning",
				"Normal ExecutionCompleted", "Normal ExecutionCompletedPermanent",
			},
			changes: []execution.ChangeAction{execution.ChangeStarted, execution.ChangeSucceeded},
		},
		"PostconditionFails": {
			spec: postcondition,
			then: func(w *fixture, r *reconciler) {
				w.post = []v1alpha1.ConditionResult{{ConditionType: "x", Required: true, Evaluated: true}}
				runs(w, r, action.CodeOK)
			},
			events:  []string{"Normal JobCreated", "Warning ExecutionFailed"},
			changes: []execution.ChangeAction{execution.ChangeStarted, execution.ChangeFailed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.approval = tc.approval
			r := w.newReconciler(Config{})
			recorder := events.NewFakeRecorder(64)
			r.events.recorder = recorder
			if tc.outcome != nil {
				r.validation.check.checker = outcomes{checks{w}, tc.outcome}
			}
			w.create("a", "web", tc.spec)
			w.again("status validated")
			if tc.approval {
				w.again("status waiting_approval")
			}
			w.look(r)
			tc.then(w, r)
			w.look(r)
			if s := w.get("a").Status; !execution.IsFinal(s.Phase) {
				t.Fatalf("it is %s: %s", s.Phase, s.Message)
			}
			if diff := cmp.Diff(tc.events, told(recorder)); diff != "" {
				t.Errorf("people:\n%s", diff)
			}
			if diff := cmp.Diff(tc.changes, w.changed()); diff != "" {
				t.Errorf("other systems:\n%s", diff)
			}
		})
	}
}

// TestToldOfWhoLetIt verifies that existing events include the approver and the rollback command,
// because separate events would be additional writes.
func TestToldOfWhoLetIt(t *testing.T) {
	const back = "; to roll back: fleetloop rollback a -n " + namespace
	for name, tc := range map[string]struct {
		reason   string
		cfg      Config
		spec     func(*v1alpha1.KubernetesExecution)
		approval bool
		want     []string
	}{
		"InJob": {
			"nobody had to",
			Config{},
			nil, false,
			[]string{`checks passed; Job "JOB" runs the action: DOES`, "DOES" + back},
		},
		"InJobApproved": {
			"with the Job",
			Config{},
			nil, true,
			[]string{`checks passed, approved by bob; Job "JOB" runs the action: DOES`, "DOES" + back},
		},
		"InlineApproved": {
			"with the end, where there is no Job", inline(), asksInline, true,
			[]string{"DOES, approved by bob" + back},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture()
				w.approval = tc.approval
				r := w.newReconciler(tc.cfg)
				recorder := events.NewFakeRecorder(64)
				r.events.recorder = recorder
				w.create("a", "web", tc.spec)
				w.look(r)
				if tc.approval {
					<-recorder.Events // that asks for it
					w.edit("a", approve("bob"))
					w.look(r)
				}
				if w.get("a").Status.Phase == v1alpha1.PhaseExecuting {
					w.end("a", action.CodeOK)
					w.look(r)
				}
				s := w.get("a").Status
				var got []string
				for len(recorder.Events) > 0 {
					got = append(got, strings.SplitN(<-recorder.Events, " ", 3)[2])
				}
				for i, want := range tc.want {
					tc.want[i] = strings.NewReplacer("JOB", s.JobName, "DOES", s.Plan.Impact.Description).Replace(want)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// look looks at execution a as often as there may be something to do.
func (w *fixture) look(r *reconciler) {
	for range 4 {
		_, _ = w.reconcile(r, "a")
	}
}

// TestToldWhyItWaits verifies that each reason to wait is reported and counted once.
func TestToldWhyItWaits(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	g, err := execution.NewGate(execution.GateConfig{MaxConcurrent: 1, Cooldown: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r.slots.gate = g
	recorder := events.NewFakeRecorder(64)
	w.create("first", "web", nil)
	w.must(t, r, "first")
	r.events.recorder = recorder
	w.create("a", "web", nil)
	w.look(r)
	w.end("first", action.CodeOK)
	w.must(t, r, "first")
	w.look(r)
	w.create("third", "api", nil)
	w.must(t, r, "third")
	w.now = w.now.Add(time.Minute)
	w.look(r)
	g.Stop("fire")
	w.look(r)
	if diff := cmp.Diff([]string{"Normal TargetBusy", "Normal ExecutionCompleted", "Normal Cooldown", "Normal JobCreated", "Normal BudgetExceeded", "Normal EmergencyStop"}, told(recorder)); diff != "" {
		t.Error(diff)
	}
	for _, d := range []v1alpha1.Detail{v1alpha1.DetailTargetBusy, v1alpha1.DetailCooldown, v1alpha1.DetailBudgetExceeded, v1alpha1.DetailEmergencyStop} {
		if got := testutil.ToFloat64(r.metrics.startsBlocked.WithLabelValues(string(d))); got != 1 {
			t.Errorf("%s was counted %v times", d, got)
		}
	}
}

// TestUnknownActionIsCounted verifies that a request cannot choose the label of a metric.
func TestUnknownActionIsCounted(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	r.validation.check.checker = unknowing{checks{w}}
	w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Action = "whatever_i_like" })
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailUnknownAction)
	if n := testutil.CollectAndCount(r.metrics.executions); n != 1 {
		t.Errorf("there are %d series", n)
	}
	if got := testutil.ToFloat64(r.metrics.executions.WithLabelValues("failed", "unknown")); got != 1 {
		t.Errorf("%v were counted as unknown", got)
	}
}

// unknowing are checks that know no action.
type unknowing struct{ checks }

func (unknowing) Check(context.Context, *v1alpha1.KubernetesExecution, *action.Result, time.Time) (check.Outcome, error) {
	return check.Outcome{Failed: &execution.Failure{Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailUnknownAction, Message: "there is none"}}, nil
}

// TestToldOnceOfAQueue verifies that changes ahead in the queue cause no further events.
func TestToldOnceOfAQueue(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	for _, name := range []string{"first", "second"} {
		w.create(name, "web", nil)
		w.must(t, r, name)
	}
	recorder := events.NewFakeRecorder(64)
	r.events.recorder = recorder
	w.create("a", "web", nil)
	w.look(r)
	w.end("first", action.CodeOK)
	w.must(t, r, "first")
	w.must(t, r, "second")
	wantPhase(t, w, "second", v1alpha1.PhaseExecuting, "")
	w.look(r)
	if diff := cmp.Diff([]string{"Normal TargetBusy", "Normal ExecutionCompleted", "Normal JobCreated"}, told(recorder)); diff != "" {
		t.Error(diff)
	}
}

// TestOneWordForARefusal verifies that events use the same words as the status, and the canonical
// name of an action.
func TestOneWordForARefusal(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	ke := &v1alpha1.KubernetesExecution{Status: v1alpha1.KubernetesExecutionStatus{
		Reason: v1alpha1.ReasonValidationError, ReasonDetail: v1alpha1.DetailTargetProtected, Message: "it is protected",
	}}
	(&eventEmitter{recorder: recorder}).emitFailed(ke)
	if got, want := <-recorder.Events, "Warning ExecutionFailed target_protected: it is protected"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w := newFixture()
	r := w.newReconciler(Config{})
	w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.Action = "restart_deployment"
		ke.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"deployment":"web","namespace":"shop"}`)}
	})
	w.must(t, r, "a")
	if len(w.changes) != 1 || w.changes[0].Does != "rollout_restart" {
		t.Errorf("told %+v, want the catalogue's name", w.changes)
	}
}
