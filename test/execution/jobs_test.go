package execution

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

const alice = fleettest.Requester

// ask has a Deployment of its own name scaled from 3 to 5 replicas.
func ask(f *fleettest.Fleet, name string, more ...string) {
	f.Helper()
	f.CreateDeploymentAndAwaitObserved(f.Cheap, name, 3)
	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Cheap, name, 5, append(more, "--name="+name)...))
}

// runs waits until the Pod of an execution runs.
func runs(f *fleettest.Fleet, name string) {
	f.Helper()
	f.Until(func() error {
		for _, p := range f.ListExecutionPods(name) {
			if p.Status.Phase == "Running" {
				return nil
			}
		}
		return fmt.Errorf("no Pod of %s runs", name)
	})
}

// An attempt that may do better is tried again, and counted.
func TestRetry(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{Image: fleettest.Flaky})
	ask(f, "web", "--retries=2")
	ke := f.AwaitPhase("web", v1alpha1.PhaseRollbackReady)
	if r := ke.Status.ExecutionResults; !r.Success || r.RetriesAttempted != 1 {
		t.Errorf("results %+v, want a success at the second attempt", r)
	}
	f.WantReplicas(f.Cheap, "web", 5)
	if n := len(f.ListExecutionJobs("web")); n != 1 {
		t.Errorf("%d Jobs, want one that tries again by itself", n)
	}
}

func TestRetriesAreExhausted(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{Image: fleettest.Failing})
	ask(f, "web", "--retries=1")
	f.AwaitPhase("web", v1alpha1.PhaseExecuting)
	ke := f.AwaitFailure("web", v1alpha1.ReasonExecutionFailed, "")
	if r := ke.Status.ExecutionResults; r.Success || r.RetriesAttempted != 1 || r.EndTime == nil {
		t.Errorf("results %+v, want a failure after one more attempt", r)
	}
	if n := len(f.ListExecutionPods("web")); n != 2 {
		t.Errorf("%d Pods, want 2", n)
	}
	f.WantReplicas(f.Cheap, "web", 3)
	f.AwaitEvent("web", "ExecutionFailed", "Warning")
	if job := f.ListExecutionJobs("web")[0]; job.Spec.BackoffLimit == nil || *job.Spec.BackoffLimit != 1 {
		t.Errorf("the Job tries again %v times, want once", job.Spec.BackoffLimit)
	}
}

// What does not end is ended, whatever it does when it is told to.
func TestDeadline(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{Image: fleettest.Endless})
	ask(f, "web", "--retries=0", "--action-timeout=6s")
	runs(f, "web")
	if job := f.ListExecutionJobs("web")[0]; *job.Spec.ActiveDeadlineSeconds != 6 {
		t.Errorf("the Job has %d s, want 6", *job.Spec.ActiveDeadlineSeconds)
	}
	f.AwaitFailure("web", v1alpha1.ReasonExecutionTimeout, "")
	f.WantReplicas(f.Cheap, "web", 3)
}

func TestImageNeverStarts(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{Image: fleettest.Missing})
	ask(f, "web", "--action-timeout=6s")
	ke := f.AwaitPhase("web", v1alpha1.PhaseFailed)
	if ke.Status.ReasonDetail != v1alpha1.DetailExecutorUnavailable {
		t.Errorf("it failed because of %s %s, want that nothing could be started: %s", ke.Status.Reason, ke.Status.ReasonDetail, ke.Status.Message)
	}
	f.WantReplicas(f.Cheap, "web", 3)
}

// A Job that is deleted by hand may have done its work: nobody knows, and it is
// not run again.
func TestJobDeleted(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{Image: fleettest.Gated})
	ask(f, "web")
	runs(f, "web")
	background := client.PropagationPolicy("Background")
	if err := f.Client.Delete(t.Context(), &f.ListExecutionJobs("web")[0], background); err != nil {
		t.Fatal(err)
	}
	ke := f.AwaitFailure("web", v1alpha1.ReasonExecutionFailed, "")
	t.Logf("%s: %s", ke.Status.ReasonDetail, ke.Status.Message)
	if n := len(f.ListExecutionJobs("web")); n != 0 {
		t.Errorf("%d Jobs, want no other one", n)
	}
}

// Gates are what needs an action that is under way for as long as the test wants.
func TestGated(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{Image: fleettest.Gated})
	for name, test := range map[string]func(*fleettest.Fleet){"queue": queue, "cancel": cancelRunning, "cascade": cascade, "notouch": noTouch} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(f.For(t))
		})
	}
}

