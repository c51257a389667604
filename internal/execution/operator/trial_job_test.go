package operator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// trials are checks that have each plan be tried out in a Job, and go by what
// that found.
type trials struct {
	checks

	given []*action.Result // of each check, what it was told of a trial
}

func (c *trials) Check(ctx context.Context, ke *v1alpha1.KubernetesExecution, dry *action.Result, now time.Time) (check.Outcome, error) {
	c.given = append(c.given, dry)
	out, err := c.checks.Check(ctx, ke, dry, now)
	switch {
	case dry == nil:
		out.NeedDryRunJob, out.Decision = true, execution.Decision{}
	case dry.DryRun != nil && dry.PlanHash != out.Plan.Hash:
		out.Failed = &execution.Failure{Reason: v1alpha1.ReasonDryRunFailed, Detail: v1alpha1.DetailTargetChanged, Message: "the target was changed while it was tried out"}
	case dry.Code != action.CodeOK:
		out.Failed = &execution.Failure{Reason: v1alpha1.ReasonDryRunFailed, Message: dry.Message}
	}
	if dry != nil {
		out.Results.DryRunResults = dry.DryRun
	}
	return out, err
}

// trial is the Job in which execution a is tried out.
func (w *fixture) trial(t *testing.T) *batchv1.Job {
	t.Helper()
	j := w.jobs[job.Name(w.get("a").UID, v1alpha1.PurposeDryRun, 1)]
	if j == nil {
		t.Fatal("it is not tried out in a Job")
	}
	return j
}

// trying has the Pod of a trial be in a state.
func (w *fixture) trying(j *batchv1.Job, phase corev1.PodPhase, state corev1.ContainerState) {
	w.pods[j.UID] = []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Name: j.Name + "-0", Namespace: namespace, CreationTimestamp: j.CreationTimestamp},
		Status:     corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: job.Container, State: state}}},
	}}
}

// found has a trial end.
func (w *fixture) found(t *testing.T, j *batchv1.Job, code action.Code) {
	t.Helper()
	p, err := decodeJobPlan(j)
	if err != nil {
		t.Fatal(err)
	}
	result := action.Result{
		Version: 1, Code: code, Attempt: 1, PlanHash: p.Hash, Started: w.now, Ended: w.now,
		DryRun: &v1alpha1.DryRunResults{Performed: true, Success: code == action.CodeOK, Warnings: []string{"careful"}},
	}
	phase, kind := corev1.PodSucceeded, batchv1.JobComplete
	if code != action.CodeOK {
		result.Message, phase, kind = "five are too many", corev1.PodFailed, batchv1.JobFailed
	}
	w.trying(j, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Message: action.EncodeBounded(result), StartedAt: metav1.NewTime(w.now), FinishedAt: metav1.NewTime(w.now), ContainerID: "x",
	}})
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue})
}

