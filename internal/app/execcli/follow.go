package execcli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

// restartDelay is the delay before a watch that has ended is restarted.
const restartDelay = time.Second

var errWaitTimeout = errors.New("timed out")

// errGone means that the followed execution was deleted.
var errGone = errors.New("the execution was deleted")

// executionFollower prints the progress of one execution.
type executionFollower struct {
	*session

	cluster      *cluster
	pastApproval bool // go on while the execution waits for an approval
	latest       *v1alpha1.KubernetesExecution
	printed      string // the last line of progress
}

// followUntilEnd prints every state until the execution ends or needs an approval. latest has the last state then.
func (f *executionFollower) followUntilEnd(ctx context.Context) error {
	uid := f.latest.UID
	f.printIfChanged()
	for !f.isDone() {
		err := f.watchOnce(ctx)
		switch {
		case err != nil && !isTransient(err):
			return err
		case f.isDone():
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			f.printToStderr("watch interrupted, restarting: %v", err)
		}
		now, err := getSameExecutionWithRetry(ctx, f.cluster, f.latest.Name, uid)
		if err != nil {
			return err
		}
		f.latest = now
		f.printIfChanged()
	}
	return nil
}

// watchOnce prints every state until the execution is done or the watch ends.
func (f *executionFollower) watchOnce(ctx context.Context) error {
	uid := f.latest.UID
	options := selection{name: f.latest.Name}.listOptions(f.cluster.namespace)
	options.Raw.ResourceVersion = f.latest.ResourceVersion
	stream, err := f.cluster.Watch(ctx, &v1alpha1.KubernetesExecutionList{}, options)
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		now, ok := event.Object.(*v1alpha1.KubernetesExecution)
		if !ok {
			continue // an event without an execution
		}
		if event.Type == watch.Deleted || now.UID != uid {
			return errGone
		}
		f.latest = now
		f.printIfChanged()
		if f.isDone() {
			return nil
		}
	}
	return nil // servers end watches regularly
}

// printIfChanged prints the progress of the latest state, unless it is the same as before.
func (f *executionFollower) printIfChanged() {
	if text := formatProgress(f.latest); text != f.printed {
		f.printed = text
		f.printToStderr("%s", text)
	}
}

// isDone reports whether nothing more is to follow.
func (f *executionFollower) isDone() bool {
	return executions.IsSettled(f.latest) || !f.pastApproval && isWaitingForApproval(f.latest)
}

// getSameExecutionWithRetry reads an execution and retries while the server is unavailable.
func getSameExecutionWithRetry(ctx context.Context, c *cluster, name string, uid types.UID) (*v1alpha1.KubernetesExecution, error) {
	for {
		if err := backoff.Sleep(ctx, restartDelay); err != nil {
			return nil, err
		}
		var ke v1alpha1.KubernetesExecution
		err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, &ke)
		switch {
		case err == nil && ke.UID == uid:
			return &ke, nil
		case err == nil || apierrors.IsNotFound(err):
			return nil, errGone
		case !isTransient(err):
			return nil, err
		}
	}
}

// isTransient reports whether a retry of the request may succeed.
func isTransient(err error) bool {
	if _, offline := errors.AsType[*url.Error](err); offline {
		return true
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return false
	}
	code := status.ErrStatus.Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusGone
}

// waitOptions configures the wait for an execution.
type waitOptions struct {
	wait         bool
	timeout      time.Duration
	pastApproval bool // go on while the execution waits for an approval
}

const waitHelp = `With --wait the command waits until the execution ends and exits with code
    0  if the action succeeded (rollback_ready or completed), or the dry run did
    1  if the execution failed, or a required postcondition failed
    3  if the execution is waiting for approval
  124  if --timeout is exceeded
The execution continues when the wait ends early.`

