package execcli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

// controlAction is a request to an existing execution.
type controlAction struct {
	verb string // as in "cancel execution"
	done string // as in "execution/x is being cancelled"
	// recordsUser is true if the execution records who requested the action.
	recordsUser bool
	// check returns why an execution does not support the action.
	check func(ke *v1alpha1.KubernetesExecution) error
	// send sends the request of user, which is empty unless recordsUser is true.
	send func(ctx context.Context, c client.Client, ke *v1alpha1.KubernetesExecution, user string) error
}

func newCancelCommand(s *session) *cobra.Command {
	cmd := newCancelOrFinalizeCommand(s, controlAction{
		verb:        "cancel",
		done:        "is being cancelled",
		recordsUser: true,
		check:       executions.CheckCancellable,
		send:        executions.Cancel,
	})
	cmd.Short = "Cancel executions"
	cmd.Example = "  fleetloop exec cancel scale-deployment-x7kq2"
	cmd.Long = "Cancel executions. An execution that has not started fails with reason cancelled. A running action is asked to\n" +
		"stop and reports what it has changed."
	return cmd
}

func newEndRollbackWindowCommand(s *session) *cobra.Command {
	cmd := newCancelOrFinalizeCommand(s, controlAction{
		verb:  "finalize",
		done:  "is being finalized",
		check: checkRollbackReady,
		send:  sendFinalize,
	})
	cmd.Short = "End the rollback window of executions"
	cmd.Example = "  fleetloop exec finalize scale-deployment-x7kq2"
	cmd.Long = "End the phase rollback_ready of executions: successful executions become completed, those with a failed\n" +
		"required postcondition become failed. Without this command it happens at the end of the rollback window."
	return cmd
}

// checkRollbackReady returns an error unless an execution is in phase rollback_ready.
func checkRollbackReady(ke *v1alpha1.KubernetesExecution) error {
	if ke.Status.Phase != v1alpha1.PhaseRollbackReady {
		return &executions.StateError{
			Message: fmt.Sprintf("execution %q is not in phase rollback_ready", ke.Name),
			Hint:    "fleetloop exec describe " + ke.Name + "   shows its status",
		}
	}
	return nil
}

func sendFinalize(ctx context.Context, c client.Client, ke *v1alpha1.KubernetesExecution, _ string) error {
	return c.Patch(ctx, ke, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"finalize":true}}`)))
}

func newCancelOrFinalizeCommand(s *session, action controlAction) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               action.verb + " NAME ...",
		Args:              requireNames,
		ValidArgsFunction: s.completeExecutionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runCancelOrFinalize(s, cmd, args, action, format)
		},
	}
	addOutputFlag(cmd, &format, changeOutputFormats())
	return cmd
}

func runCancelOrFinalize(s *session, cmd *cobra.Command, names []string, action controlAction, format string) error {
	if err := cli.CheckFormat(cmd, format, changeOutputFormats()); err != nil {
		return err
	}
	c, err := s.newClusterClient()
	if err != nil {
		return err
	}
	found, errs, err := c.findExecutions(cmd.Context(), names, selection{})
	if err != nil {
		return err
	}
	var user string
	if action.recordsUser {
		user, _ = c.currentUser(cmd.Context()) // a missing name must not delay a stop
	}

	// Errors about some executions are returned at the end, after the requests for all others.
	var changed []v1alpha1.KubernetesExecution
	for i := range found {
		ke := &found[i]
		if err := action.check(ke); err != nil {
			errs = append(errs, explainStateError(err))
			continue
		}
		if err := action.send(cmd.Context(), c, ke, user); err != nil {
			errs = append(errs, explainError(err, fmt.Sprintf("%s execution %q", action.verb, ke.Name)))
			continue
		}
		changed = append(changed, *ke)
		if format == formatText {
			if err := s.printToStdout("execution/%s %s", ke.Name, action.done); err != nil {
				return err
			}
		}
	}
	if format != formatText && len(changed) > 0 {
		if err := WriteExecutionObjectsOrNames(s.env.Stdout, format, changed, len(names) == 1); err != nil {
			return err
		}
	}
	return cli.JoinHostErrorsWithExitCode(errs, len(changed))
}

func newEmergencyStopCommand(s *session) *cobra.Command {
	var reason string
	var cancelRunning bool
	cmd := &cobra.Command{
		Use:     "stop --reason=TEXT",
		Short:   "Activate the emergency stop: no action starts until it ends",
		Example: "  fleetloop exec stop --reason='incident 4711'\n  fleetloop exec stop --reason='incident 4711' --cancel-running",
		Long: "Activate the emergency stop: no action starts until fleetloop exec end-stop. Running actions continue, unless\n" +
			"--cancel-running is set. The stop is stored in ConfigMap " + v1alpha1.EmergencyStop + ".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if reason == "" {
				return usageErrorf(cmd, "--reason is required: others need it to decide when to end the stop")
			}
			return runEmergencyStop(s, cmd, reason, cancelRunning)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that says why, for those who decide when to end the stop")
	cmd.Flags().BoolVar(&cancelRunning, "cancel-running", false, "also cancel running executions")
	return cmd
}

func runEmergencyStop(s *session, cmd *cobra.Command, reason string, cancelRunning bool) error {
	c, err := s.newClusterClient()
	if err != nil {
		return err
	}
	text := "emergency stop active: no action starts until fleetloop exec end-stop"
	if cancelRunning {
		text += ", running executions are being cancelled"
	}
	previousReason, wasActive, err := executions.ActivateEmergencyStop(cmd.Context(), c, c.namespace, reason, cancelRunning)
	if err != nil {
		return c.explainErrorWithRole(err, "stop", v1alpha1.AdministratorRole)
	}
	if wasActive {
		text += fmt.Sprintf("; the previous reason was %q", terminal.ReplaceUnprintable(previousReason))
	}
	return s.printToStdout("%s", text)
}

func newEndEmergencyStopCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:               "end-stop",
		Short:             "End the emergency stop",
		Example:           "  fleetloop exec end-stop",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.newClusterClient()
			if err != nil {
				return err
			}
			wasActive, err := executions.EndEmergencyStop(cmd.Context(), c, c.namespace)
			if err != nil {
				return c.explainErrorWithRole(err, "resume", v1alpha1.AdministratorRole)
			}
			if !wasActive {
				return s.printToStdout("the emergency stop was not active")
			}
			return s.printToStdout("emergency stop ended")
		},
	}
}
