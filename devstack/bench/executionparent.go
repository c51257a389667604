package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/remediation"
)

const (
	parentsMeasured = 50
	parentsWarm     = 5
)

// executionParentBench measures how soon the parent of an execution sees its completion. The delay
// runs from just before the execution reports its completion to the start of the parent's
// reconcile: the write of the status, the watch, and the parent's queue. The parent is the example
// of a remediation controller. The executions run inline, one after the other.
func executionParentBench() bench {
	const name = "execution.parent_wake_ms"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, executionPatience)
		defer cancel()
		b, err := startExecutionBed(
			ctx,
			progress,
			executionOptions{args: []string{"--inline-actions=scale_deployment", "--execution-mode=Inline"}},
		)
		if err != nil {
			return nil, err
		}
		took, err := b.measureParentWakes(ctx)
		if err = errors.Join(err, b.stopBed()); err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(
			progress,
			"%d parents: woken after %.1f ms (median), %.1f ms at the most\n",
			len(took),
			computeMedian(took),
			slices.Max(took),
		)
		return []line{{kind: "value", name: name, value: computeMedian(took), unit: "ms", op: "<=", want: 1000}}, nil
	}}
}

func (b *executionBed) measureParentWakes(ctx context.Context) (ms []float64, err error) {
	m, err := remediation.NewManager(b.bed.Config(), remediation.Options{Namespace: executor}) //nolint:contextcheck // the manager is given one below
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- m.Start(running) }()
	b.onStop(func() error { cancel(); return <-done })
	targets, err := b.createDeployments(ctx, cheap, parentsWarm+parentsMeasured)
	if err != nil {
		return nil, err
	}
	for i, target := range targets {
		took, err := b.measureParentWake(ctx, target)
		if err != nil {
			return nil, err
		}
		if i >= parentsWarm {
			ms = append(ms, took)
		}
	}
	return ms, nil
}

// measureParentWake returns the delay from the end of its execution to the parent's reconcile.
func (b *executionBed) measureParentWake(ctx context.Context, target string) (ms float64, err error) {
	rr := &remediation.Request{
		ObjectMeta: metav1.ObjectMeta{Namespace: executor, Name: target},
		Spec: remediation.Spec{
			Action:     "scale_deployment",
			Parameters: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"namespace":%q,"deployment":%q,"replicas":%d}`, cheap, target, replicasAfter)},
		},
	}
	if err := b.admin.Create(ctx, rr); err != nil {
		return 0, err
	}
	err = b.eventually(ctx, func(ctx context.Context) error {
		if err := b.admin.Get(ctx, client.ObjectKeyFromObject(rr), rr); err != nil {
			return err
		}
		switch rr.Status.OverallPhase {
		case remediation.PhaseCompleted:
			return nil
		case remediation.PhaseFailed:
			return finalError{fmt.Errorf("request %q failed: %s", target, rr.Status.Message)}
		case remediation.PhaseExecuting:
		}
		return fmt.Errorf("request %q is not completed: %+v", target, rr.Status)
	})
	if err != nil {
		return 0, err
	}
	var ke v1alpha1.KubernetesExecution
	if err := b.admin.Get(ctx, client.ObjectKey{Namespace: executor, Name: rr.Status.Execution}, &ke); err != nil {
		return 0, err
	}
	last := ke.Status.PhaseTransitions[len(ke.Status.PhaseTransitions)-1]
	if last.Phase != v1alpha1.PhaseCompleted || rr.Status.ExecutionPhase != v1alpha1.PhaseCompleted {
		return 0, fmt.Errorf("request %q has seen %q of an execution that is %q", target, rr.Status.ExecutionPhase, last.Phase)
	}
	return milliseconds(rr.Status.ObservedAt.Sub(last.At.Time)), nil
}
