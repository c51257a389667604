package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// errRefused is the exit code of an answer no.
var errRefused = errors.New("not permitted")

func verbNames() []string {
	var names []string
	for _, verb := range v1.Verbs() {
		names = append(names, string(verb))
	}
	return names
}

func newCanICommand(s *session) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "can-i VERB KIND [NAME|ID]",
		Short: "Check whether you may do something in the fleet API",
		Long: "Check whether you may use a verb on resources of a kind, or on one resource. Prints yes, or no and the reason.\n" +
			"The exit code is 0 for yes and 1 for no or a failure.\n\n" +
			"Verbs: get, list, create, patch, delete; retry, pause and resume for the sync of clusters; report for adapters.",
		Example: "  fleetloop can-i create clusters\n  fleetloop can-i pause cluster eu-1 --quiet && fleetloop clusters pause eu-1",
		Args:    cobra.RangeArgs(2, 3),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return verbNames(), cobra.ShellCompDirectiveNoFileComp
			}
			return s.completeKindOrName(cmd, args[1:], toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runCanI(s, cmd, args, quiet) },
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing; the exit code is the answer")
	return cmd
}

func runCanI(s *session, cmd *cobra.Command, args []string, quiet bool) error {
	verb, name := args[0], ""
	if !slices.Contains(verbNames(), verb) {
		return usageErrorf(cmd, "unknown verb %q%s", verb, resource.SuggestWords(verb, verbNames()))
	}
	k, err := resource.ParseKind(args[1])
	if err != nil {
		return usageError(cmd, err)
	}
	if len(args) > 2 {
		name = args[2]
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	answer, err := client.CanI(cmd.Context(), v1.Verb(verb), k.Collection, name)
	switch {
	case fleetclient.IsNotFound(err):
		return &failure{
			err: fmt.Errorf("the server does not support can-i: %w", err), code: CodeFailed, next: "use a fleet API of the same release",
		}
	case err != nil:
		return err
	}
	if !quiet {
		text := "yes"
		if !answer.Allowed {
			text = "no: " + terminal.ReplaceUnprintable(answer.Reason)
		}
		if _, err := fmt.Fprintln(s.env.Stdout, text); err != nil {
			return err
		}
	}
	if !answer.Allowed {
		return errRefused
	}
	return nil
}
