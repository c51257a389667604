package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// phases are those that an execution went through.
func phases(ke *v1alpha1.KubernetesExecution) (list []v1alpha1.Phase) {
	for _, t := range ke.Status.PhaseTransitions {
		list = append(list, t.Phase)
	}
	return list
}

func (w *fixture) must(t *testing.T, r *reconciler, name string) {
	t.Helper()
	if _, err := w.reconcile(r, name); err != nil {
		t.Fatal(err)
	}
}

func wantPhase(t *testing.T, w *fixture, name string, want v1alpha1.Phase, detail v1alpha1.Detail) {
	t.Helper()
	s := w.get(name).Status
	if s.Phase != want || s.ReasonDetail != detail {
		t.Fatalf("%s is %s (%s): %s; want %s (%s)", name, s.Phase, s.ReasonDetail, s.Message, want, detail)
	}
}

func approve(by string) func(*v1alpha1.KubernetesExecution) {
	return func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.Approvals = append(ke.Spec.Approvals, v1alpha1.Approval{Approver: by, Decision: v1alpha1.Approve, PlanHash: ke.Status.Plan.Hash})
	}
}

// TestWithoutApproval verifies the phases and the number of writes of an execution without
// approval.
func TestWithoutApproval(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{Audited: true})
	w.create("a", "web", nil)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
	w.end("a", action.CodeOK)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseRollbackReady, "")
	w.must(t, r, "a")
	w.now = w.now.Add(r.cfg.RollbackWindow)
	w.must(t, r, "a")
	wantPhases(t, w, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseExecuting, v1alpha1.PhaseRollbackReady, v1alpha1.PhaseCompleted)
	wantWrites(t, w, "status validated", "finalizer", "job", "status executing", "status rollback_ready", "job patch", "status completed")
	if got := w.get("a").Status; got.Outcome != v1alpha1.OutcomeSucceeded || !got.ExecutionResults.Success || got.RollbackInformation == nil || !got.RollbackInformation.Available {
		t.Errorf("status is %+v", got)
	}
}

// TestOneWrite verifies that consecutive immediate phases are one write.
func TestOneWrite(t *testing.T) {
	t.Run("UntilItActs", func(t *testing.T) {
		w := newFixture()
		w.fault = func(what string, before bool) error {
			if what == "status executing" && !before {
				return errCrash
			}
			return nil
		}
		r := w.newReconciler(Config{Audited: true, Inline: []string{"scale_deployment"}})
		r.running.identities = nobodyActs{t}
		w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.ExecutionMode = v1alpha1.ExecuteInline })
		_, _ = w.reconcile(r, "a")
		wantWrites(t, w, "finalizer", "status executing")
		wantPhases(t, w, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseExecuting)
	})
	t.Run("DryRun", func(t *testing.T) {
		w := newFixture()
		w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.DryRunMode = v1alpha1.DryRunOnly })
		w.must(t, w.newReconciler(Config{}), "a")
		wantWrites(t, w, "status completed")
		wantPhases(t, w, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseCompleted)
	})
	for name, tc := range map[string]struct {
		window time.Duration
		edit   func(*v1alpha1.KubernetesExecution)
	}{
		"NoWindow":  {0, func(*v1alpha1.KubernetesExecution) {}},
		"Finalized": {time.Hour, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Finalize = true }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.window = tc.window
			r := w.newReconciler(Config{})
			w.create("a", "web", nil)
			w.must(t, r, "a")
			w.edit("a", tc.edit)
			w.end("a", action.CodeOK)
			w.writes = nil
			w.must(t, r, "a")
			wantWrites(t, w, "status completed", "job patch")
			wantPhases(t, w, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseExecuting, v1alpha1.PhaseRollbackReady, v1alpha1.PhaseCompleted)
			var told []execution.ChangeAction
			for _, c := range w.changes {
				told = append(told, c.Action)
			}
			if diff := cmp.Diff([]execution.ChangeAction{execution.ChangeStarted, execution.ChangeSucceeded}, told); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func wantWrites(t *testing.T, w *fixture, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.writes); diff != "" {
		t.Error(diff)
	}
}

