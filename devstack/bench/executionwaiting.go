package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	waitingExecutions = 5000
	waitingTargets    = 100
	waitingTime       = time.Minute // twice the guard's polling interval
)

// executionWaitingBench measures the cost of waiting. This is the CPU use, as a fraction of one
// processor, of an otherwise idle controller with thousands of executions that wait for an
// approval. It includes the periodic work: its Lease, checks of the guard and of the nodes, and the
// connection to PostgreSQL.
func executionWaitingBench() bench {
	const name = "execution.waiting_cpu"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*executionPatience)
		defer cancel()
		b, err := startExecutionBed(
			ctx,
			progress,
			executionOptions{env: []string{"KUBE_API_QPS=10000", "KUBE_API_BURST=10000"}, args: []string{"--approval-timeout=24h"}},
		)
		if err != nil {
			return nil, err
		}
		share, err := b.measureWaitingCPU(ctx, progress)
		if err = errors.Join(err, b.stopBed()); err != nil {
			return nil, err
		}
		return []line{{kind: "value", name: name, value: share, unit: "cores", op: "<=", want: 0.02}}, nil
	}}
}

func (b *executionBed) measureWaitingCPU(ctx context.Context, progress io.Writer) (share float64, err error) {
	targets, err := b.createDeployments(ctx, dear, waitingTargets)
	if err != nil {
		return 0, err
	}
	var numbers []int
	for i := range waitingExecutions {
		numbers = append(numbers, i)
	}
	created := make(chan error, 1)
	began := time.Now()
	go func() {
		created <- runForEachInParallel(numbers, func(i int) error {
			return b.requester.Create(ctx, newScaleExecution(fmt.Sprintf("waiting-%d", i), dear, targets[i%len(targets)], ""))
		})
	}()
	if err := b.awaitAllWaitingApproval(ctx, waitingExecutions, created); err != nil {
		return 0, err
	}
	_, _ = fmt.Fprintf(progress, "%d executions wait after %s\n", waitingExecutions, time.Since(began))
	if err := backoff.Sleep(ctx, 10*time.Second); err != nil { // events, the audit and the garbage collector finish
		return 0, err
	}
	before, err := b.controllerCPU()
	if err != nil {
		return 0, err
	}
	began = time.Now()
	if err := backoff.Sleep(ctx, waitingTime); err != nil {
		return 0, err
	}
	after, err := b.controllerCPU()
	took := time.Since(began)
	_, _ = fmt.Fprintf(progress, "the controller used %s of CPU in %s\n", after-before, took)
	return float64(after-before) / float64(took), err
}

// awaitAllWaitingApproval waits until a number of executions, which are being created, wait for an approval.
func (b *executionBed) awaitAllWaitingApproval(ctx context.Context, want int, created <-chan error) error {
	waiting := map[string]bool{}
	for len(waiting) < want {
		select {
		case err := <-created:
			if err != nil {
				return err
			}
		default:
		}
		if err := backoff.Sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d executions wait for an approval: %w: %s", len(waiting), want, err, b.logTail())
		}
		writes, err := b.trail.readNewWrites()
		if err != nil {
			return err
		}
		for _, w := range writes {
			if w.formatVerbAndResource() == "patch kubernetesexecutions/status" && w.RequestObject.Status.Phase == string(v1alpha1.PhaseWaitingApproval) {
				waiting[w.formatObjectName()] = true
			}
		}
	}
	return nil
}

// controllerCPU returns the controller's CPU time.
func (b *executionBed) controllerCPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.controller.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name of the program, in brackets, may contain anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const (
		user, system = 11, 12
		tick         = time.Second / 100
	)
	var ticks [2]int64
	if _, err := fmt.Sscan(fields[user]+" "+fields[system], &ticks[0], &ticks[1]); err != nil {
		return 0, fmt.Errorf("read what the controller used: %w", err)
	}
	return time.Duration(ticks[0]+ticks[1]) * tick, nil
}
