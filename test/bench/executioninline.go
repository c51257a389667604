package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	inlineMeasured = 500
	inlineWarm     = 50
)

// executionInlineBench measures how many executions there can be in a second
// that run inline and need no approval: from before the first is created until
// the last is completed, its audit durable, and its finalizer gone. All are
// created as fast as the API server takes them, each for a target of its own,
// with as many at a time as there are workers and requests without a bound of
// their own.
func executionInlineBench() bench {
	const name = "execution.inline_per_second"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, executionPatience)
		defer cancel()
		b, err := startExecutions(ctx, progress, executionOptions{
			args: []string{"--inline-actions=scale_deployment", "--execution-mode=Inline", "--max-concurrent=1000"},
			env:  []string{"KUBE_API_QPS=10000", "KUBE_API_BURST=10000"},
		})
		if err != nil {
			return nil, err
		}
		took, used, err := b.measureInline(ctx)
		if err = errors.Join(err, b.stop()); err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(progress, "%d executions in %s, for which the controller used %s of CPU\n", inlineMeasured, took, used)
		return []line{{kind: "value", name: name, value: inlineMeasured / took.Seconds(), op: ">=", want: 40}}, nil
	}}
}

func (b *executionBed) measureInline(ctx context.Context) (took, used time.Duration, err error) {
	targets, err := b.targets(ctx, cheap, inlineWarm+inlineMeasured)
	if err != nil {
		return 0, 0, err
	}
	if err := b.inline(ctx, targets[:inlineWarm]); err != nil {
		return 0, 0, err
	}
	before, err := b.cpu()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := b.inline(ctx, targets[inlineWarm:]); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	after, err := b.cpu()
	return took, after - before, err
}

// inline executes for each target, and returns when all is over: when each has
// had our finalizer and has it no more. Only metadata are watched, which costs
// the machine least.
func (b *executionBed) inline(ctx context.Context, targets []string) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind + "List"))
	w, err := b.admin.Watch(ctx, list, client.InNamespace(executor))
	if err != nil {
		return err
	}
	defer w.Stop()
	created := make(chan error, 1)
	go func() {
		created <- inParallel(targets, func(target string) error {
			return b.requester.Create(ctx, scaling(target, cheap, target, replicasAfter, ""))
		})
	}()
	left := map[string]bool{} // whether it has begun
	for _, target := range targets {
		left[target] = false
	}
	for len(left) > 0 {
		select {
		case e, open := <-w.ResultChan():
			if !open {
				return errors.New("the watch has ended")
			}
			o, ok := e.Object.(client.Object)
			if !ok {
				return fmt.Errorf("the watch says %v", e.Object)
			}
			begun, known := left[o.GetName()]
			switch held := len(o.GetFinalizers()) > 0; {
			case known && held:
				left[o.GetName()] = true
			case known && begun:
				delete(left, o.GetName())
			}
		case <-ctx.Done():
			return fmt.Errorf("%d of %d executions are not over: %w: %s", len(left), len(targets), context.Cause(ctx), b.said())
		}
	}
	return errors.Join(<-created, b.allCompleted(ctx, targets))
}

// allCompleted checks that nothing failed.
func (b *executionBed) allCompleted(ctx context.Context, names []string) error {
	var list v1alpha1.KubernetesExecutionList
	if err := b.admin.List(ctx, &list, client.InNamespace(executor)); err != nil {
		return err
	}
	phases := map[string]v1alpha1.Phase{}
	for i := range list.Items {
		phases[list.Items[i].Name] = list.Items[i].Status.Phase
	}
	for _, name := range names {
		if phases[name] != v1alpha1.PhaseCompleted {
			return fmt.Errorf("execution %q is %q, want it completed", name, phases[name])
		}
	}
	return nil
}