// wantPhases holds those that an execution a passed through.
func wantPhases(t *testing.T, w *fixture, want ...v1alpha1.Phase) {
	t.Helper()
	if diff := cmp.Diff(want, phases(w.get("a"))); diff != "" {
		t.Error(diff)
	}
}

// TestWithApproval verifies that no action starts before another user approves this plan.
func TestWithApproval(t *testing.T) {
	w := newFixture()
	w.approval = true
	r := w.newReconciler(Config{})
	w.create("a", "web", nil)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseWaitingApproval, "")
	wantPhases(t, w, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval)
	wantWrites(t, w, "status waiting_approval")
	w.edit("a", approve("alice")) // who asked
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.Approvals = append(ke.Spec.Approvals, v1alpha1.Approval{Approver: "bob", Decision: v1alpha1.Approve, PlanHash: "another"})
	})
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseWaitingApproval, "")
	w.guard = errors.New("the policies are missing")
	w.edit("a", approve("carol"))
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseWaitingApproval, v1alpha1.DetailAdmissionPoliciesMissing)
	w.guard = nil
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
	if len(w.effects) != 1 {
		t.Errorf("%d Jobs were made", len(w.effects))
	}
}

// TestEnds verifies the ends of executions that do not succeed.
func TestEnds(t *testing.T) {
	cases := map[string]struct {
		reason string
		before func(w *fixture, r *reconciler)
		spec   func(*v1alpha1.KubernetesExecution)
		want   v1alpha1.Reason
		detail v1alpha1.Detail
		phase  v1alpha1.Phase
		jobs   int
	}{
		"Rejected": {
			reason: "one rejection rejects",
			before: func(w *fixture, _ *reconciler) {
				w.edit("a", func(ke *v1alpha1.KubernetesExecution) {
					ke.Spec.Approvals = []v1alpha1.Approval{{Approver: "bob", Decision: v1alpha1.Reject, PlanHash: ke.Status.Plan.Hash}}
				})
			},
			want: v1alpha1.ReasonApprovalRejected, detail: v1alpha1.Detail(v1alpha1.ReasonApprovalRejected),
		},
		"Expired": {
			reason: "nobody approves in time",
			before: func(w *fixture, _ *reconciler) { w.now = w.now.Add(time.Hour + time.Second) },
			want:   v1alpha1.ReasonApprovalTimeout, detail: v1alpha1.Detail(v1alpha1.ReasonApprovalTimeout),
		},
		"Cancelled": {
			reason: "before it began",
			before: func(w *fixture, _ *reconciler) {
				w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
			},
			want: v1alpha1.ReasonCancelled, detail: v1alpha1.Detail(v1alpha1.ReasonCancelled),
		},
		"Stale": {
			reason: "the target has changed since the plan was made",
			before: func(w *fixture, _ *reconciler) { w.targets["web"] = 4; w.edit("a", approve("bob")) },
			want:   v1alpha1.ReasonPlanStale, detail: v1alpha1.DetailTargetChanged,
		},
		"StalePolicy": {
			reason: "another policy has to decide anew",
			before: func(w *fixture, _ *reconciler) { w.policy = "p2"; w.edit("a", approve("bob")) },
			want:   v1alpha1.ReasonPlanStale, detail: v1alpha1.Detail(v1alpha1.ReasonPlanStale),
		},
		"ActionFailed": {
			reason: "the runner says so",
			before: func(w *fixture, r *reconciler) {
				w.edit("a", approve("bob"))
				_, _ = w.reconcile(r, "a")
				w.end("a", action.CodeForbidden)
			},
			want: v1alpha1.ReasonExecutionFailed, detail: v1alpha1.DetailRBACDenied, jobs: 1,
		},
		"JobDeleted": {
			reason: "what it did is not known, and is not done again",
			before: func(w *fixture, r *reconciler) {
				w.edit("a", approve("bob"))
				_, _ = w.reconcile(r, "a")
				clear(w.jobs)
			},
			want: v1alpha1.ReasonExecutionFailed, detail: v1alpha1.DetailResultUnknown, jobs: 1,
		},
		"NeverEnds": {
			reason: "the Job should have been ended by Kubernetes",
			before: func(w *fixture, r *reconciler) {
				w.edit("a", approve("bob"))
				_, _ = w.reconcile(r, "a")
				w.now = w.now.Add(time.Hour)
				w.must(t, r, "a") // stops it
			},
			want: v1alpha1.ReasonExecutionTimeout, detail: v1alpha1.DetailResultUnknown, jobs: 1,
		},
		"PostCondition": {
			reason: "required postcondition",
			spec: func(ke *v1alpha1.KubernetesExecution) {
				ke.Spec.PostConditions = []v1alpha1.Condition{{Type: "x", Rego: "x", Required: true}}
			},
			before: func(w *fixture, r *reconciler) {
				w.post = []v1alpha1.ConditionResult{{ConditionType: "x", Required: true, Evaluated: true}}
				w.edit("a", approve("bob"))
				_, _ = w.reconcile(r, "a")
				w.end("a", action.CodeOK)
			},
			phase: v1alpha1.PhaseRollbackReady, want: v1alpha1.ReasonPostConditionFailed, detail: v1alpha1.Detail(v1alpha1.ReasonPostConditionFailed), jobs: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.approval = true
			r := w.newReconciler(Config{})
			w.create("a", "web", tc.spec)
			w.must(t, r, "a")
			tc.before(w, r)
			w.must(t, r, "a")
			if tc.phase == "" {
				tc.phase = v1alpha1.PhaseFailed
			}
			wantPhase(t, w, "a", tc.phase, tc.detail)
			s := w.get("a").Status
			if s.Reason != tc.want || s.Message == "" || s.Outcome != v1alpha1.OutcomeFailed || len(w.effects) != tc.jobs {
				t.Errorf("%s: reason %s, outcome %s, %d Jobs: %s", tc.reason, s.Reason, s.Outcome, len(w.effects), s.Message)
			}
			before := len(w.writes)
			w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Approvals = nil; ke.Spec.ApprovalReceived = true })
			for range 3 {
				w.must(t, r, "a")
			}
			if tc.phase == v1alpha1.PhaseFailed && slices.ContainsFunc(w.writes[before:], func(s string) bool { return s != "job patch" }) {
				t.Errorf("%s: what has ended was written to: %v", tc.reason, w.writes[before:])
			}
		})
	}
}

