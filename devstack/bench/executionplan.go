package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	plansAtOnce = 50
	planRounds  = 6
	planWarm    = 2
)

// executionPlanBench measures the time to a plan. It runs from when the API server has stored an
// execution until it has stored that the execution is validated and waits for an approval, which is
// one write after all checks and an inline dry run. Fifty are created at once, each for a separate
// target. The times are those of the API server's audit log.
//
// The API server takes most of that time. The bench also measures the possible minimum, with the
// same requests without a controller, from a loop that knows the content of each request.
func executionPlanBench() bench {
	const name = "execution.plan_vs_bare"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, executionPatience)
		defer cancel()
		b, err := startExecutionBed(ctx, progress, executionOptions{})
		if err != nil {
			return nil, err
		}
		alone, took, bare, err := b.measurePlans(ctx)
		if err = errors.Join(err, b.stopBed()); err != nil {
			return nil, err
		}
		slices.Sort(took)
		slices.Sort(bare)
		p99, bareP99 := took[len(took)*99/100], bare[len(bare)*99/100]
		_, _ = fmt.Fprintf(progress, "%d plans, %d at once: median %.0f ms, 99th percentile %.0f ms, longest %.0f ms; one by one: median %.1f ms\n",
			len(took), plansAtOnce, took[len(took)/2], p99, took[len(took)-1], computeMedian(alone))
		_, _ = fmt.Fprintf(progress, "the same requests from a loop that checks nothing: median %.0f ms, 99th percentile %.0f ms\n", bare[len(bare)/2], bareP99)
		return []line{{kind: "ratio", name: name, value: p99 / bareP99, op: "<=", want: 1.2}}, nil
	}}
}

func (b *executionBed) measurePlans(ctx context.Context) (aloneMs, togetherMs, bareMs []float64, err error) {
	targets, err := b.createDeployments(ctx, dear, plansAtOnce)
	if err != nil {
		return nil, nil, nil, err
	}
	for round := range planRounds {
		took, err := b.createAndMeasurePlanTimes(ctx, fmt.Sprintf("round-%d-", round), targets, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		if round >= planWarm {
			togetherMs = append(togetherMs, took...)
		}
	}
	for _, target := range targets[:20] {
		took, err := b.createAndMeasurePlanTimes(ctx, "alone-", []string{target}, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		aloneMs = append(aloneMs, took...)
	}
	bareMs, err = b.stopControllerAndMeasurePlans(ctx, targets)
	return aloneMs, togetherMs, bareMs, err
}

// stopControllerAndMeasurePlans sends the requests of the controller without it, after it was stopped: a loop sends its
// queries and its writes.
func (b *executionBed) stopControllerAndMeasurePlans(ctx context.Context, targets []string) (ms []float64, err error) {
	var model v1alpha1.KubernetesExecution
	if err := b.admin.Get(ctx, client.ObjectKey{Namespace: executor, Name: "round-0-" + targets[0]}, &model); err != nil {
		return nil, err
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&model.Status)
	if err != nil {
		return nil, err
	}
	if err := b.controller.Process.Signal(os.Interrupt); err != nil {
		return nil, err
	}
	<-b.ended
	writer, err := b.clientAs(controllerUser, "system:serviceaccounts", executorGroup)
	if err != nil {
		return nil, err
	}
	atOnce := make(chan struct{}, 16) // the number of the controller's workers
	plan := func(target string, ke *v1alpha1.KubernetesExecution) error {
		atOnce <- struct{}{}
		defer func() { <-atOnce }()
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: dear, Name: target}}
		if err := b.admin.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		err := b.admin.SubResource("scale").Patch(ctx, d, newMergePatch(`{"spec":{"replicas":%d}}`, replicasAfter), client.DryRunAll)
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{Object: map[string]any{"status": runtime.DeepCopyJSON(status)}}
		o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
		o.SetNamespace(ke.Namespace)
		o.SetName(ke.Name)
		o.SetResourceVersion(ke.ResourceVersion)
		return writer.SubResource("status").
			Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership, client.FieldOwner("bare"))
	}
	for round := range planRounds {
		took, err := b.createAndMeasurePlanTimes(ctx, fmt.Sprintf("bare-%d-", round), targets, plan)
		if err != nil {
			return nil, err
		}
		if round >= planWarm {
			ms = append(ms, took...)
		}
	}
	return ms, nil
}

// createAndMeasurePlanTimes creates an execution for each target at once, and waits until all wait for an approval. It
// returns how long each had no plan. If plan is not nil, it makes the plan of each created
// execution.
func (b *executionBed) createAndMeasurePlanTimes(
	ctx context.Context,
	prefix string,
	targets []string,
	barePlanOrNil func(target string, ke *v1alpha1.KubernetesExecution) error,
) (ms []float64, err error) {
	if _, err := b.trail.readNewWrites(); err != nil {
		return nil, err
	}
	errs := make(chan error)
	for _, target := range targets {
		go func() {
			ke := newScaleExecution(prefix+target, dear, target, "")
			err := b.requester.Create(ctx, ke)
			if err == nil && barePlanOrNil != nil {
				err = barePlanOrNil(target, ke)
			}
			errs <- err
		}()
	}
	for range targets {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return nil, err
	}
	created, validated, err := b.awaitPlanned(ctx, len(targets))
	if err != nil {
		return nil, err
	}
	for _, target := range targets {
		from, until := created[prefix+target], validated[prefix+target]
		if from.IsZero() || until.IsZero() {
			return nil, fmt.Errorf("the audit log does not say when execution %q was created and validated", prefix+target)
		}
		ms = append(ms, milliseconds(until.Sub(from)))
	}
	return ms, nil
}

// awaitPlanned waits until executions wait for an approval, and returns when each was created and
// validated.
func (b *executionBed) awaitPlanned(ctx context.Context, n int) (created, validated map[string]time.Time, err error) {
	created, validated = map[string]time.Time{}, map[string]time.Time{}
	for len(validated) < n || len(created) < n { // a write may be logged after a later one
		if err := backoff.Sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, nil, fmt.Errorf("%d of %d executions wait for an approval: %w: %s", len(validated), n, err, b.logTail())
		}
		writes, err := b.trail.readNewWrites()
		if err != nil {
			return nil, nil, err
		}
		for _, w := range writes {
			switch {
			case w.formatVerbAndResource() == "create kubernetesexecutions":
				created[w.formatObjectName()] = w.Answered
			case w.formatVerbAndResource() != "patch kubernetesexecutions/status":
			case w.RequestObject.Status.Phase == string(v1alpha1.PhaseWaitingApproval):
				validated[w.formatObjectName()] = w.Answered
			}
		}
	}
	return created, validated, nil
}
