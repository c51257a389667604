package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// dryRunTimeout limits a dry run in a Job, from the start of its container. Until the container
// starts, it counts from the creation of the Job.
const dryRunTimeout = 30 * time.Second

// runs observes and stops the Jobs of executions. It remembers which runs this process has started.
type runs struct {
	cfg  *Config
	jobs jobs

	launched sync.Map // UIDs of executions whose Job this process created
	inline   sync.Map // inlineRun by UID: inline actions that this process has started or was about to start
	stops    sync.Map // *jobStop by UID: Jobs that this process stops
}

// jobStop is what this process remembers of a Job that it stops.
type jobStop struct {
	since          time.Time   // when it began to stop the Job
	mayHaveStarted atomic.Bool // a Pod may have acted and was deleted with its result
}

// rememberStop returns the stop of an execution's Job, which begins now unless it has begun before.
func (r *runs) rememberStop(uid types.UID, now time.Time) *jobStop {
	stored, _ := r.stops.LoadOrStore(uid, &jobStop{since: now})
	stop, _ := stored.(*jobStop) // nothing else is stored
	return stop
}

// inlineRun is the state of an inline action, which only this process knows.
type inlineRun struct {
	tries   int32             // attempts that were started
	earlier job.OtherAttempts // what the attempts that have ended did
	result  *job.Observation  // the result until it is written
}

// isStopping reports whether this process has begun to stop the Job of an execution.
func (r *runs) isStopping(uid types.UID) bool {
	_, stopping := r.stops.Load(uid)
	return stopping
}

// actionJobName returns the name of the Job that runs an execution.
func actionJobName(ke *v1alpha1.KubernetesExecution) string {
	return job.Name(ke.UID, v1alpha1.PurposeExecute, 1)
}

// dryRunJobName returns the name of the Job that makes the dry run of an execution.
func dryRunJobName(ke *v1alpha1.KubernetesExecution) string {
	return job.Name(ke.UID, v1alpha1.PurposeDryRun, 1)
}

// decodeJobPlan returns the plan that a Job runs.
func decodeJobPlan(j *batchv1.Job) (*v1alpha1.Plan, error) {
	for _, container := range j.Spec.Template.Spec.Containers {
		for _, variable := range container.Env {
			if variable.Name == "ACTION_PLAN" {
				var plan v1alpha1.Plan
				return &plan, json.Unmarshal([]byte(variable.Value), &plan)
			}
		}
	}
	return nil, fmt.Errorf("the execution has no plan")
}

// findActionJob returns the Job that runs the action of an execution; nil means none.
func (r *runs) findActionJob(ctx context.Context, ke *v1alpha1.KubernetesExecution) (*batchv1.Job, error) {
	_, launched := r.launched.Load(ke.UID)
	live := launched // the cache may not have the Job yet
	return r.jobs.Job(ctx, ke, actionJobName(ke), live)
}

// getInlineRun returns the inline run of an execution. known is false if this process has none.
func (r *runs) getInlineRun(uid types.UID) (run inlineRun, known bool) {
	stored, known := r.inline.Load(uid)
	run, _ = stored.(inlineRun)
	return run, known
}

// forgetRuns drops the runs of an execution.
func (r *runs) forgetRuns(uid types.UID) {
	r.launched.Delete(uid)
	r.stops.Delete(uid)
	r.inline.Delete(uid)
}

// observeJob derives the state of a Job from the Job and its Pods.
func (r *runs) observeJob(ctx context.Context, j *batchv1.Job, now time.Time) (job.Observation, error) {
	pods, err := r.jobs.Pods(ctx, j, false)
	if err != nil {
		return job.Observation{}, err
	}
	observed := job.Observe(j, pods, now)
	if observed.State != job.Failed || observed.Result != nil {
		return observed, nil
	}
	// The cache may not have the result yet, so read the Pods from the host cluster.
	pods, err = r.jobs.Pods(ctx, j, true)
	if err != nil {
		return job.Observation{}, err
	}
	return job.Observe(j, pods, now), nil
}