// TestOneAtATime verifies that executions on one target run one after another in order of arrival,
// and report that they wait.
func TestOneAtATime(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	w.create("a", "web", nil)
	w.create("b", "web", nil)
	w.must(t, r, "a")
	w.must(t, r, "b")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
	wantPhase(t, w, "b", v1alpha1.PhaseValidated, v1alpha1.DetailTargetBusy)
	if c := findCondition(&w.get("b").Status, v1alpha1.ConditionQueued); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "TargetBusy" {
		t.Errorf("it is not seen that b waits: %+v", c)
	}
	if got := r.slots.gate.Stats(); got.Inside != 1 || got.Waiting != 1 {
		t.Errorf("%d are inside and %d wait, so nobody wakes b", got.Inside, got.Waiting)
	}
	w.end("a", action.CodeOK)
	w.must(t, r, "a")
	w.must(t, r, "b")
	wantPhase(t, w, "b", v1alpha1.PhaseExecuting, "")
	// The target was changed by a meanwhile: what runs is a plan for what it is now.
	if got := w.effects[1].plan.Hash; got != w.plan(t.Context(), w.get("b")).Hash {
		t.Errorf("b runs the plan %s", got)
	}
}

// TestCrashes verifies that an execution has the same end and one Job if the operator is killed
// before or after any write.
func TestCrashes(t *testing.T) {
	run := func(t *testing.T, at int, before bool) (w *fixture, writes int) {
		t.Helper()
		w = newFixture()
		w.approval = true
		count := 0
		w.fault = func(_ string, b bool) error {
			if b == before {
				count++
				if count == at {
					return errCrash
				}
			}
			return nil
		}
		r := w.newReconciler(Config{Audited: true})
		a := &auditReconciler{executions: storedExecutions{w}, auditor: recorder{}, log: r.log, now: r.now}
		step := func() {
			for range 20 {
				_, err := w.reconcile(r, "a")
				if err == nil {
					_, err = a.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "a"}})
				}
				if errors.Is(err, errCrash) {
					r = w.newReconciler(Config{Audited: true})
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		w.create("a", "web", nil)
		step()
		w.edit("a", approve("bob"))
		step()
		wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
		w.end("a", action.CodeOK)
		step()
		w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Finalize = true })
		step()
		return w, count
	}
	want, writes := run(t, -1, true)
	for at := range writes + 1 {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d-%t", at, before), func(t *testing.T) {
				w, _ := run(t, at, before)
				wantSame(t, want, w)
			})
		}
	}
}

