package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	// executionPatience is more than any of these measurements takes.
	executionPatience = 10 * time.Minute

	writesCounted = 30
	writesAtOnce  = 6 // fewer than may run at a time: none waits for its turn
	writesWarm    = 6
)

// executionWritesBench counts what one execution costs an API server, by its
// audit log: the writes of the controller's process, from the creation of an
// execution, which needs an approval, until it is completed and its audit is
// durable. Kubernetes events, what is tried out, refused writes, reviews of
// rights and requests for tokens count, whether they are sent as the controller
// or as the account of the action. What people write does not, nor what becomes
// of the Job by others, nor the Lease, which is written by time. Each execution
// has a target of its own.
func executionWritesBench() bench {
	const inJob, inline = "execution.api_writes_job", "execution.api_writes_inline"
	return bench{names: []string{inJob, inline}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, executionPatience)
		defer cancel()
		b, err := startExecutions(ctx, progress, executionOptions{jobs: true, args: []string{"--inline-actions=scale_deployment"}})
		if err != nil {
			return nil, err
		}
		counts, err := b.measureWrites(ctx, progress)
		if err = errors.Join(err, b.stop()); err != nil {
			return nil, err
		}
		return []line{
			{kind: "value", name: inJob, value: counts[v1alpha1.ExecuteInJob], unit: "writes", op: "<=", want: 14},
			{kind: "value", name: inline, value: counts[v1alpha1.ExecuteInline], unit: "writes", op: "<=", want: 15},
		}, nil
	}}
}

func (b *executionBed) measureWrites(ctx context.Context, progress io.Writer) (map[v1alpha1.ExecutionMode]float64, error) {
	f, err := b.follow(ctx)
	if err != nil {
		return nil, err
	}
	targets, err := b.targets(ctx, dear, 2*(writesWarm+writesCounted))
	if err != nil {
		return nil, err
	}
	counts := map[v1alpha1.ExecutionMode]float64{}
	for _, mode := range []v1alpha1.ExecutionMode{v1alpha1.ExecuteInJob, v1alpha1.ExecuteInline} {
		for _, n := range []int{writesWarm, writesCounted} {
			var some []string
			some, targets = targets[:n], targets[n:]
			writes, err := b.writesOf(ctx, f, mode, some)
			if err != nil {
				return nil, err
			}
			if n == writesCounted {
				counts[mode] = float64(len(writes)) / float64(n)
				_, _ = fmt.Fprintf(progress, "%d executions, %s:\n%s", n, mode, tally(writes))
			}
		}
	}
	return counts, nil
}

// writesOf are the writes for one execution for each target.
func (b *executionBed) writesOf(ctx context.Context, f *follower, mode v1alpha1.ExecutionMode, targets []string) ([]write, error) {
	if _, err := b.trail.next(); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(targets, writesAtOnce) {
		err := inParallel(some, func(target string) error {
			if err := b.requester.Create(ctx, scaling(target, dear, target, replicasAfter, mode)); err != nil {
				return err
			}
			if _, err := f.await(ctx, target+"/"+string(v1alpha1.PhaseWaitingApproval)); err != nil {
				return err
			}
			if err := b.approve(ctx, f.execution(target).DeepCopy()); err != nil {
				return err
			}
			_, err := f.await(ctx, target+"/"+recorded)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var ours []write
	for { // events and the Job's time to live may come last
		if err := backoff.Sleep(ctx, 2*time.Second); err != nil {
			return nil, err
		}
		writes, err := b.trail.next()
		if err != nil {
			return nil, err
		}
		more := slices.DeleteFunc(writes, func(w write) bool { return !w.byController() || w.ObjectRef.Resource == "leases" })
		if len(more) == 0 {
			return ours, nil
		}
		ours = append(ours, more...)
	}
}

// runnerAgent is how runners in Jobs call themselves.
const runnerAgent = "fleetloop-action-runner"

// byController says whether the controller's process wrote it: under its own
// name, or under that of the account of an action, as the runners in Jobs do.
func (w write) byController() bool {
	return w.User.Username == controllerUser || strings.HasPrefix(w.User.Username, "system:serviceaccount:"+executor+":") && !strings.HasPrefix(w.UserAgent, runnerAgent)
}

// tally tells of writes by their kinds.
func tally(writes []write) string {
	counts := map[string]int{}
	for _, w := range writes {
		who := "the controller"
		if w.User.Username != controllerUser {
			who = "the action's account"
		}
		counts[fmt.Sprintf("%s by %s (%s)", w.what(), who, w.UserAgent)]++
	}
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "  %4d %s\n", counts[what], what)
	}
	return b.String()
}
