package wake

import (
	"context"
	"errors"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// Where a Job never had a Pod, its own status is all there is to watch.
func TestJob(t *testing.T) {
	t.Parallel()
	each(t, map[string]func(w fixture){
		"deadline": func(w fixture) {
			w.breaks(w.executes(w.own(), nil), batchv1.JobReasonDeadlineExceeded)
			w.AwaitFailure(w.own(), v1alpha1.ReasonExecutionTimeout, v1alpha1.DetailExecutorUnavailable)
		},
		"backoff": func(w fixture) {
			w.breaks(w.executes(w.own(), nil), batchv1.JobReasonBackoffLimitExceeded)
			w.AwaitFailure(w.own(), v1alpha1.ReasonExecutionFailed, v1alpha1.DetailResultUnknown)
		},
		"complete": func(w fixture) { // its Pod was gone before anybody saw it
			j := w.executes(w.own(), nil)
			now := metav1.Now()
			w.status(j, func() {
				j.Status.StartTime, j.Status.CompletionTime, j.Status.Succeeded, j.Status.CompletedIndexes = &now, &now, 1, "0"
				j.Status.Conditions = []batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet, ""), condition(batchv1.JobComplete, "")}
			})
			w.AwaitPhase(w.own(), v1alpha1.PhaseRollbackReady)
		},
	})
}

// breaks has a Job fail that never had a Pod, as its controller does.
func (w fixture) breaks(j *batchv1.Job, reason string) {
	w.Helper()
	now := metav1.Now()
	for _, t := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
		w.status(j, func() {
			j.Status.StartTime = &now
			j.Status.Conditions = append(j.Status.Conditions, condition(t, reason))
		})
	}
}

// suspends waits until the controller suspends a Job, and reports it as the Job controller does.
func (w fixture) suspends(j *batchv1.Job) {
	w.Helper()
	kubebedtest.Eventually(w, func(context.Context) error {
		for _, now := range w.ListExecutionJobs(w.own()) { //nolint:contextcheck // it has that of the test
			if now.UID == j.UID && now.Spec.Suspend != nil && *now.Spec.Suspend {
				*j = now
				return nil
			}
		}
		return errors.New("the Job is not suspended")
	})
	w.status(j, func() { j.Status.Conditions = []batchv1.JobCondition{condition(batchv1.JobSuspended, "JobSuspended")} })
}

func condition(t batchv1.JobConditionType, reason string) batchv1.JobCondition {
	return batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now()}
}

// What a container leaves behind is seen before its Job counts it.
func TestPod(t *testing.T) {
	t.Parallel()
	each(t, map[string]func(w fixture){
		"done": func(w fixture) {
			j := w.executes(w.own(), nil)
			w.ends(w.runs(j), action.Result{Code: action.CodeOK, Changed: true, Count: 1})
			ke := w.AwaitPhase(w.own(), v1alpha1.PhaseRollbackReady)
			if r := ke.Status.ExecutionResults; !r.Success || r.ResourcesAffectedCount != 1 {
				w.Errorf("results %+v, want those of the Pod", r)
			}
			w.silent(j)
		},
		"refused": func(w fixture) {
			j := w.executes(w.own(), nil)
			w.ends(w.runs(j), action.Result{Code: action.CodeForbidden, Message: "it may not"})
			w.AwaitFailure(w.own(), v1alpha1.ReasonExecutionFailed, v1alpha1.DetailRBACDenied)
			w.silent(j)
		},
	})
}

// silent holds that a Job said nothing.
func (w fixture) silent(j *batchv1.Job) {
	w.Helper()
	for _, now := range w.ListExecutionJobs(w.own()) {
		if s := now.Status; now.UID != j.UID || s.Active+s.Failed+s.Succeeded != 0 || len(s.Conditions) > 0 {
			w.Errorf("Job %s says %+v: it may be that which was seen", now.Name, s)
		}
	}
}