// printProgressUntilEnd prints the progress of an execution until it ends or needs an approval, and returns its last
// state. The error says why it did not succeed.
func printProgressUntilEnd(
	ctx context.Context, s *session, c *cluster, ke *v1alpha1.KubernetesExecution, w waitOptions,
) (latest *v1alpha1.KubernetesExecution, failure error) {
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.timeout, errWaitTimeout)
		defer cancel()
	}
	follower := &executionFollower{session: s, cluster: c, pastApproval: w.pastApproval, latest: ke}
	if err := follower.followUntilEnd(ctx); err != nil {
		return follower.latest, explainFollowError(err, follower.latest, w.timeout)
	}
	return follower.latest, resultError(s, follower.latest)
}

// explainFollowError adds the exit code and the next step to the error that ended the wait for an execution.
func explainFollowError(err error, last *v1alpha1.KubernetesExecution, timeout time.Duration) error {
	switch {
	case errors.Is(err, errWaitTimeout):
		phase := cmp.Or(string(last.Status.Phase), "new")
		timedOut := fmt.Errorf("timed out waiting for execution %q: its phase is %s after %s", last.Name, phase, timeout)
		return cli.NewError(timedOut, cli.CodeTimeout, "fleetloop exec describe "+last.Name+"   shows its status")
	case errors.Is(err, errGone):
		return cli.NewError(fmt.Errorf("execution %q was deleted", last.Name), cli.CodeFailed, "")
	case errors.Is(err, context.Canceled):
		continues := fmt.Errorf("execution %q continues: %w", last.Name, err)
		return cli.NewError(continues, cli.CodeInterrupted, "fleetloop exec cancel "+last.Name+"   cancels it")
	}
	return explainError(err, fmt.Sprintf("follow execution %q", last.Name))
}

// isWaitingForApproval reports whether an execution still lacks an approval, counting those already given.
func isWaitingForApproval(ke *v1alpha1.KubernetesExecution) bool {
	approved := ke.Status.Approval != nil && ke.Status.Approval.State == v1alpha1.ApprovalApproved
	return ke.Status.Phase == v1alpha1.PhaseWaitingApproval && !approved && ke.Status.ObservedGeneration >= ke.Generation
}

// formatProgress returns the progress of an execution in one line.
func formatProgress(ke *v1alpha1.KubernetesExecution) string {
	text := cmp.Or(string(ke.Status.Phase), "new")
	if d := ke.Status.ReasonDetail; d != "" {
		text += " (" + string(d) + ")"
	}
	if ke.Status.Message != "" {
		text += ": " + ke.Status.Message
	}
	return terminal.ReplaceUnprintable(text)
}

// resultError returns an error unless the execution achieved its goal. It warns of a failed optional postcondition.
func resultError(s *session, ke *v1alpha1.KubernetesExecution) error {
	describe := "fleetloop exec describe " + ke.Name + "   shows the details"
	reason := cmp.Or(ke.Status.Message, string(ke.Status.ReasonDetail), string(ke.Status.Reason))
	switch {
	case ke.Status.Phase == v1alpha1.PhaseWaitingApproval:
		waiting := fmt.Errorf("execution %q is waiting for approval", ke.Name)
		return cli.NewError(waiting, cli.CodePrecondition, "fleetloop approve "+ke.Name+"   shows the plan and approves it")
	case ke.Status.Phase == v1alpha1.PhaseFailed:
		return cli.NewError(fmt.Errorf("execution %q failed: %s", ke.Name, reason), cli.CodeFailed, describe)
	case ke.Status.Outcome == v1alpha1.OutcomeFailed:
		failed := fmt.Errorf("execution %q ran, but a required postcondition failed: %s", ke.Name, reason)
		return cli.NewError(failed, cli.CodeFailed, "fleetloop rollback "+ke.Name+"   rolls it back; "+describe)
	case ke.Status.Outcome == v1alpha1.OutcomePartial:
		s.printToStderr("warning: an optional postcondition failed")
	}
	return nil
}
