package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	plansAtOnce = 50
	planRounds  = 6
	planWarm    = 2
)

// executionPlanBench measures how long it takes until there is a plan: from when
// the API server has stored an execution until it has stored that it is
// validated, which it is after all checks and an inline dry run, and that it waits
// for an approval, which is the same write. Fifty are created at the same moment,
// each for a target of its own, by the clock of the API server's audit log.
func executionPlanBench() bench {
	const name = "execution.plan_p99_ms"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, executionPatience)
		defer cancel()
		b, err := startExecutions(ctx, progress, executionOptions{})
		if err != nil {
			return nil, err
		}
		alone, took, err := b.measurePlans(ctx)
		if err = errors.Join(err, b.stop()); err != nil {
			return nil, err
		}
		slices.Sort(took)
		p99 := took[len(took)*99/100]
		_, _ = fmt.Fprintf(progress, "%d plans, %d at once: median %.0f ms, 99th percentile %.0f ms, longest %.0f ms; one by one: median %.1f ms\n",
			len(took), plansAtOnce, took[len(took)/2], p99, took[len(took)-1], median(alone))
		return []line{{kind: "value", name: name, value: p99, unit: "ms", op: "<=", want: 100}}, nil
	}}
}

func (b *executionBed) measurePlans(ctx context.Context) (alone, together []float64, err error) {
	targets, err := b.targets(ctx, dear, plansAtOnce)
	if err != nil {
		return nil, nil, err
	}
	for round := range planRounds {
		took, err := b.plans(ctx, fmt.Sprintf("round-%d-", round), targets)
		if err != nil {
			return nil, nil, err
		}
		if round >= planWarm {
			together = append(together, took...)
		}
	}
	for _, target := range targets[:20] {
		took, err := b.plans(ctx, "alone-", []string{target})
		if err != nil {
			return nil, nil, err
		}
		alone = append(alone, took...)
	}
	return alone, together, nil
}

// plans creates an execution for each target at once, waits until all wait for
// an approval, and gives how long each was without a plan.
func (b *executionBed) plans(ctx context.Context, prefix string, targets []string) (ms []float64, err error) {
	if _, err := b.trail.next(); err != nil {
		return nil, err
	}
	errs := make(chan error)
	for _, target := range targets {
		go func() {
			errs <- b.requester.Create(ctx, scaling(prefix+target, dear, target, ""))
		}()
	}
	for range targets {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return nil, err
	}
	created, validated := map[string]time.Time{}, map[string]time.Time{}
	for len(validated) < len(targets) || len(created) < len(targets) { // a write may be logged after what follows it
		if err := backoff.Sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, fmt.Errorf("%d of %d executions wait for an approval: %w: %s", len(validated), len(targets), err, b.said())
		}
		writes, err := b.trail.next()
		if err != nil {
			return nil, err
		}
		for _, w := range writes {
			switch {
			case w.what() == "create kubernetesexecutions":
				created[w.name()] = w.Answered
			case w.what() != "patch kubernetesexecutions/status":
			case w.RequestObject.Status.Phase == string(v1alpha1.PhaseWaitingApproval):
				validated[w.name()] = w.Answered
			}
		}
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