// queue has three executions at one target take turns, in their order.
func queue(f *fleettest.Fleet) {
	ask(f, "q1")
	runs(f, "q1")
	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Cheap, "q1", 6, "--name=q2"))
	f.AwaitExecution("q2", func(ke *v1alpha1.KubernetesExecution) error {
		if ke.Status.ReasonDetail != v1alpha1.DetailTargetBusy {
			return fmt.Errorf("it is %s because of %q", ke.Status.Phase, ke.Status.ReasonDetail)
		}
		return nil
	})
	f.WantCommand(alice, cli.CodeOK, []string{"exec", "describe", "q2"}, "Another execution is running on the same target")
	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Cheap, "q1", 7, "--name=q3"))
	f.AwaitExecution("q3", func(ke *v1alpha1.KubernetesExecution) error {
		if ke.Status.ReasonDetail != v1alpha1.DetailTargetBusy {
			return fmt.Errorf("it is %s because of %q", ke.Status.Phase, ke.Status.ReasonDetail)
		}
		return nil
	})
	if n := len(f.ListExecutionJobs("q2")) + len(f.ListExecutionJobs("q3")); n != 0 {
		f.Errorf("%d Jobs for those that wait, want none", n)
	}
	f.Open("q1")
	f.AwaitPhase("q1", v1alpha1.PhaseRollbackReady)
	runs(f, "q2")
	if phase := f.GetExecution("q3").Status.Phase; phase == v1alpha1.PhaseExecuting {
		f.Error("two are at one target")
	}
	f.Open("q2")
	f.AwaitPhase("q2", v1alpha1.PhaseRollbackReady)
	runs(f, "q3")
	f.Open("q3")
	ke := f.AwaitPhase("q3", v1alpha1.PhaseRollbackReady)
	f.WantReplicas(f.Cheap, "q1", 7)
	// Its plan was made anew when its turn came.
	if back := string(ke.Status.RollbackInformation.RollbackParameters.Raw); !strings.Contains(back, `"replicas":6`) {
		f.Errorf("the way back is %s, want to what the one before it left", back)
	}
}

func cancelRunning(f *fleettest.Fleet) {
	ask(f, "c1")
	runs(f, "c1")
	f.WantCommand(fleettest.Approver, cli.CodeOK, []string{"exec", "cancel", "c1"})
	f.AwaitFailure("c1", v1alpha1.ReasonCancelled, "")
	f.WantReplicas(f.Cheap, "c1", 3)
}

// cascade deletes an execution under way, and with it what it owns.
func cascade(f *fleettest.Fleet) {
	ask(f, "d1")
	runs(f, "d1")
	if err := f.Client.Delete(f.Context(), f.GetExecution("d1")); err != nil {
		f.Fatal(err)
	}
	f.Until(func() error {
		var list v1alpha1.KubernetesExecutionList
		if err := f.Client.List(f.Context(), &list, client.InNamespace(f.Namespace)); err != nil {
			return err
		}
		for _, ke := range list.Items {
			if ke.Name == "d1" {
				return fmt.Errorf("the execution is there: %v", ke.Finalizers)
			}
		}
		if n := len(f.ListExecutionJobs("d1")) + len(f.ListExecutionPods("d1")); n > 0 {
			return fmt.Errorf("%d Jobs and Pods are left", n)
		}
		return nil
	})
	f.WantReplicas(f.Cheap, "d1", 3)
}

// noTouch leaves Jobs alone that only look like those of an execution.
func noTouch(f *fleettest.Fleet) {
	ask(f, "n1")
	runs(f, "n1")
	its := f.ListExecutionJobs("n1")[0]
	forged := &batchv1.Job{Spec: *its.Spec.DeepCopy()}
	forged.Namespace, forged.Name, forged.Labels = f.Namespace, "forged", its.Labels
	forged.Spec.Selector, forged.Spec.Template.Labels, forged.Spec.Suspend = nil, map[string]string{"job": "forged"}, new(true)
	if err := f.Client.Create(f.Context(), forged); err != nil {
		f.Fatal(err)
	}
	if err := f.Client.Delete(f.Context(), forged, client.PropagationPolicy("Background")); err != nil {
		f.Fatal(err)
	}
	f.Open("n1")
	f.AwaitPhase("n1", v1alpha1.PhaseRollbackReady)
}

