package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

const (
	jobsMeasured = 20
	jobsWarm     = 2
)

// executionJobsBench measures the overhead of an execution over its Job.
//
// The overhead is a difference of two durations. One is the time from the creation of an execution
// until it is completed. The other is the time from the creation of a Job with the same Pod, which
// makes the same change to the same Deployment, until it is Complete. Both alternate, as an
// observer sees them. The difference may be negative, because the Job controller checks Pods once a
// second.
//
// The wake is the time from the status of a Job's Pod with its end to the status of the execution
// with that result. Both times are those of the responses in the API server's audit log.
func executionJobsBench() bench {
	const overhead, wake = "execution.job_overhead_ms", "execution.job_wake_ms"
	return bench{names: []string{overhead, wake}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, executionPatience)
		defer cancel()
		b, err := startExecutionBed(ctx, progress, executionOptions{jobs: true})
		if err != nil {
			return nil, err
		}
		ours, bare, woken, err := b.measureJobs(ctx)
		if err = errors.Join(err, b.stopBed()); err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(
			progress,
			"%d executions: median %.0f ms to completed, bare Jobs %.0f ms to Complete; Pods' ends to results: median %.1f ms, longest %.1f ms\n",
			len(ours),
			computeMedian(ours),
			computeMedian(bare),
			computeMedian(woken),
			woken[len(woken)-1],
		)
		return []line{
			{kind: "value", name: overhead, value: computeMedian(ours) - computeMedian(bare), unit: "ms", op: "<=", want: 500},
			{kind: "value", name: wake, value: computeMedian(woken), unit: "ms", op: "<=", want: 100},
		}, nil
	}}
}

// milliseconds returns a duration in milliseconds.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (b *executionBed) measureJobs(ctx context.Context) (oursMs, bareMs, wokenMs []float64, err error) {
	f, err := b.watchExecutionsAndJobs(ctx, "")
	if err != nil {
		return nil, nil, nil, err
	}
	targets, err := b.createDeployments(ctx, cheap, jobsWarm+jobsMeasured)
	if err != nil {
		return nil, nil, nil, err
	}
	for i, target := range targets {
		if i == jobsWarm {
			oursMs, bareMs = nil, nil
			if _, err := b.trail.readNewWrites(); err != nil {
				return nil, nil, nil, err
			}
		}
		took, err := b.createAndTimeUntilState(ctx, f, newScaleExecution(target, cheap, target, ""), string(v1alpha1.PhaseCompleted))
		if err != nil {
			return nil, nil, nil, err
		}
		oursMs = append(oursMs, took)
		if _, err := f.awaitSeen(ctx, target+"/"+recorded); err != nil { // it must not delay the next one
			return nil, nil, nil, err
		}
		again, err := b.resetTargetAndCopyJob(ctx, target, job.Name(f.execution(target).UID, v1alpha1.PurposeExecute, 1))
		if err != nil {
			return nil, nil, nil, err
		}
		took, err = b.createAndTimeUntilState(ctx, f, again, string(batchv1.JobComplete))
		if err != nil {
			return nil, nil, nil, err
		}
		bareMs = append(bareMs, took)
		if err := b.checkTargetScaled(ctx, target); err != nil {
			return nil, nil, nil, err
		}
	}
	wokenMs, err = b.readPodEndToResultDelays(f, targets[jobsWarm:])
	return oursMs, bareMs, wokenMs, err
}

// createAndTimeUntilState creates an object, and returns the time until it reaches the wanted state.
func (b *executionBed) createAndTimeUntilState(ctx context.Context, f *follower, o client.Object, state string) (ms float64, err error) {
	began := time.Now()
	if err := b.admin.Create(ctx, o); err != nil {
		return 0, err
	}
	ended, err := f.awaitSeen(ctx, o.GetName()+"/"+state)
	return milliseconds(ended.Sub(began)), err
}

// resetTargetAndCopyJob reverts the effect of a Job, and returns a Job with the same Pod that no
// execution follows.
func (b *executionBed) resetTargetAndCopyJob(ctx context.Context, target, jobName string) (*batchv1.Job, error) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cheap, Name: target}}
	err := b.admin.Patch(
		ctx,
		d,
		newMergePatch(
			`{"metadata":{"annotations":{%q:null}},"spec":{"replicas":%d}}`,
			v1alpha1.AnnotationLastExecution,
			replicasBefore,
		),
	)
	if err != nil {
		return nil, err
	}
	var j batchv1.Job
	if err := b.admin.Get(ctx, client.ObjectKey{Namespace: executor, Name: jobName}, &j); err != nil {
		return nil, err
	}
	again := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: executor, Name: "bare-" + target}, Spec: *j.Spec.DeepCopy()}
	again.Spec.Selector, again.Spec.TTLSecondsAfterFinished = nil, nil
	again.Spec.Template.ObjectMeta = metav1.ObjectMeta{Labels: map[string]string{"app": "bare"}}
	return again, nil
}

// checkTargetScaled checks that a bare Job had the same effect.
func (b *executionBed) checkTargetScaled(ctx context.Context, target string) error {
	var d appsv1.Deployment
	if err := b.admin.Get(ctx, client.ObjectKey{Namespace: cheap, Name: target}, &d); err != nil {
		return err
	}
	if *d.Spec.Replicas != replicasAfter {
		return fmt.Errorf("the bare Job left Deployment %q with %d replicas, want %d", target, *d.Spec.Replicas, replicasAfter)
	}
	return nil
}

// readPodEndToResultDelays returns the delays from the ends of Pods to the results of executions.
func (b *executionBed) readPodEndToResultDelays(f *follower, executions []string) (ms []float64, err error) {
	writes, err := b.trail.readNewWrites()
	if err != nil {
		return nil, err
	}
	for _, name := range executions {
		pod := job.Name(f.execution(name).UID, v1alpha1.PurposeExecute, 1) + "-"
		var ended, stored time.Time
		for _, w := range writes {
			switch {
			case ended.IsZero() && w.formatVerbAndResource() == "patch pods/status" && strings.HasPrefix(w.formatObjectName(), pod) && w.RequestObject.Status.Phase == "Succeeded":
				ended = w.Answered
			case stored.IsZero() && w.formatVerbAndResource() == "patch kubernetesexecutions/status" && w.formatObjectName() == name && w.RequestObject.Status.Phase == string(v1alpha1.PhaseCompleted):
				stored = w.Answered
			}
		}
		if ended.IsZero() || stored.IsZero() {
			return nil, fmt.Errorf("the audit log does not say when execution %q ended", name)
		}
		ms = append(ms, milliseconds(stored.Sub(ended)))
	}
	return ms, nil
}
