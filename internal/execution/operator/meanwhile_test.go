package operator

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
)

// replans are checks during which something happens when they are made anew.
type replans struct {
	checks

	meanwhile func(out *check.Outcome)
}

func (c replans) Replan(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (check.Outcome, error) {
	out, err := c.checks.Replan(ctx, ke, now)
	c.meanwhile(&out)
	return out, err
}

// TestMoreIsWanted verifies that a sufficient approval becomes insufficient when the policies
// require more, even for the same plan.
func TestMoreIsWanted(t *testing.T) {
	w := newFixture()
	w.approval = true
	r := w.newReconciler(Config{})
	r.validation.check.checker = replans{checks{w}, func(out *check.Outcome) {
		out.Decision.Approvals = execution.Approvals{Count: 2, Groups: []string{"leads"}}
	}}
	w.create("a", "web", nil)
	w.must(t, r, "a")
	w.edit("a", approve("bob"))
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.Detail(v1alpha1.ReasonPlanStale))
	if len(w.effects) > 0 {
		t.Error("it began with one approval, where two of others were wanted")
	}
}

// TestStoppedMeanwhile verifies that no action starts after the emergency stop is set, and that
// executions continue when it ends.
func TestStoppedMeanwhile(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	r.validation.check.checker = replans{checks{w}, func(*check.Outcome) { r.slots.gate.Stop("fire") }}
	w.create("a", "web", nil)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseValidated, v1alpha1.DetailEmergencyStop)
	if len(w.effects) > 0 {
		t.Error("it began after the emergency stop")
	}
	if s := r.slots.gate.Stats(); s.Waiting != 1 {
		t.Errorf("%d wait for its end", s.Waiting)
	}
	r.validation.check.checker = checks{w}
	r.slots.gate.Resume()
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
}

// TestDeletedBeforeItShows verifies that the result of a Job is recorded if its execution is
// deleted just after the Job was created.
func TestDeletedBeforeItShows(t *testing.T) {
	remove := func(w *fixture) {
		w.edit("a", func(ke *v1alpha1.KubernetesExecution) {
			now := metav1.NewTime(w.now)
			ke.DeletionTimestamp = &now
		})
	}
	for name, killed := range map[string]bool{"Conflict": false, "Killed": true} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r := w.newReconciler(Config{Audited: true})
			w.create("a", "web", nil)
			w.once("job", false, func() error {
				remove(w)
				if killed {
					return errCrash
				}
				return nil
			})
			_, _ = w.reconcile(r, "a")
			if killed {
				r = w.newReconciler(Config{Audited: true})
			}
			w.end("a", action.CodeOK)
			w.must(t, r, "a")
			wantPhase(t, w, "a", v1alpha1.PhaseRollbackReady, "")
			if s := w.get("a").Status; s.ExecutionResults == nil || !s.ExecutionResults.Success {
				t.Errorf("its results are %+v", s.ExecutionResults)
			}
		})
	}
	t.Run("NothingWasDone", func(t *testing.T) {
		w := newFixture()
		r := w.newReconciler(Config{Audited: true})
		w.create("a", "web", nil)
		w.once("finalizer", false, func() error {
			remove(w)
			return errCrash
		})
		_, _ = w.reconcile(r, "a")
		w.must(t, w.newReconciler(Config{Audited: true}), "a")
		wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.Detail(v1alpha1.ReasonCancelled))
	})
}

// TestStaleTellsNoSecret verifies that a message about changed containers omits their content,
// because events, logs and sinks contain it.
func TestStaleTellsNoSecret(t *testing.T) {
	before := `{"/spec/template/spec/containers":[{"env":[{"name":"PASSWORD","value":"hunter2"}],"image":"a","name":"a"}],"replicas":3}`
	now := strings.NewReplacer(`"image":"a"`, `"image":"b"`, `"replicas":3`, `"replicas":4`).Replace(before)
	plan := func(text string) *v1alpha1.Plan {
		return &v1alpha1.Plan{Before: &runtime.RawExtension{Raw: []byte(text)}}
	}
	got := stalePlanFailure(plan(before), plan(now)).Message
	if strings.Contains(got, "hunter2") || !strings.Contains(got, "replicas was 3, and is 4") || !strings.Contains(got, "containers has changed") {
		t.Error(got)
	}
}

// TestCancelledAfterAnAttempt verifies that a cancel does not report an unchanged target if an
// attempt ran whose Pod is gone.
func TestCancelledAfterAnAttempt(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	w.create("a", "web", nil)
	w.must(t, r, "a")
	w.jobs[actionJobName(w.get("a"))].Status.Failed = 1
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
	w.must(t, r, "a")
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailResultUnknown)
}

// TestPodThatDoesNotBegin verifies that the status shows why a Pod does not start after a delay,
// and clears it afterwards.
func TestPodThatDoesNotBegin(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	w.create("a", "web", nil)
	w.must(t, r, "a")
	j := w.jobs[actionJobName(w.get("a"))]
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a-1", CreationTimestamp: metav1.NewTime(w.now)}}
	pod.Spec.Containers = j.Spec.Template.Spec.Containers
	state := func(s corev1.ContainerState) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: s}}
		w.pods[j.UID] = []corev1.Pod{pod}
		w.must(t, r, "a")
	}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}
	state(waits)
	if got := w.get("a").Status.Message; got != "" {
		t.Errorf("too early: %s", got)
	}
	w.now = w.now.Add(slowStartAfter)
	state(waits)
	if got := w.get("a").Status.Message; !strings.Contains(got, "no such image") {
		t.Errorf("it says %q", got)
	}
	pod.Status.Phase = corev1.PodRunning
	state(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now)}})
	if got := w.get("a").Status.Message; got != "" {
		t.Errorf("it runs, and says %q", got)
	}
}
