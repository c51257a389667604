// Package execcli holds the commands for executions on the host cluster: exec, approve, reject,
// rollback, logs and related ones.
//
// It uses only the Kubernetes API with the credentials of the user, and makes no decisions: the API
// server and the controller decide which requests and approvals are valid. Their errors are shown
// with the next step.
//
// It writes executions for users and for programs: as tables, JSON, YAML, names and full
// descriptions. The content of an execution is untrusted. It is displayed only: tables and
// descriptions remove control sequences of a terminal.
//
// Commands wait with a watch and restart a broken connection. Ending the wait never stops an
// execution.
package execcli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// DefaultNamespace is the default namespace of executions.
const DefaultNamespace = "kubernaut-executor"

// Commands returns the commands for the command line of package cli.
func Commands(env cli.Env) []*cobra.Command {
	if env.LookupEnv == nil {
		env.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if env.Now == nil {
		env.Now = time.Now
	}
	s := &session{env: env}
	list := []*cobra.Command{newExecCommand(s), newApproveCommand(s), newRejectCommand(s), newRollbackCommand(s), newLogsCommand(s)}
	for _, cmd := range list {
		s.addConnectionFlags(cmd.PersistentFlags())
	}
	return list
}

// session is one running command.
type session struct {
	env   cli.Env
	where where
}

func (s *session) addConnectionFlags(flags *pflag.FlagSet) {
	s.where.AddFlags(flags)
	flags.StringVarP(&s.where.namespace, "namespace", "n", DefaultNamespace, "`namespace` of the executions")
}

// newOutputOptions returns the output options of this session.
func (s *session) newOutputOptions() OutputOptions {
	return OutputOptions{Colour: terminal.WantsColour(s.env.LookupEnv, s.env.Terminal), Now: s.env.Now(), Namespace: DefaultNamespace}
}

// printToStderr prints progress.
func (s *session) printToStderr(format string, args ...any) {
	_, _ = fmt.Fprintf(s.env.Stderr, format+"\n", args...) // a closed stderr is no error
}

// printToStdout writes a line of output.
func (s *session) printToStdout(format string, args ...any) error {
	_, err := fmt.Fprintf(s.env.Stdout, format+"\n", args...)
	return err
}

func usageErrorf(cmd *cobra.Command, format string, args ...any) error {
	return cli.NewUsageError(fmt.Errorf(format, args...), cmd.CommandPath()+" --help")
}

// requireNames requires at least one name of an execution.
func requireNames(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageErrorf(cmd, "at least one execution name is required")
	}
	return nil
}

// requireName requires the name of one execution.
func requireName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageErrorf(cmd, "exactly one execution name is required")
	}
	return nil
}

// completeActionsAndParameters completes the names of actions.
func completeActionsAndParameters(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []cobra.Completion
	if len(args) == 0 {
		for _, a := range action.Catalogue() {
			names = append(names, cobra.CompletionWithDesc(a.Name, a.Summary))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	if a, ok := action.Find(args[0]); ok {
		for _, p := range a.Parameters() {
			names = append(names, cobra.CompletionWithDesc(p.Name+"=", p.Doc))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completionTimeout limits the duration of a completion.
const completionTimeout = 2 * time.Second

// completeExecutionNames completes the names of executions. An unreachable cluster yields none, because a
// completion cannot show errors.
func (s *session) completeExecutionNames(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const files = cobra.ShellCompDirectiveNoFileComp
	if cli.SetHostFlagsFromContext(s.env, cmd) != nil {
		return nil, files
	}
	c, err := s.newClusterClient()
	if err != nil {
		return nil, files
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background() // cobra has no context if it was run without one
	}
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	list, err := c.listExecutions(ctx, selection{})
	if err != nil {
		return nil, files
	}
	var names []cobra.Completion
	for i := range list.Items {
		names = append(names, cobra.CompletionWithDesc(list.Items[i].Name, string(list.Items[i].Status.Phase)))
	}
	return names, files
}
