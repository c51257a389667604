package execcli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

type decideOptions struct {
	waitOptions

	decision     v1alpha1.ApprovalDecision
	reason, plan string
	yes          bool
	format       string
}

func newApproveCommand(s *session) *cobra.Command {
	o := decideOptions{decision: v1alpha1.Approve}
	cmd := &cobra.Command{
		Use:   "approve NAME",
		Short: "Approve the plan of an execution",
		Long: `Show the plan of an execution that is waiting for approval, ask for confirmation, and approve it
with your user name. The approval is valid only for this plan: if the plan changes, it must be
approved again. Approvers need the verb approve on kubernetesexecutions and must satisfy the policy.

` + waitHelp,
		Example: "  fleetloop approve scale-deployment-x7kq2 --reason='seen in the incident channel'\n" +
			"  fleetloop approve scale-deployment-x7kq2 --yes --plan=3f8a91c2d4e5",
		Args:              requireName,
		ValidArgsFunction: s.completeExecutionNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return runApproveOrReject(s, cmd, args[0], o) },
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "`text` that says why, for the audit")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation prompt")
	cmd.Flags().StringVar(&o.plan, "plan", "", "approve only if the plan has this `hash`; the first 12 digits are enough")
	o.addFlags(cmd)
	addOutputFlag(cmd, &o.format, changeOutputFormats())
	return cmd
}

func newRejectCommand(s *session) *cobra.Command {
	o := decideOptions{decision: v1alpha1.Reject, yes: true}
	cmd := &cobra.Command{
		Use:               "reject NAME --reason=TEXT",
		Short:             "Reject the plan of an execution; the execution fails",
		Example:           "  fleetloop reject scale-deployment-x7kq2 --reason='the budget is 3 replicas'",
		Args:              requireName,
		ValidArgsFunction: s.completeExecutionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.reason == "" {
				return usageErrorf(cmd, "--reason is required; the requester of the execution sees it")
			}
			return runApproveOrReject(s, cmd, args[0], o)
		},
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "`text` that says why, for the requester and the audit")
	addOutputFlag(cmd, &o.format, changeOutputFormats())
	return cmd
}

func runApproveOrReject(s *session, cmd *cobra.Command, name string, o decideOptions) error {
	const minHashLength = 12
	if err := cli.RejectImpersonation(cmd, "the record would show two people although one decides"); err != nil {
		return err
	}
	if err := cli.CheckFormat(cmd, o.format, changeOutputFormats()); err != nil {
		return err
	}
	if o.plan != "" && len(o.plan) < minHashLength {
		return usageErrorf(cmd, "--plan %s is too short: give at least %d digits of the hash of the plan", o.plan, minHashLength)
	}
	if !o.yes {
		next := "fleetloop exec describe " + name + "   shows the plan; --yes --plan=HASH approves it without a prompt"
		if err := s.env.RequireTerminal(next); err != nil {
			return err
		}
	}
	c, err := s.newClusterClient()
	if err != nil {
		return err
	}
	ke, err := c.getExecution(cmd.Context(), name)
	if err != nil {
		return err
	}
	if err := executions.CheckDecidable(ke, o.plan); err != nil {
		return explainStateError(err)
	}
	if !o.yes {
		if err := showAndConfirmPlan(s, ke); err != nil {
			return err
		}
	}
	if ke, err = saveDecision(cmd.Context(), c, ke, o); err != nil {
		return err
	}
	return printDecisionThenFollowIfAsked(s, cmd, c, ke, o)
}

var errNotApproved = errors.New("not approved")

// showAndConfirmPlan prints the plan and asks for confirmation. It returns an error if the answer is no.
func showAndConfirmPlan(s *session, ke *v1alpha1.KubernetesExecution) error {
	if err := WriteDecisionBasis(s.env.Stderr, ke, s.newOutputOptions()); err != nil {
		return err
	}
	s.printToStderr("")
	yes, err := s.env.Confirm(fmt.Sprintf("Approve plan %s?", executions.ShortHash(ke.Status.Plan.Hash)))
	if err != nil || yes {
		return err
	}
	return cli.NewError(errNotApproved, cli.CodeFailed, "fleetloop reject "+ke.Name+" --reason=TEXT   rejects it")
}

// saveDecision adds the decision to the approvals.
func saveDecision(
	ctx context.Context,
	c *cluster,
	ke *v1alpha1.KubernetesExecution,
	o decideOptions,
) (*v1alpha1.KubernetesExecution, error) {
	user, err := c.currentUser(ctx)
	if err != nil {
		return nil, err
	}
	approval := v1alpha1.Approval{Approver: user, Decision: o.decision, Reason: o.reason}
	decided, err := executions.Decide(ctx, c, ke, approval)
	if err != nil {
		doing := fmt.Sprintf("%s execution %q", strings.ToLower(string(o.decision)), ke.Name)
		return nil, c.explainErrorWithRole(err, doing, v1alpha1.ApproverRole)
	}
	return decided, nil
}

// printDecisionThenFollowIfAsked prints the decision and follows the execution with --wait.
func printDecisionThenFollowIfAsked(s *session, cmd *cobra.Command, c *cluster, ke *v1alpha1.KubernetesExecution, o decideOptions) error {
	if o.format == formatText {
		verb := "approved"
		if o.decision == v1alpha1.Reject {
			verb = "rejected"
		}
		if err := s.printToStdout("execution/%s %s (plan %s)", ke.Name, verb, executions.ShortHash(ke.Status.Plan.Hash)); err != nil {
			return err
		}
	}
	if o.wait {
		return s.followExecution(cmd, c, ke, o.format, o.waitOptions)
	}
	if o.format != formatText {
		return WriteExecutionObjectsOrNames(s.env.Stdout, o.format, []v1alpha1.KubernetesExecution{*ke}, true)
	}
	return nil
}
