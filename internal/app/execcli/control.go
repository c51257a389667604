package execcli

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

// controlAction is a request to an existing execution.
type controlAction struct {
	verb, field, done string
	name              string // the field that says who, if there is one
	// refuses returns why an execution does not support the action, or an empty text.
	refuses func(ke *v1alpha1.KubernetesExecution) string
}

// maxName is the maximum length of a user name in an execution.
const maxName = 253

// newPatch returns the patch of the request, with the name of the user if known.
func (st controlAction) newPatch(ke *v1alpha1.KubernetesExecution, by string) client.Patch {
	asked := map[string]any{st.field: true}
	if st.name != "" && by != "" && utf8.RuneCountInString(by) <= maxName && !ke.Spec.Cancel { // a cancelled execution keeps its name or its lack of one
		asked[st.name] = by
	}
	return client.RawPatch(types.MergePatchType, encodePatch(map[string]any{"spec": asked}))
}

func (s *session) cancelCommand() *cobra.Command {
	cmd := s.controlCommand(controlAction{"cancel", "cancel", "is being cancelled", "cancelledBy", func(ke *v1alpha1.KubernetesExecution) string {
		if IsSettled(ke) {
			return "has already ended"
		}
		return ""
	}})
	cmd.Short = "Cancel executions"
	cmd.Long = "Cancel executions. An execution that has not started fails with reason cancelled. A running action is asked to\n" +
		"stop and reports what it has changed."
	return cmd
}

func (s *session) finalizeCommand() *cobra.Command {
	cmd := s.controlCommand(controlAction{"finalize", "finalize", "is being finalized", "", func(ke *v1alpha1.KubernetesExecution) string {
		if ke.Status.Phase != v1alpha1.PhaseRollbackReady {
			return "is not in phase rollback_ready"
		}
		return ""
	}})
	cmd.Short = "End the rollback window of executions"
	cmd.Long = "End the phase rollback_ready of executions: successful executions become completed, those with a failed\n" +
		"required postcondition become failed. Without this command it happens at the end of the rollback window."
	return cmd
}

func (s *session) controlCommand(st controlAction) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               st.verb + " NAME ...",
		Args:              requireNames,
		ValidArgsFunction: s.completeExecutionNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return s.runControl(cmd, args, st, format) },
	}
	addOutputFlag(cmd, &format, changeFormats())
	return cmd
}

func (s *session) runControl(cmd *cobra.Command, args []string, st controlAction, format string) error {
	if err := checkFormat(cmd, format, changeFormats()); err != nil {
		return err
	}
	c, err := s.connectCluster()
	if err != nil {
		return err
	}
	found, errs, err := c.findExecutions(cmd.Context(), args, selection{})
	if err != nil {
		return err
	}
	var me string
	if st.name != "" {
		if me, err = c.currentUser(cmd.Context()); err != nil {
			me = "" // a missing name must not delay a stop
		}
	}
	var changed []v1alpha1.KubernetesExecution
	for i := range found {
		ke := &found[i]
		if why := st.refuses(ke); why != "" {
			errs = append(errs, cli.NewError(fmt.Errorf("execution %q %s", ke.Name, why), cli.CodePrecondition, "fleetloop exec describe "+ke.Name+"   shows its status"))
			continue
		}
		if err := c.Patch(cmd.Context(), ke, st.newPatch(ke, me)); err != nil {
			errs = append(errs, explainError(err, fmt.Sprintf("%s execution %q", st.verb, ke.Name)))
			continue
		}
		changed = append(changed, *ke)
		if format == formatText {
			if err := s.printLine("execution/%s %s", ke.Name, st.done); err != nil {
				return err
			}
		}
	}
	if format != formatText && len(changed) > 0 {
		if err := WriteExecutions(s.env.Stdout, format, changed, len(args) == 1); err != nil {
			return err
		}
	}
	return cli.JoinHostErrors(errs, len(changed))
}

func (s *session) stopCommand() *cobra.Command {
	var reason string
	var running bool
	cmd := &cobra.Command{
		Use:   "stop --reason=TEXT",
		Short: "Activate the emergency stop: no action starts until it is resumed",
		Long: "Activate the emergency stop: no action starts until fleetloop exec resume. Running actions continue, unless\n" +
			"--cancel-running is set. The stop is stored in ConfigMap " + v1alpha1.EmergencyStop + ".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if reason == "" {
				return usageErrorf(cmd, "--reason is required: others need it to decide when to resume")
			}
			return s.runStop(cmd, reason, running)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for those who decide when to resume")
	cmd.Flags().BoolVar(&running, "cancel-running", false, "also cancel running executions")
	return cmd
}

func (s *session) runStop(cmd *cobra.Command, reason string, cancelRunning bool) error {
	c, err := s.connectCluster()
	if err != nil {
		return err
	}
	data := map[string]string{v1alpha1.StopReason: reason, v1alpha1.StopRunning: fmt.Sprint(cancelRunning)}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: v1alpha1.EmergencyStop}, Data: data}
	text := "emergency stop active: no action starts until fleetloop exec resume"
	if cancelRunning {
		text += ", running executions are being cancelled"
	}
	err = c.Create(cmd.Context(), m)
	if apierrors.IsAlreadyExists(err) {
		var before string
		before, err = c.replaceStopReason(cmd.Context(), m.Name, data)
		text += fmt.Sprintf("; the previous reason was %q", terminal.Clean(before))
	}
	if err != nil {
		return c.explainRefusal(err, "stop", roles.AdministratorRole)
	}
	return s.printLine("%s", text)
}

// replaceStopReason replaces the reason of a stop and returns the earlier one, because a resume must
// consider both.
func (c *cluster) replaceStopReason(ctx context.Context, name string, data map[string]string) (before string, err error) {
	m := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, m); err != nil {
		return "", err
	}
	before = m.Data[v1alpha1.StopReason]
	return before, c.Patch(ctx, m, client.RawPatch(types.MergePatchType, encodePatch(map[string]any{"data": data})))
}

func (s *session) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "End the emergency stop",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.connectCluster()
			if err != nil {
				return err
			}
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: v1alpha1.EmergencyStop}}
			switch err := c.Delete(cmd.Context(), m); {
			case apierrors.IsNotFound(err):
				return s.printLine("the emergency stop was not active")
			case err != nil:
				return c.explainRefusal(err, "resume", roles.AdministratorRole)
			}
			return s.printLine("resumed")
		},
	}
}
