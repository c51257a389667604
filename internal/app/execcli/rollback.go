package execcli

import (
	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

type rollbackOptions struct {
	waitOptions

	reason, objectName, format string
}

func newRollbackCommand(s *session) *cobra.Command {
	var o rollbackOptions
	cmd := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Roll back an execution with another execution",
		Long: `Create an execution that reverts another one, with the action and parameters of its
status.rollbackInformation. It is checked, approved and audited like any other execution, and it
fails if the target has changed since.

` + waitHelp,
		Example:           "  fleetloop rollback scale-deployment-x7kq2 --reason='too many Pods' --wait",
		Args:              requireName,
		ValidArgsFunction: s.completeExecutionNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return runRollback(s, cmd, args[0], o) },
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "`text` that says why, for approvers and the audit")
	cmd.Flags().StringVar(&o.objectName, "name", "", "`name` of the new execution (default: name of the original and a suffix)")
	o.addFlags(cmd)
	addOutputFlag(cmd, &o.format, changeOutputFormats())
	return cmd
}

func runRollback(s *session, cmd *cobra.Command, name string, o rollbackOptions) error {
	if err := cli.CheckFormat(cmd, o.format, changeOutputFormats()); err != nil {
		return err
	}
	c, err := s.newClusterClient()
	if err != nil {
		return err
	}
	ke, err := c.getExecution(cmd.Context(), name)
	if err != nil {
		return err
	}
	if err := executions.CheckReversible(ke); err != nil {
		return explainStateError(err)
	}
	return createThenFollowIfAsked(s, cmd, executions.NewRollback(ke, o.objectName, o.reason), o.format, o.waitOptions)
}