// pollOrStopDryRunJob returns the result of the dry run in a Job, or the time until which to wait for it. All
// results are empty if no such Job exists.
func (r *runs) pollOrStopDryRunJob(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (
	result *action.Result, waitUntil time.Time, failure *execution.Failure, err error,
) {
	j, err := r.jobs.Job(ctx, ke, dryRunJobName(ke), false)
	if err != nil || j == nil {
		return nil, time.Time{}, nil, err
	}
	observed, err := r.observeJob(ctx, j, now)
	if err != nil {
		return nil, time.Time{}, nil, err
	}
	if observed.Result != nil && hasEnded(observed) {
		return observed.Result, time.Time{}, nil, r.setJobTTL(ctx, j)
	}

	start := j.CreationTimestamp.Time
	if observed.Started != nil {
		start = *observed.Started
	}
	end := start.Add(dryRunTimeout)
	switch {
	case observed.State == job.Failed:
		failure = &execution.Failure{
			Reason:  v1alpha1.ReasonDryRunFailed,
			Detail:  observed.Failure.Detail,
			Message: observed.Failure.Message,
		}
	case !now.Before(end):
		failure = dryRunTimeoutFailure(j.Name, observed.Started != nil)
	default:
		return nil, end, nil, nil
	}
	return nil, time.Time{}, failure, errors.Join(r.suspendJob(ctx, j), r.setJobTTL(ctx, j))
}

// dryRunTimeoutFailure is the failure of a dry run whose Job did not end in time.
func dryRunTimeoutFailure(jobName string, started bool) *execution.Failure {
	detail := v1alpha1.DetailExecutorUnavailable
	what := "did not start"
	if started {
		detail = v1alpha1.Detail(v1alpha1.ReasonDryRunFailed)
		what = "did not finish"
	}
	return &execution.Failure{
		Reason: v1alpha1.ReasonDryRunFailed, Detail: detail,
		Message: fmt.Sprintf("dry run %s within %s: see Job %q", what, dryRunTimeout, jobName),
	}
}

func (r *runs) suspendJob(ctx context.Context, j *batchv1.Job) error {
	if isSuspensionRequested(j) {
		return nil
	}
	return r.jobs.PatchSpec(ctx, j, map[string]any{"suspend": true})
}

// setTTLOfExecutionJobs sets a TTL on the Jobs of an execution, because their results are stored.
func (r *runs) setTTLOfExecutionJobs(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) error {
	for _, name := range []string{ke.Status.JobName, dryRunJobName(ke)} {
		if name == "" { // no Job ran the action
			continue
		}
		j, err := r.jobs.Job(ctx, ke, name, false)
		if err != nil {
			return err
		}
		if j == nil {
			continue
		}
		if isUnreadCancelledDryRun(ke, j) {
			err = r.deleteRunningOrExpireEndedDryRun(ctx, j, now)
		} else {
			err = r.setJobTTL(ctx, j)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isUnreadCancelledDryRun reports whether a Job is the dry run of a cancelled execution whose result was
// never read. A dry run gets its TTL when its result is read.
func isUnreadCancelledDryRun(ke *v1alpha1.KubernetesExecution, j *batchv1.Job) bool {
	return ke.Status.Reason == v1alpha1.ReasonCancelled &&
		j.Labels[v1alpha1.LabelPurpose] == v1alpha1.PurposeDryRun &&
		j.Spec.TTLSecondsAfterFinished == nil
}

// deleteRunningOrExpireEndedDryRun deletes an abandoned dry run, which would otherwise run up to its
// deadline. Its result is not needed.
func (r *runs) deleteRunningOrExpireEndedDryRun(ctx context.Context, j *batchv1.Job, now time.Time) error {
	pods, err := r.jobs.Pods(ctx, j, false)
	if err != nil {
		return err
	}
	if hasEnded(job.Observe(j, pods, now)) {
		return r.setJobTTL(ctx, j)
	}
	return r.deleteJob(ctx, j)
}

func (r *runs) setJobTTL(ctx context.Context, j *batchv1.Job) error {
	if j.Spec.TTLSecondsAfterFinished != nil {
		return nil
	}
	seconds := int64(r.cfg.JobTTL.Seconds())
	return r.jobs.PatchSpec(ctx, j, map[string]any{"ttlSecondsAfterFinished": seconds})
}

// deleteActionJobs deletes the Jobs that run the action of an execution.
func (r *runs) deleteActionJobs(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	for _, name := range []string{actionJobName(ke), ke.Status.JobName} {
		if name == "" { // the status names no Job
			continue
		}
		j, err := r.jobs.Job(ctx, ke, name, false)
		if err != nil {
			return err
		}
		if j == nil {
			continue
		}
		if err := r.deleteJob(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

func (r *runs) deleteJob(ctx context.Context, j *batchv1.Job) error {
	if !j.DeletionTimestamp.IsZero() {
		return nil
	}
	return r.jobs.Delete(ctx, j)
}
