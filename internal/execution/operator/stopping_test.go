package operator

import (
	"errors"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// newExecuting returns a fixture with an execution whose Job was created. Nothing reports the Job as suspended.
func newExecuting() (*fixture, *reconciler) {
	w := newFixture()
	w.noJobController = true
	r := w.newReconciler(Config{})
	w.create("a", "web", nil)
	w.look(r)
	return w, r
}

// addPendingPod adds a Pod to the Job of an execution. The cache does not have it.
func addPendingPod(w *fixture, r *reconciler, j *batchv1.Job) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: j.Name + "-1"}}
	pod.Status.Phase = corev1.PodPending
	w.pods[j.UID] = []corev1.Pod{pod}
	r.runs.jobs = podless{storedJobs{w}}
}

// TestCancelledWhileItsPodStarts verifies that a cancelled execution ends only once the Job controller reports its Job as
// suspended and no Pod of it can run. Before, neither the counts of the Job nor the cache have a Pod that was just created.
func TestCancelledWhileItsPodStarts(t *testing.T) {
	w, r := newExecuting()
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
	for range 3 {
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
	}

	j := w.jobs[actionJobName(w.get("a"))]
	addPendingPod(w, r, j)
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")

	delete(w.pods, j.UID)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.Detail(v1alpha1.ReasonCancelled))
}

// TestOverduePodIsStopped verifies that the Pod of an overdue Job is stopped without the Job controller, and that the
// execution keeps its target busy while the Pod may still run.
func TestOverduePodIsStopped(t *testing.T) {
	w, r := newExecuting()
	j := w.jobs[actionJobName(w.get("a"))]
	addPendingPod(w, r, j)

	w.now = w.now.Add(time.Hour)
	j.CreationTimestamp = metav1.NewTime(w.now.Add(-jobTimeout(j) - jobOverdueAfter))
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
	if deadline := w.pods[j.UID][0].Spec.ActiveDeadlineSeconds; deadline == nil || *deadline != 1 {
		t.Errorf("the Pod has the deadline %v, want one that has passed", deadline)
	}
	w.now = w.now.Add(overdueStopGrace)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailResultUnknown)
}

// TestOverduePodReports verifies that an overdue run whose Pod ends when it is stopped has failed because of its timeout:
// its runner only knows that it was cancelled.
func TestOverduePodReports(t *testing.T) {
	w, r := newExecuting()
	j := w.jobs[actionJobName(w.get("a"))]
	j.CreationTimestamp = metav1.NewTime(w.now.Add(-jobTimeout(j) - jobOverdueAfter))
	w.end("a", action.CodeCancelled)
	w.must(t, r, "a")
	if s := w.get("a").Status; s.Phase != v1alpha1.PhaseFailed || s.Reason != v1alpha1.ReasonExecutionTimeout {
		t.Errorf("it is %s because of %s, want failed because of %s", s.Phase, s.Reason, v1alpha1.ReasonExecutionTimeout)
	}
}

// TestEmergencyStopIsOver verifies that a run that an emergency stop suspended ends as cancelled, although the stop was
// lifted before the Job controller reported the suspension.
func TestEmergencyStopIsOver(t *testing.T) {
	w, r := newExecuting()
	r.halted.Store(true)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
	r.halted.Store(false)
	j := w.jobs[actionJobName(w.get("a"))]
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.Detail(v1alpha1.ReasonCancelled))
}

// TestDeletedLongBeforeTheController verifies that a Job that a killed controller started, and did not record, is
// recorded although its execution was deleted long before the next controller began.
func TestDeletedLongBeforeTheController(t *testing.T) {
	w := newFixture()
	w.fault = func(what string, before bool) error {
		if what == "status executing" && before {
			return errCrash
		}
		return nil
	}
	w.create("a", "web", nil)
	if _, err := w.reconcile(w.newReconciler(Config{Audited: true}), "a"); !errors.Is(err, errCrash) {
		t.Fatalf("it was killed with %v", err)
	}
	w.fault = func(string, bool) error { return nil }
	name := actionJobName(w.get("a"))
	if w.jobs[name] == nil {
		t.Fatal("there is no Job")
	}
	w.remove("a")
	w.now = w.now.Add(time.Hour)
	r := w.newReconciler(Config{Audited: true})
	w.look(r)
	ke := w.get("a")
	if ke == nil || ke.Status.ExecutionResults == nil || ke.Status.ExecutionResults.JobName != name {
		t.Fatalf("the run is not recorded: %+v", ke)
	}
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailResultUnknown)
}

// TestRollbackOfAnUncertainChange verifies that a failed execution keeps its rollback if its target may have changed,
// although no changed object was counted.
func TestRollbackOfAnUncertainChange(t *testing.T) {
	for name, tc := range map[string]struct {
		code action.Code
		kept bool
	}{
		"Partial":   {action.CodePartial, true},
		"Forbidden": {action.CodeForbidden, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r := w.newReconciler(Config{})
			w.create("a", "web", nil)
			w.look(r)
			w.end("a", tc.code)
			w.must(t, r, "a")
			s := w.get("a").Status
			if s.Phase != v1alpha1.PhaseFailed || (s.RollbackInformation != nil) != tc.kept {
				t.Errorf("it is %s (%s), with the rollback %v", s.Phase, s.ReasonDetail, s.RollbackInformation)
			}
		})
	}
}

// TestCancelledPodKeepsItsResult verifies that a cancelled Pod that has a node is stopped before its Job is suspended,
// because a suspension deletes the Pod with its result.
func TestCancelledPodKeepsItsResult(t *testing.T) {
	start := func() (*fixture, *reconciler, *batchv1.Job) {
		w, r := newExecuting()
		j := w.jobs[actionJobName(w.get("a"))]
		addPendingPod(w, r, j)
		w.pods[j.UID][0].Spec.NodeName = "n"
		w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
		return w, r, j
	}
	t.Run("Stopped", func(t *testing.T) {
		w, r, j := start()
		w.must(t, r, "a")
		if suspended := w.jobs[j.Name].Spec.Suspend; suspended != nil {
			t.Errorf("the Job is suspended (%t) while its Pod runs", *suspended)
		}
		w.end("a", action.CodePartial)
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailPartiallyExecuted)
	})
	t.Run("Deleted", func(t *testing.T) {
		w, r, j := start()
		suspend := true
		w.jobs[j.Name].Spec.Suspend = &suspend
		w.must(t, r, "a")
		delete(w.pods, j.UID)
		w.jobs[j.Name].Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailResultUnknown)
	})
}