func TestEmergencyStop(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{Image: fleettest.Gated})
	ask(f, "before")
	runs(f, "before")
	f.WantCommand(alice, cli.CodeFailed, []string{"exec", "stop", "--reason=fire"}, "forbidden")
	f.WantCommand(fleettest.Admin, cli.CodeOK, []string{"exec", "stop", "--reason=fire"})
	f.Until(func() error { return f.Controller().CheckLogged("emergency stop active") })
	ask(f, "during")
	f.AwaitExecution("during", func(ke *v1alpha1.KubernetesExecution) error {
		if ke.Status.ReasonDetail != v1alpha1.DetailEmergencyStop || !strings.Contains(ke.Status.Message, "fire (set by ") {
			return fmt.Errorf("it is %s because of %q: %s", ke.Status.Phase, ke.Status.ReasonDetail, ke.Status.Message)
		}
		return nil
	})
	if n := len(f.ListExecutionJobs("during")); n != 0 {
		t.Errorf("%d Jobs were made, want none", n)
	}
	f.Open("before") // what is under way goes on
	f.AwaitPhase("before", v1alpha1.PhaseRollbackReady)
	f.WantCommand(fleettest.Admin, cli.CodeOK, []string{"exec", "end-stop"})
	runs(f, "during")
	f.WantCommand(fleettest.Admin, cli.CodeOK, []string{"exec", "stop", "--reason=flood", "--cancel-running"})
	f.AwaitFailure("during", v1alpha1.ReasonCancelled, "")
	f.WantReplicas(f.Cheap, "during", 3)
}

// A controller that dies while an action is under way, or before it has seen
// its result, goes on where the other was: nothing is done twice.
func TestControllerIsKilled(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{Image: fleettest.Gated})
	f.CreateDeploymentAndAwaitObserved(f.Dear, "waits", 3)
	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Dear, "waits", 5, "--name=waits"))
	waiting := f.AwaitPhase("waits", v1alpha1.PhaseWaitingApproval)
	ask(f, "web")
	runs(f, "web")
	f.Controller().Kill()
	f.Open("web")
	f.Until(func() error {
		if jobs := f.ListExecutionJobs("web"); len(jobs) != 1 || jobs[0].Status.Succeeded != 1 {
			return errors.New("the Job has not ended")
		}
		return nil
	})
	if phase := f.GetExecution("web").Status.Phase; phase != v1alpha1.PhaseExecuting {
		t.Errorf("the execution is %s although nobody was there", phase)
	}
	f.StartController()
	ke := f.AwaitPhase("web", v1alpha1.PhaseRollbackReady)
	if got, want := fleettest.JoinPhaseHistory(ke), "validating validated executing rollback_ready"; got != want {
		t.Errorf("phases %q, want %q", got, want)
	}
	if back := string(ke.Status.RollbackInformation.RollbackParameters.Raw); !strings.Contains(back, `"replicas":3`) || !strings.Contains(ke.Status.ExecutionResults.PodLogs, "scaled") {
		t.Errorf("the way back is %s of %+v", back, ke.Status.ExecutionResults)
	}
	if n := len(f.ListExecutionJobs("web")); n != 1 {
		t.Errorf("%d Jobs, want one", n)
	}
	f.WantReplicas(f.Cheap, "web", 5)
	if now := f.GetExecution("waits"); now.Status.Plan.Hash != waiting.Status.Plan.Hash || !now.Status.Approval.Deadline.Equal(waiting.Status.Approval.Deadline) {
		t.Errorf("what waits has another plan or another deadline: %+v", now.Status.Approval)
	}
	f.WantCommand(fleettest.Approver, cli.CodeOK, []string{"approve", "waits", "--yes"})
	f.Open("waits")
	f.AwaitPhase("waits", v1alpha1.PhaseRollbackReady)
	if code := f.Controller().Stop(); code != 0 {
		t.Errorf("the controller ended with code %d, want 0", code)
	}
}

// One execution that takes its time does not keep others.
func TestNobodyWaitsForOthers(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{})
	f.CreateDeploymentAndAwaitObserved(f.Dear, "slow", 3)
	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Dear, "slow", 5, "--name=slow"))
	f.AwaitPhase("slow", v1alpha1.PhaseWaitingApproval)
	begin := time.Now()
	for n := range 5 {
		ask(f, fmt.Sprintf("fast-%d", n))
	}
	for n := range 5 {
		f.AwaitPhase(fmt.Sprintf("fast-%d", n), v1alpha1.PhaseRollbackReady)
	}
	t.Logf("five executions took %s", time.Since(begin))
	if phase := f.GetExecution("slow").Status.Phase; phase != v1alpha1.PhaseWaitingApproval {
		t.Errorf("what waits is %s", phase)
	}
}
