// Package execcli is the part of the command line that asks for executions on
// the host cluster, and says how they stand: exec, approve, reject, rollback.
//
// It talks to the Kubernetes API alone, as whoever calls it, and decides
// nothing: what may be asked for and approved is for the API server and the
// controller to say. Their refusals are shown with what to do next.
//
// What a command waits for it is told by a watch; a connection that breaks is
// made anew. To stop waiting never stops an execution.
package execcli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/execcli/show"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// Env is the world around a command.
type Env struct {
	cli.Env

	// Interactive tells whether Stdin is a terminal, where questions are
	// answered.
	Interactive bool
}

// DefaultNamespace is where executions are, unless a flag says otherwise.
const DefaultNamespace = "kubernaut-executor"

// Commands are the commands, to be added to the command line of package cli.
func Commands(env Env) []*cobra.Command {
	if env.LookupEnv == nil {
		env.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if env.Now == nil {
		env.Now = time.Now
	}
	s := &session{env: env}
	list := []*cobra.Command{s.execCommand(), s.approveCommand(), s.rejectCommand(), s.rollbackCommand()}
	for _, cmd := range list {
		s.addConnectionFlags(cmd.PersistentFlags())
	}
	return list
}

// A session is one command under way.
type session struct {
	env   Env
	where where
}

func (s *session) addConnectionFlags(flags *pflag.FlagSet) {
	s.where.AddFlags(flags)
	flags.StringVarP(&s.where.namespace, "namespace", "n", DefaultNamespace, "`namespace` of the executions")
}

// showOptions is how this session shows things.
func (s *session) showOptions() show.Options {
	return show.Options{Colour: terminal.WantsColour(s.env.LookupEnv, s.env.Terminal), Now: s.env.Now(), Namespace: DefaultNamespace}
}

// printNote tells about progress.
func (s *session) printNote(format string, args ...any) {
	_, _ = fmt.Fprintf(s.env.Stderr, format+"\n", args...) // whoever closed it does not want to know
}

// printLine writes a line of what the command gives.
func (s *session) printLine(format string, args ...any) error {
	_, err := fmt.Fprintf(s.env.Stdout, format+"\n", args...)
	return err
}

func usageErrorf(cmd *cobra.Command, format string, args ...any) error {
	return cli.Usage(fmt.Errorf(format, args...), cmd.CommandPath()+" --help")
}

// requireNames wants names of executions, at least one.
func requireNames(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageErrorf(cmd, "at least one execution name is required")
	}
	return nil
}

// requireName wants the name of one execution.
func requireName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageErrorf(cmd, "exactly one execution name is required")
	}
	return nil
}

// completeActions completes the names of actions.
func completeActions(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
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

// completionTimeout is how much a completion is worth.
const completionTimeout = 2 * time.Second

// completeNames completes the names of executions. A cluster that cannot be
// asked has none; a completion is no place for errors.
func (s *session) completeNames(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const files = cobra.ShellCompDirectiveNoFileComp
	c, err := s.connectCluster()
	if err != nil {
		return nil, files
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background() // cobra completes without one when it was run without one
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
