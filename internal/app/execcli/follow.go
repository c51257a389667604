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

// again is the delay before a broken watch is restarted.
const again = time.Second

var errWaitTimeout = errors.New("timed out")

// errGone means that the followed execution was deleted.
var errGone = errors.New("the execution was deleted")

// watchExecution calls onState with the current state of an execution and after every change, until
// onState returns done.
func watchExecution(ctx context.Context, s *session, c *cluster, ke *v1alpha1.KubernetesExecution, onState func(*v1alpha1.KubernetesExecution) (done bool, err error)) error {
	uid := ke.UID
	for {
		if done, err := onState(ke); done || err != nil {
			return err
		}
		done, err := c.watchChanges(ctx, ke, onState)
		switch {
		case done || err != nil && !isTransient(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			s.printToStderr("watch interrupted, restarting: %v", err)
		}
		if ke, err = getSameExecutionWithRetry(ctx, c, ke.Name, uid); err != nil {
			return err
		}
	}
}

// watchChanges calls onState after every change of an execution until the watch ends.
func (c *cluster) watchChanges(ctx context.Context, ke *v1alpha1.KubernetesExecution, onState func(*v1alpha1.KubernetesExecution) (bool, error)) (done bool, err error) {
	options := selection{name: ke.Name}.listOptions(c.namespace)
	options.Raw.ResourceVersion = ke.ResourceVersion
	w, err := c.Watch(ctx, &v1alpha1.KubernetesExecutionList{}, options)
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		switch now, ok := e.Object.(*v1alpha1.KubernetesExecution); {
		case e.Type == watch.Error:
			return false, apierrors.FromObject(e.Object)
		case !ok:
		case e.Type == watch.Deleted || now.UID != ke.UID:
			return false, errGone
		default:
			if done, err := onState(now); done || err != nil {
				return true, err
			}
		}
	}
	return false, nil // servers end watches regularly
}

// getSameExecutionWithRetry reads an execution and retries while the server is unavailable.
func getSameExecutionWithRetry(ctx context.Context, c *cluster, name string, uid types.UID) (*v1alpha1.KubernetesExecution, error) {
	for {
		if err := backoff.Sleep(ctx, again); err != nil {
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
	wait    bool
	timeout time.Duration
	through bool // also wait for an approval
}

const waitHelp = `With --wait the command waits until the execution ends and exits with code
    0  if the action succeeded (rollback_ready or completed), or the dry run did
    1  if the execution failed, or a required postcondition failed
    3  if the execution is waiting for approval
  124  if --timeout is exceeded
The execution continues when the wait ends early.`

// printProgressUntilEnd prints the progress of an execution until it ends or needs an approval. The
// error says why it did not succeed.
func printProgressUntilEnd(ctx context.Context, s *session, c *cluster, ke *v1alpha1.KubernetesExecution, w waitOptions) (*v1alpha1.KubernetesExecution, error) {
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.timeout, errWaitTimeout)
		defer cancel()
	}
	last, said := ke, ""
	err := watchExecution(ctx, s, c, ke, func(now *v1alpha1.KubernetesExecution) (bool, error) {
		last = now
		if text := formatProgress(now); text != said {
			said = text
			s.printToStderr("%s", text)
		}
		return executions.IsSettled(now) || !w.through && isWaitingForApproval(now), nil
	})
	describe := "fleetloop exec describe " + ke.Name + "   shows its status"
	switch {
	case errors.Is(err, errWaitTimeout):
		return last, cli.NewError(fmt.Errorf("timed out waiting for execution %q: its phase is %s after %s", ke.Name, cmp.Or(string(last.Status.Phase), "new"), w.timeout), cli.CodeTimeout, describe)
	case errors.Is(err, errGone):
		return last, cli.NewError(fmt.Errorf("execution %q was deleted", ke.Name), cli.CodeFailed, "")
	case errors.Is(err, context.Canceled):
		return last, cli.NewError(fmt.Errorf("execution %q continues: %w", ke.Name, err), cli.CodeInterrupted, "fleetloop exec cancel "+ke.Name+"   cancels it")
	case err != nil:
		return last, explainError(err, fmt.Sprintf("follow execution %q", ke.Name))
	}
	return last, resultError(s, last)
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

// resultError returns an error unless the execution achieved its goal.
func resultError(s *session, ke *v1alpha1.KubernetesExecution) error {
	describe := "fleetloop exec describe " + ke.Name + "   shows the details"
	why := cmp.Or(ke.Status.Message, string(ke.Status.ReasonDetail), string(ke.Status.Reason))
	switch {
	case ke.Status.Phase == v1alpha1.PhaseWaitingApproval:
		return cli.NewError(fmt.Errorf("execution %q is waiting for approval", ke.Name), cli.CodePrecondition, "fleetloop approve "+ke.Name+"   shows the plan and approves it")
	case ke.Status.Phase == v1alpha1.PhaseFailed:
		return cli.NewError(fmt.Errorf("execution %q failed: %s", ke.Name, why), cli.CodeFailed, describe)
	case ke.Status.Outcome == v1alpha1.OutcomeFailed:
		return cli.NewError(fmt.Errorf("execution %q ran, but a required postcondition failed: %s", ke.Name, why), cli.CodeFailed, "fleetloop rollback "+ke.Name+"   rolls it back; "+describe)
	case ke.Status.Outcome == v1alpha1.OutcomePartial:
		s.printToStderr("warning: an optional postcondition failed")
	}
	return nil
}