// wantJobs checks for which purposes Jobs were made, and that those of a trial
// do nothing but try.
func wantJobs(t *testing.T, w *fixture, want ...string) {
	t.Helper()
	var got []string
	for _, j := range w.jobs {
		purpose := j.Labels[v1alpha1.LabelPurpose]
		got = append(got, purpose)
		arguments := j.Spec.Template.Spec.Containers[0].Args
		if tries := slices.Contains(arguments, job.DryRunArgument); tries != (purpose == v1alpha1.PurposeDryRun) {
			t.Errorf("a Job for %s has the arguments %q", purpose, arguments)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("there are Jobs for %q, want %q", got, want)
	}
}

// TestTriedOutInAJob verifies that a plan is first tried in a separate dry-run Job, and executed
// only after the next check receives the result.
func TestTriedOutInAJob(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		dies   string // the write after which the operator dies
		mode   v1alpha1.DryRunMode
		want   v1alpha1.Phase
		jobs   []string
	}{
		"Always": {
			reason: "it succeeds", mode: v1alpha1.DryRunAlways,
			want: v1alpha1.PhaseExecuting, jobs: []string{v1alpha1.PurposeDryRun, v1alpha1.PurposeExecute},
		},
		"Only": {
			reason: "nothing else is asked for", mode: v1alpha1.DryRunOnly,
			want: v1alpha1.PhaseCompleted, jobs: []string{v1alpha1.PurposeDryRun},
		},
		"Killed": {
			reason: "the next operator finds the Job of the one before", mode: v1alpha1.DryRunAlways, dies: "job",
			want: v1alpha1.PhaseExecuting, jobs: []string{v1alpha1.PurposeDryRun, v1alpha1.PurposeExecute},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			c := &trials{checks: checks{w}}
			r := w.newReconciler(Config{})
			r.validation.check.checker = c
			w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.DryRunMode = tc.mode })
			if tc.dies != "" {
				w.once(tc.dies, false, func() error { panic(errCrash) })
				func() {
					defer func() { _ = recover() }()
					w.must(t, r, "a")
				}()
				r = w.newReconciler(Config{})
				r.validation.check.checker = c
			}
			for range 3 {
				w.must(t, r, "a")
			}
			wantPhase(t, w, "a", v1alpha1.PhaseValidating, "")
			wantJobs(t, w, v1alpha1.PurposeDryRun)
			if len(c.given) != 1 {
				t.Errorf("%s: it was checked %d times while it was tried out", tc.reason, len(c.given))
			}
			j := w.trial(t)
			w.found(t, j, action.CodeOK)
			w.must(t, r, "a")
			if got := w.get("a").Status.Phase; got != tc.want {
				t.Errorf("%s: it is %s: %s", tc.reason, got, w.get("a").Status.Message)
			}
			wantJobs(t, w, tc.jobs...)
			last := c.given[len(c.given)-1]
			if p, err := decodeJobPlan(j); len(c.given) != 2 || last == nil || err != nil || last.PlanHash != p.Hash || !last.DryRun.Success {
				t.Errorf("the checks were told of %+v", last)
			}
			if d := w.get("a").Status.ValidationResults.DryRunResults; d == nil || !slices.Equal(d.Warnings, []string{"careful"}) {
				t.Errorf("what it found is %+v", d)
			}
			if ttl := j.Spec.TTLSecondsAfterFinished; ttl == nil || *ttl != 300 {
				t.Error("its Job stays for ever")
			}
			if got := testutil.ToFloat64(r.metrics.dryRuns.WithLabelValues("success", "scale_deployment")); got != 1 {
				t.Errorf("it was counted %v times", got)
			}
		})
	}
}

// TestTrialEnds verifies that executions whose dry run fails end in time and without changes.
func TestTrialEnds(t *testing.T) {
	begins := func(t *testing.T, w *fixture) {
		t.Helper()
		w.trying(w.trial(t), corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now)}})
	}
	for name, tc := range map[string]struct {
		reason  string
		before  func(t *testing.T, w *fixture)
		wait    time.Duration // after which it has not ended yet, and is looked at again
		then    func(t *testing.T, w *fixture)
		detail  v1alpha1.Detail
		says    string
		stopped bool // the Job, and not by itself
	}{
		"NeverStarts": {
			reason: "there is no node for it", wait: 30 * time.Second,
			detail: v1alpha1.DetailExecutorUnavailable, says: "did not start", stopped: true,
		},
		"NeverEnds": {
			reason: "its time is counted from when it starts", wait: 50 * time.Second,
			before: func(t *testing.T, w *fixture) { t.Helper(); w.now = w.now.Add(20 * time.Second); begins(t, w) },
			detail: v1alpha1.Detail(v1alpha1.ReasonDryRunFailed), says: "did not finish", stopped: true,
		},
		"Refused": {
			reason: "rejected by the API server",
			then:   func(t *testing.T, w *fixture) { t.Helper(); w.found(t, w.trial(t), action.CodeInvalid) },
			detail: v1alpha1.Detail(v1alpha1.ReasonDryRunFailed), says: "five are too many",
		},
		"Changed": {
			reason: "what was tried out is not what would be done",
			then: func(t *testing.T, w *fixture) {
				t.Helper()
				w.targets["web"] = 4
				w.found(t, w.trial(t), action.CodeOK)
			},
			detail: v1alpha1.DetailTargetChanged, says: "changed",
		},
		"NoPod": {
			reason: "a quota forbids its Pod",
			then: func(t *testing.T, w *fixture) {
				t.Helper()
				j := w.trial(t)
				j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded})
			},
			detail: v1alpha1.DetailExecutorUnavailable, says: "no Pod could be created", stopped: true,
		},
		"Silent": {
			reason: "it left no word of what it found",
			then: func(t *testing.T, w *fixture) {
				t.Helper()
				j := w.trial(t)
				j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue})
			},
			detail: v1alpha1.DetailResultUnknown, says: "without a readable result", stopped: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r := w.newReconciler(Config{})
			r.validation.check.checker = &trials{checks: checks{w}}
			w.create("a", "web", nil)
			begun := w.now
			w.must(t, r, "a")
			if tc.before != nil {
				tc.before(t, w)
			}
			if tc.wait > 0 {
				w.now = begun.Add(tc.wait - time.Second)
				if res, err := w.reconcile(r, "a"); err != nil || res.RequeueAfter != time.Second {
					t.Errorf("%s: it is looked at again after %s: %v", tc.reason, res.RequeueAfter, err)
				}
				w.now = w.now.Add(time.Second)
			}
			wantPhase(t, w, "a", v1alpha1.PhaseValidating, "")
			if tc.then != nil {
				tc.then(t, w)
			}
			w.must(t, r, "a")
			wantPhase(t, w, "a", v1alpha1.PhaseFailed, tc.detail)
			if s := w.get("a").Status; s.Reason != v1alpha1.ReasonDryRunFailed || !strings.Contains(s.Message, tc.says) {
				t.Errorf("%s: it failed by %s: %s", tc.reason, s.Reason, s.Message)
			}
			j := w.trial(t)
			if suspended := j.Spec.Suspend != nil && *j.Spec.Suspend; suspended != tc.stopped || j.Spec.TTLSecondsAfterFinished == nil {
				t.Errorf("%s: its Job is suspended: %t; it goes after %v", tc.reason, suspended, j.Spec.TTLSecondsAfterFinished)
			}
			wantJobs(t, w, v1alpha1.PurposeDryRun)
		})
	}
}