// wantSame checks that an execution ended as another one did whose operator lived.
func wantSame(t *testing.T, want, w *fixture) {
	t.Helper()
	if diff := cmp.Diff(phases(want.get("a")), phases(w.get("a"))); diff != "" {
		t.Error(diff)
	}
	if len(w.effects) != 1 || len(w.jobs) != 1 {
		t.Errorf("%d Jobs were made", len(w.effects))
	}
	if a := w.get("a").Status.Approval; a.State != v1alpha1.ApprovalApproved || len(a.CountedDecisions) != 1 {
		t.Errorf("it was done, and its approval is %+v", a)
	}
	if !isAuditRecorded(w.get("a")) || len(w.get("a").Finalizers) > 0 {
		t.Errorf("recorded: %t, with the finalizers %q", isAuditRecorded(w.get("a")), w.get("a").Finalizers)
	}
	if s := w.get("a").Status; s.Outcome != v1alpha1.OutcomeSucceeded || !s.ExecutionResults.Success {
		t.Errorf("it ended as %s: %s", s.Outcome, s.Message)
	}
	for _, j := range w.jobs {
		if j.Spec.TTLSecondsAfterFinished == nil {
			t.Error("its Job stays for ever")
		}
	}
}

// A recorder has recorded an execution that has ended.
type recorder struct{}

// Sync says so.
func (recorder) Sync(_ context.Context, ke *v1alpha1.KubernetesExecution) (bool, error) {
	return execution.IsFinal(ke.Status.Phase), nil
}

// RecordDeletion does as well.
func (recorder) RecordDeletion(context.Context, *v1alpha1.KubernetesExecution, time.Time, bool) error {
	return nil
}

// TestCancelledUnseen verifies that a cancel stops a Job that was created just before its operator
// was killed.
func TestCancelledUnseen(t *testing.T) {
	w := newFixture()
	w.fault = func(what string, before bool) error {
		if what == "job" && !before {
			return errCrash
		}
		return nil
	}
	w.create("a", "web", nil)
	if _, err := w.reconcile(w.newReconciler(Config{}), "a"); !errors.Is(err, errCrash) {
		t.Logf("it was killed with %v", err)
	}
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
	r := w.newReconciler(Config{})
	for range 3 {
		w.must(t, r, "a")
	}
	j := w.jobs[actionJobName(w.get("a"))]
	if j == nil || j.Spec.Suspend == nil || !*j.Spec.Suspend {
		t.Error("its Job runs on")
	}
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.Detail(v1alpha1.ReasonCancelled))
	if !slices.Contains(phases(w.get("a")), v1alpha1.PhaseExecuting) {
		t.Errorf("it was executing, and went through %v", phases(w.get("a")))
	}
}
