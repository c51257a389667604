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
	// executionPatience is longer than any of these measurements.
	executionPatience = 10 * time.Minute

	writesCounted = 30
	writesAtOnce  = 6 // fewer than may run concurrently, so that none waits
	writesWarm    = 6
)

// executionWritesBench counts the controller's writes for one execution, from the API server's
// audit log. It counts from the creation of an execution that needs an approval until it is
// completed and its audit is durable. It includes Kubernetes events, rejected writes, access
// reviews and requests for tokens; for the latter two it also includes those of the executions for
// the warm-up. It excludes writes with the account of the action, in a dry run, in the controller
// or in the Job, which are printed separately. It also excludes writes of users, writes of others
// to the Job, and the Lease, which is written periodically. Each execution has a separate target.
func executionWritesBench() bench {
	const inJob, inline = "execution.api_writes_job", "execution.api_writes_inline"
	return bench{names: []string{inJob, inline}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, executionPatience)
		defer cancel()
		b, err := startExecutionBed(ctx, progress, executionOptions{jobs: true, args: []string{"--inline-actions=scale_deployment"}})
		if err != nil {
			return nil, err
		}
		counts, err := b.countWritesPerExecution(ctx, progress)
		if err = errors.Join(err, b.stopBed()); err != nil {
			return nil, err
		}
		return []line{
			{kind: "value", name: inJob, value: counts[v1alpha1.ExecuteInJob], unit: "writes", op: "<=", want: 14},
			{kind: "value", name: inline, value: counts[v1alpha1.ExecuteInline], unit: "writes", op: "<=", want: 15},
		}, nil
	}}
}

func (b *executionBed) countWritesPerExecution(ctx context.Context, progress io.Writer) (map[v1alpha1.ExecutionMode]float64, error) {
	f, err := b.watchExecutionsAndJobs(ctx, "")
	if err != nil {
		return nil, err
	}
	targets, err := b.createDeployments(ctx, dear, 2*(writesWarm+writesCounted))
	if err != nil {
		return nil, err
	}
	counts := map[v1alpha1.ExecutionMode]float64{}
	for _, mode := range []v1alpha1.ExecutionMode{v1alpha1.ExecuteInJob, v1alpha1.ExecuteInline} {
		warm, err := b.executeAndListWrites(ctx, f, mode, targets[:writesWarm])
		if err != nil {
			return nil, err
		}
		writes, err := b.executeAndListWrites(ctx, f, mode, targets[writesWarm:writesWarm+writesCounted])
		if err != nil {
			return nil, err
		}
		targets = targets[writesWarm+writesCounted:]
		reviews := countMatchingWrites(warm, auditedWrite.isAccessReview) + countMatchingWrites(writes, auditedWrite.isAccessReview)
		asked := float64(reviews) / (writesWarm + writesCounted)
		each := func(what func(auditedWrite) bool) float64 {
			return float64(countMatchingWrites(writes, func(w auditedWrite) bool { return what(w) && !w.isAccessReview() })) / writesCounted
		}
		counts[mode] = each(auditedWrite.isByController) + asked
		_, _ = fmt.Fprintf(progress, "%d executions, %s: each %.2f writes as the controller, reviews and tokens %.2f of them, and %.2f as the account of the action:\n%s",
			writesCounted, mode, counts[mode], asked, each(auditedWrite.isImpersonated), formatWriteCounts(writes))
	}
	return counts, nil
}

// executeAndListWrites returns the writes of the controller's process for one execution per target.
func (b *executionBed) executeAndListWrites(
	ctx context.Context,
	f *follower,
	mode v1alpha1.ExecutionMode,
	targets []string,
) (ours []auditedWrite, err error) {
	if _, err := b.trail.readNewWrites(); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(targets, writesAtOnce) {
		err := runForEachInParallel(some, func(target string) error { return b.requestApproveAndAwait(ctx, f, mode, target) })
		if err != nil {
			return nil, err
		}
	}
	for { // events and the Job's time to live may come last
		if err := backoff.Sleep(ctx, 2*time.Second); err != nil {
			return nil, err
		}
		writes, err := b.trail.readNewWrites()
		if err != nil {
			return nil, err
		}
		more := slices.DeleteFunc(writes, func(w auditedWrite) bool { return !w.isByController() && !w.isImpersonated() })
		if len(more) == 0 {
			return ours, nil
		}
		ours = append(ours, more...)
	}
}

// requestApproveAndAwait approves an execution and waits for its end.
func (b *executionBed) requestApproveAndAwait(ctx context.Context, f *follower, mode v1alpha1.ExecutionMode, target string) error {
	if err := b.requester.Create(ctx, newScaleExecution(target, dear, target, mode)); err != nil {
		return err
	}
	if _, err := f.awaitSeen(ctx, target+"/"+string(v1alpha1.PhaseWaitingApproval)); err != nil {
		return err
	}
	if err := b.approvePlan(ctx, f.execution(target).DeepCopy()); err != nil {
		return err
	}
	_, err := f.awaitSeen(ctx, target+"/"+recorded)
	return err
}

func countMatchingWrites(writes []auditedWrite, matches func(auditedWrite) bool) (n int) {
	for _, w := range writes {
		if matches(w) {
			n++
		}
	}
	return n
}

// runnerAgent is the user agent of runners in Jobs.
const runnerAgent = "fleetloop-action-runner"

// isByController reports whether the controller wrote it with its own account, for an execution.
func (w auditedWrite) isByController() bool {
	return w.User.Username == controllerUser && w.ObjectRef.Resource != "leases"
}

// isImpersonated reports whether the controller's process wrote it with the account of an action,
// which runners in Jobs use as well.
func (w auditedWrite) isImpersonated() bool {
	return w.User.Username != controllerUser && strings.HasPrefix(w.User.Username, "system:serviceaccount:"+executor+":") &&
		!strings.HasPrefix(w.UserAgent, runnerAgent)
}

// isAccessReview reports whether it is an access review, whose response is cached for a while.
func (w auditedWrite) isAccessReview() bool {
	return w.ObjectRef.Resource == "subjectaccessreviews" || w.ObjectRef.Subresource == "token"
}

// formatWriteCounts returns the number of writes by kind.
func formatWriteCounts(writes []auditedWrite) string {
	counts := map[string]int{}
	for _, w := range writes {
		who := "as the controller"
		if w.isImpersonated() {
			who = "as the account of the action"
		}
		counts[w.formatVerbAndResource()+" "+who]++
	}
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "  %4d %s\n", counts[what], what)
	}
	return b.String()
}
