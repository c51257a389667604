package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	inlineMeasured = 500
	inlineWarm     = 50
)

// executionInlineBench measures how many executions per second complete that run inline and need no
// approval. The time runs from before the creation of the first until the last is completed, its
// audit is durable, and its finalizer is gone. They are created as fast as the API server accepts
// them, each for a separate target, with as many concurrent requests as the controller has workers,
// without a rate limit.
//
// The API server takes most of that time. The bench also measures the possible maximum, with the
// same requests without a controller, from loops that know the content of each request.
func executionInlineBench() bench {
	const name = "execution.inline_vs_bare"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, executionPatience)
		defer cancel()
		b, err := startExecutionBed(ctx, progress, executionOptions{
			args: []string{"--inline-actions=scale_deployment", "--execution-mode=Inline", "--max-concurrent=1000"},
			env:  []string{"KUBE_API_QPS=10000", "KUBE_API_BURST=10000"}, untrailed: true,
		})
		if err != nil {
			return nil, err
		}
		took, bare, used, err := b.measureInline(ctx)
		if err = errors.Join(err, b.stopBed()); err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(progress, "%d executions in %s, for which the controller used %s of CPU; the same requests from loops that check nothing: %s\n", inlineMeasured, took, used, bare)
		return []line{{kind: "ratio", name: name, value: bare.Seconds() / took.Seconds(), op: ">=", want: 0.9}}, nil
	}}
}

func (b *executionBed) measureInline(ctx context.Context) (took, bareTook, cpuUsed time.Duration, err error) {
	f, err := b.watchExecutionsAndJobs(ctx, settled)
	if err != nil {
		return 0, 0, 0, err
	}
	targets, err := b.createDeployments(ctx, cheap, inlineWarm+inlineMeasured)
	if err != nil {
		return 0, 0, 0, err
	}
	if err := b.runInlineExecutions(ctx, f, targets[:inlineWarm]); err != nil {
		return 0, 0, 0, err
	}
	before, err := b.controllerCPU()
	if err != nil {
		return 0, 0, 0, err
	}
	began := time.Now()
	if err := b.runInlineExecutions(ctx, f, targets[inlineWarm:]); err != nil {
		return 0, 0, 0, err
	}
	took = time.Since(began)
	after, err := b.controllerCPU()
	if err != nil {
		return 0, 0, 0, err
	}
	bareTook, err = b.stopControllerAndMeasureReplay(ctx, targets[inlineWarm:], f.execution(targets[inlineWarm]))
	return took, bareTook, after - before, err
}

// runInlineExecutions runs an execution for each target, and returns when all have ended.
func (b *executionBed) runInlineExecutions(ctx context.Context, f *follower, targets []string) error {
	err := runForEachInParallel(targets, func(target string) error {
		return b.requester.Create(ctx, newScaleExecution(target, cheap, target, ""))
	})
	if err != nil {
		return err
	}
	for _, target := range targets {
		if _, err := f.awaitSeen(ctx, target+"/"+recorded); err != nil {
			return fmt.Errorf("%w: %s", err, b.logTail())
		}
		if ended := f.execution(target).Status; ended.Phase != v1alpha1.PhaseCompleted || ended.Outcome != v1alpha1.OutcomeSucceeded {
			return fmt.Errorf("execution %q is %q, want it completed", target, ended.Phase)
		}
	}
	return nil
}
