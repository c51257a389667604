package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// overdueStopGrace is how long the Pods of an overdue Job may take to end after they were stopped.
const overdueStopGrace = time.Minute

// stopOverdueJob stops a Job that Kubernetes did not stop at its deadline, and its Pods, which only a running Job
// controller would stop. The Job counts as failed once its Pods have ended, or after a grace period.
func (r *running) stopOverdueJob(
	ctx context.Context, state *reconcileState, j *batchv1.Job,
) (job.Observation, error) {
	graceEnd := r.runs.rememberStop(state.ke.UID, state.now).since.Add(overdueStopGrace)
	stopErr := r.runs.suspendJob(ctx, j)
	// The Pods are read after the suspension, and live: the Job controller may have created one just before.
	pods, err := r.runs.jobs.Pods(ctx, j, true)
	if err != nil {
		return job.Observation{}, err
	}
	observed := job.Observe(j, pods, state.now)
	if hasEnded(observed) {
		return observed, nil
	}
	stopErr = errors.Join(stopErr, r.runs.stopPods(ctx, pods))
	isStopped := job.IsSuspended(j) && !slices.ContainsFunc(pods, isPodActive)
	if !isStopped && state.now.Before(graceEnd) {
		state.requeueIn(time.Second)
		return observed, stopErr
	}
	message := fmt.Sprintf("Job %q did not finish within %s and Kubernetes did not stop it", j.Name, jobTimeout(j))
	if stopErr != nil {
		message += ", nor could the controller (" + stopErr.Error() + ")"
	}
	observed.State = job.Failed
	observed.Failure = &execution.Failure{
		Reason: v1alpha1.ReasonExecutionTimeout, Detail: v1alpha1.DetailResultUnknown,
		Message: action.TruncateText(message+": check the target before you retry", maxMessage),
	}
	return observed, nil
}

// cancelJob stops a Job and waits for its result. A Pod that has a node is stopped so that it keeps its result. Then the
// Job is suspended, so that it creates no other Pod. The Job controller may have created one that is not in the cache
// yet, nor in the counts of the Job: the Job has stopped when that controller reports it as suspended and no Pod is left.
func (r *running) cancelJob(
	ctx context.Context, state *reconcileState, j *batchv1.Job,
) (job.Observation, error) {
	pods, err := r.runs.jobs.Pods(ctx, j, true)
	if err != nil {
		return job.Observation{}, err
	}
	observed := job.Observe(j, pods, state.now)
	if hasEnded(observed) {
		return observed, nil
	}
	stop := r.runs.rememberStop(state.ke.UID, state.now)
	state.requeueIn(time.Second) // changes wake it; this covers a missed one
	scheduled := slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return pod.Spec.NodeName == "" })
	if slices.ContainsFunc(scheduled, isPodActive) && !isSuspensionRequested(j) {
		return observed, r.runs.stopPods(ctx, scheduled)
	}
	if err := r.runs.suspendJob(ctx, j); err != nil {
		return observed, err
	}
	if slices.ContainsFunc(scheduled, isPodActive) {
		stop.mayHaveStarted.Store(true) // the Job controller deletes it with its result
	}
	if !job.IsSuspended(j) || slices.ContainsFunc(pods, isPodActive) {
		return job.Observation{}, nil
	}
	failure := cancelledFailure(state.ke)
	if stop.mayHaveStarted.Load() || job.MayHaveStarted(j, pods) {
		failure = execution.Failure{
			Reason: v1alpha1.ReasonCancelled, Detail: v1alpha1.DetailResultUnknown,
			Message: fmt.Sprintf("the action was cancelled%s and left no result: check %s",
				cancelledByText(state.ke), state.ke.Status.Target),
		}
	}
	return job.Observation{State: job.Failed, Failure: &failure, Started: observed.Started}, nil
}

// withReasonOfStop returns an observed end with the reason for which this controller stopped the run. The runner only
// knows that it was stopped.
func withReasonOfStop(ke *v1alpha1.KubernetesExecution, observed job.Observation, deadline time.Time) job.Observation {
	if observed.Failure == nil {
		return observed
	}
	failure := *observed.Failure
	endedLate := observed.Ended != nil && !observed.Ended.Before(deadline)
	neverStarted := observed.Started == nil && failure.Detail == v1alpha1.DetailExecutorUnavailable
	switch {
	case ke.Spec.Cancel && neverStarted && failure.Reason != v1alpha1.ReasonExecutionTimeout:
		failure = cancelledFailure(ke)
	case endedLate && !ke.Spec.Cancel && failure.Reason == v1alpha1.ReasonCancelled:
		failure.Reason = v1alpha1.ReasonExecutionTimeout
	}
	observed.Failure = &failure
	return observed
}

func isSuspensionRequested(j *batchv1.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

// isPodActive reports whether the container of a Pod runs or may still start.
func isPodActive(pod corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// stopPods stops the Pods that have not ended, each once.
func (r *runs) stopPods(ctx context.Context, pods []corev1.Pod) error {
	var errs []error
	for i := range pods {
		pod := &pods[i]
		deadline := pod.Spec.ActiveDeadlineSeconds
		isStopped := !pod.DeletionTimestamp.IsZero() || deadline != nil && *deadline <= 1 // as StopPod sets it
		if !isStopped && isPodActive(*pod) {
			errs = append(errs, r.jobs.StopPod(ctx, pod))
		}
	}
	return errors.Join(errs...)
}
