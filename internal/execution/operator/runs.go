package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
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

	launched sync.Map // by UID: executions whose Job this process created
	inline   sync.Map // by UID: the inlineRun of inline actions that this process has started or was about to start
}

// inlineRun is the state of an inline action, which only this process knows.
type inlineRun struct {
	tries  int32
	result *job.Observation // the result until it is written
}

// actionJobName returns the name of the Job that runs an execution.
func actionJobName(ke *v1alpha1.KubernetesExecution) string {
	return job.Name(ke.UID, v1alpha1.PurposeExecute, 1)
}

// decodeJobPlan returns the plan that a Job runs.
func decodeJobPlan(j *batchv1.Job) (*v1alpha1.Plan, error) {
	for _, c := range j.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.Name == "ACTION_PLAN" {
				var p v1alpha1.Plan
				return &p, json.Unmarshal([]byte(e.Value), &p)
			}
		}
	}
	return nil, fmt.Errorf("the execution has no plan")
}

// findActionJob returns the Job that runs the action of an execution; nil means none.
func (r *runs) findActionJob(ctx context.Context, ke *v1alpha1.KubernetesExecution) (*batchv1.Job, error) {
	_, live := r.launched.Load(ke.UID) // the cache may not have the Job yet
	return r.jobs.Job(ctx, ke, actionJobName(ke), live)
}

// getInlineRun returns the inline run of an execution. known is false if this process has none.
func (r *runs) getInlineRun(uid types.UID) (run inlineRun, known bool) {
	v, known := r.inline.Load(uid)
	run, _ = v.(inlineRun)
	return run, known
}

// forgetRuns drops the runs of an execution.
func (r *runs) forgetRuns(uid types.UID) {
	r.launched.Delete(uid)
	r.inline.Delete(uid)
}

// observeJob derives the state of a Job from the Job and its Pods.
func (r *runs) observeJob(ctx context.Context, j *batchv1.Job, now time.Time) (job.Observation, error) {
	pods, err := r.jobs.Pods(ctx, j, false)
	if err != nil {
		return job.Observation{}, err
	}
	o := job.Observe(j, pods, now)
	if o.State != job.Failed || o.Result != nil {
		return o, nil
	}
	// The cache may not have the result yet, so read the Pods from the host cluster.
	if pods, err = r.jobs.Pods(ctx, j, true); err != nil {
		return job.Observation{}, err
	}
	return job.Observe(j, pods, now), nil
}

// pollDryRunJob returns the result of the dry run in a Job, or the time until which to wait for it. All
// results are empty if no such Job exists.
func (r *runs) pollDryRunJob(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (dry *action.Result, until time.Time, failed *execution.Failure, err error) {
	j, err := r.jobs.Job(ctx, ke, job.Name(ke.UID, v1alpha1.PurposeDryRun, 1), false)
	if err != nil || j == nil {
		return nil, until, nil, err
	}
	o, err := r.observeJob(ctx, j, now)
	if err != nil {
		return nil, until, nil, err
	}
	if o.Result != nil && hasEnded(o) {
		return o.Result, until, nil, r.setJobTTL(ctx, j)
	}
	began := j.CreationTimestamp.Time
	detail, what := v1alpha1.DetailExecutorUnavailable, "did not start"
	if o.Started != nil {
		began, detail, what = *o.Started, v1alpha1.Detail(v1alpha1.ReasonDryRunFailed), "did not finish"
	}
	switch end := began.Add(dryRunTimeout); {
	case o.State == job.Failed:
		failed = &execution.Failure{Reason: v1alpha1.ReasonDryRunFailed, Detail: o.Failure.Detail, Message: o.Failure.Message}
	case !now.Before(end):
		failed = &execution.Failure{
			Reason: v1alpha1.ReasonDryRunFailed, Detail: detail,
			Message: fmt.Sprintf("dry run %s within %s: see Job %q", what, dryRunTimeout, j.Name),
		}
	default:
		return nil, end, nil, nil
	}
	return nil, until, failed, errors.Join(r.suspendJob(ctx, j), r.setJobTTL(ctx, j))
}

func (r *runs) suspendJob(ctx context.Context, j *batchv1.Job) error {
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		return nil
	}
	return r.jobs.PatchSpec(ctx, j, map[string]any{"suspend": true})
}

// forEachJob calls do for the existing Jobs of an execution with the given names.
func (r *runs) forEachJob(ctx context.Context, ke *v1alpha1.KubernetesExecution, names []string, do func(context.Context, *batchv1.Job) error) error {
	for _, name := range names {
		if name == "" {
			continue
		}
		j, err := r.jobs.Job(ctx, ke, name, false)
		if err == nil && j != nil {
			err = do(ctx, j)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// expireJobs sets a TTL on the Jobs of an execution, because their results are stored.
func (r *runs) expireJobs(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) error {
	return r.forEachJob(ctx, ke, []string{ke.Status.JobName, job.Name(ke.UID, v1alpha1.PurposeDryRun, 1)}, func(ctx context.Context, j *batchv1.Job) error {
		if isUnreadCancelledDryRun(ke, j) {
			return r.deleteRunningOrExpireEndedDryRun(ctx, j, now)
		}
		return r.setJobTTL(ctx, j)
	})
}

// isUnreadCancelledDryRun reports whether a Job is the dry run of a cancelled execution whose result was never
// read.
func isUnreadCancelledDryRun(ke *v1alpha1.KubernetesExecution, j *batchv1.Job) bool {
	return ke.Status.Reason == v1alpha1.ReasonCancelled && j.Labels[v1alpha1.LabelPurpose] == v1alpha1.PurposeDryRun &&
		j.Spec.TTLSecondsAfterFinished == nil
}

// deleteRunningOrExpireEndedDryRun deletes an abandoned dry run, which would otherwise run up to its deadline. Its
// result is not needed.
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
	return r.jobs.PatchSpec(ctx, j, map[string]any{"ttlSecondsAfterFinished": int64(r.cfg.JobTTL.Seconds())})
}

// deleteActionJobs deletes the Jobs that run the action of an execution.
func (r *runs) deleteActionJobs(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	return r.forEachJob(ctx, ke, []string{actionJobName(ke), ke.Status.JobName}, r.deleteJob)
}

func (r *runs) deleteJob(ctx context.Context, j *batchv1.Job) error {
	if !j.DeletionTimestamp.IsZero() {
		return nil
	}
	return r.jobs.Delete(ctx, j)
}