// TestTrialCannotBegin verifies that a dry run whose Job cannot be created is retried visibly and
// given up after a timeout.
func TestTrialCannotBegin(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	r.validation.check.checker = &trials{checks: checks{w}}
	w.fault = func(what string, before bool) error {
		if what == "job" && before {
			return errors.New("exceeded quota")
		}
		return nil
	}
	w.create("a", "web", nil)
	for range 3 {
		w.must(t, r, "a")
	}
	wantPhase(t, w, "a", v1alpha1.PhaseValidating, v1alpha1.DetailExecutorUnavailable)
	wantWrites(t, w, "status validating")
	w.now = w.now.Add(r.cfg.CheckTimeout)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailExecutorUnavailable)
	if s := w.get("a").Status; !strings.Contains(s.Message, "exceeded quota") {
		t.Errorf("it says %q", s.Message)
	}
	wantJobs(t, w)
}

// TestTrialCancelled verifies that no step follows a cancelled dry run, and that a running one is
// deleted.
func TestTrialCancelled(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		trial  func(t *testing.T, w *fixture)
		dies   string // the write after which the operator dies
		kept   bool   // the Job, for a while
	}{
		"Ended":    {reason: "it may be looked at", trial: func(t *testing.T, w *fixture) { t.Helper(); w.found(t, w.trial(t), action.CodeOK) }, kept: true},
		"NotBegun": {reason: "it need not begin", trial: func(t *testing.T, _ *fixture) { t.Helper() }},
		"Runs": {reason: "it need not go on", trial: func(t *testing.T, w *fixture) {
			t.Helper()
			w.trying(w.trial(t), corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now)}})
		}},
		"Killed": {reason: "the next operator ends it", trial: func(t *testing.T, _ *fixture) { t.Helper() }, dies: "status failed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r := w.newReconciler(Config{})
			r.validation.check.checker = &trials{checks: checks{w}}
			w.create("a", "web", nil)
			w.must(t, r, "a")
			tc.trial(t, w)
			w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
			if tc.dies != "" {
				w.once(tc.dies, false, func() error { panic(errCrash) })
				func() {
					defer func() { _ = recover() }()
					w.must(t, r, "a")
				}()
				r = w.newReconciler(Config{})
			}
			for range 2 {
				w.must(t, r, "a")
			}
			wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.Detail(v1alpha1.ReasonCancelled))
			wantPhases(t, w, v1alpha1.PhaseValidating, v1alpha1.PhaseFailed)
			if !tc.kept {
				wantJobs(t, w)
				return
			}
			wantJobs(t, w, v1alpha1.PurposeDryRun)
			if w.trial(t).Spec.TTLSecondsAfterFinished == nil {
				t.Errorf("%s: its Job stays for ever", tc.reason)
			}
		})
	}
}
