// Package faultcli holds the commands for faulty nodes of the host cluster.
//
// The command faults shows and releases nodes, and changes deliveries lists their undelivered
// change events. Both use only the Kubernetes API with the credentials of the user. The content of
// reports is untrusted: it is displayed only, without control sequences of a terminal.
package faultcli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/releasecli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// Commands returns the commands for the command line of package cli.
func Commands(env cli.Env) []*cobra.Command {
	s := newSession(env)
	faults := s.newFaultsCommand()
	s.where.AddFlags(faults.PersistentFlags())
	return []*cobra.Command{faults}
}

// DeliveriesCommand returns the command deliveries, which belongs below changes.
func DeliveriesCommand(env cli.Env) *cobra.Command {
	s := newSession(env)
	cmd := s.newDeliveriesCommand()
	s.where.AddFlags(cmd.Flags())
	return cmd
}

func newSession(env cli.Env) *session {
	if env.LookupEnv == nil {
		env.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if env.Now == nil {
		env.Now = time.Now
	}
	return &session{env: env}
}

// session is one running command.
type session struct {
	env   cli.Env
	where cli.HostFlags
}

func (s *session) newFaultsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "Show faulty nodes of the host cluster, and release them",
		Long: "Show the faulty nodes of the host cluster, the progress of their repair and what blocks it, and release\n" +
			"nodes. The data comes from the NodeFaults of node-fault-controller.",
		Example: "  fleetloop faults get\n" +
			"  fleetloop faults describe gpu-node-01\n" +
			"  fleetloop faults release gpu-node-01 --reason='the fan was replaced'",
		Args: cli.RejectUnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(s.newGetCommand(), s.newDescribeCommand(), s.newReleaseCommand())
	return cmd
}

// newReleaseCommand returns the command "release".
func (s *session) newReleaseCommand() *cobra.Command {
	cmd := releasecli.NewReleaseNodesCommand(releasecli.Env{
		Program:    "fleetloop faults",
		Stdout:     s.env.Stdout,
		Stderr:     s.env.Stderr,
		Now:        s.env.Now,
		Connect:    func() (client.Client, error) { return s.newClusterClient() },
		JoinErrors: cli.JoinHostErrorsWithExitCode,
		ExplainError: func(err error, doing, node string) error {
			if node != "" && apierrors.IsNotFound(err) {
				return cli.NewError(fmt.Errorf("node %q not found", node), cli.CodePrecondition, "kubectl get nodes   lists the nodes")
			}
			return explainHostError(err, doing)
		},
	})
	cmd.ValidArgsFunction = s.completeFaultyNodeNames
	return cmd
}

// printLineToStderr prints progress.
func (s *session) printLineToStderr(format string, args ...any) {
	_, _ = fmt.Fprintf(s.env.Stderr, format+"\n", args...) // a closed stderr is no error
}

// printLineToStdout writes a line of output.
func (s *session) printLineToStdout(format string, args ...any) error {
	_, err := fmt.Fprintf(s.env.Stdout, format+"\n", args...)
	return err
}

// paintIfColourEnabled applies a style if colours are enabled.
func (s *session) paintIfColourEnabled(style terminal.Style, text string) string {
	if !terminal.WantsColour(s.env.LookupEnv, s.env.Terminal) {
		return text
	}
	return style.Paint(text)
}

func newUsageError(cmd *cobra.Command, text string) error {
	return cli.NewUsageError(errors.New(text), cmd.CommandPath()+" --help")
}

func addValidatedOutputFlag(cmd *cobra.Command, format *string, formats ...string) {
	cli.AddOutputFlag(cmd, format, formats)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		return cli.CheckFormat(cmd, *format, formats)
	}
}

// isJSONOrYAML reports whether a format is for programs.
func isJSONOrYAML(format string) bool {
	return format == terminal.FormatJSON || format == terminal.FormatYAML
}
