package execcli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
)

type rollbackOptions struct {
	waitOptions

	reason, objectName, format string
}

func (s *session) rollbackCommand() *cobra.Command {
	var o rollbackOptions
	cmd := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Roll back an execution with another execution",
		Long: `Create an execution that reverts another one, with the action and parameters of its
status.rollbackInformation. It is checked, approved and audited like any other execution, and it
fails if the target has changed since.

` + waitHelp,
		Args:              requireName,
		ValidArgsFunction: s.completeExecutionNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return s.runRollback(cmd, args[0], o) },
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, for approvers and the audit")
	cmd.Flags().StringVar(&o.objectName, "name", "", "`name` of the new execution (default: name of the original and a suffix)")
	o.addFlags(cmd)
	addOutputFlag(cmd, &o.format, changeFormats())
	return cmd
}

func (s *session) runRollback(cmd *cobra.Command, name string, o rollbackOptions) error {
	if err := checkFormat(cmd, o.format, changeFormats()); err != nil {
		return err
	}
	c, err := s.connectCluster()
	if err != nil {
		return err
	}
	ke, err := c.getExecution(cmd.Context(), name)
	if err != nil {
		return err
	}
	if err := checkReversible(ke); err != nil {
		return err
	}
	return s.createExecution(cmd, newRollback(ke, o), o.format, o.waitOptions)
}

// checkReversible returns an error unless the execution can be rolled back.
func checkReversible(ke *v1alpha1.KubernetesExecution) error {
	r := ke.Status.RollbackInformation
	switch {
	case !IsSettled(ke):
		return cli.NewError(fmt.Errorf("execution %q has not ended: its phase is %s", ke.Name, cmp.Or(string(ke.Status.Phase), "new")), cli.CodePrecondition, "fleetloop exec cancel "+ke.Name+"   cancels it")
	case ke.Status.ExecutionResults == nil:
		return cli.NewError(fmt.Errorf("execution %q changed nothing, so there is nothing to roll back", ke.Name), cli.CodePrecondition, "")
	case r == nil:
		return cli.NewError(fmt.Errorf("execution %q ended without a known change, so there is nothing to roll back", ke.Name), cli.CodePrecondition, "fleetloop exec describe "+ke.Name+"   shows how it ended")
	case !r.Available:
		why := cmp.Or(r.Reason, ke.Spec.Action+" cannot be rolled back")
		return cli.NewError(fmt.Errorf("execution %q cannot be rolled back: %s", ke.Name, why), cli.CodePrecondition, "fleetloop exec describe "+ke.Name+"   shows the changes")
	}
	return nil
}

// newRollback returns the execution that rolls back another.
func newRollback(ke *v1alpha1.KubernetesExecution, o rollbackOptions) *v1alpha1.KubernetesExecution {
	const longest = 200 // leaves room for the suffix
	r := ke.Status.RollbackInformation
	back := &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Namespace: ke.Namespace, Name: o.objectName},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action: r.RollbackAction, Parameters: r.RollbackParameters,
			RollbackOf:  &v1alpha1.ObjectReference{Name: ke.Name, UID: ke.UID},
			Environment: ke.Spec.Environment, CorrelationID: ke.Spec.CorrelationID,
			Reason: cmp.Or(o.reason, "roll back "+ke.Name), DryRunMode: v1alpha1.DryRunPolicy,
		},
	}
	if o.objectName == "" {
		back.GenerateName = ke.Name[:min(len(ke.Name), longest)] + "-rollback-"
	}
	return back
}
