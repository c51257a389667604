package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// suggestionDistance is the number of letters that may be wrong in the name of a command.
const suggestionDistance = 2

// RejectUnknownCommand is the check of the arguments of a command that only has commands below it. It suggests the
// nearest one.
func RejectUnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageErrorf(cmd, "unknown command %q%s", args[0], FormatCommandSuggestion(cmd, args[0]))
}

// FormatCommandSuggestion returns a question for the commands below cmd that a word probably means, or "".
func FormatCommandSuggestion(cmd *cobra.Command, word string) string {
	cmd.SuggestionsMinimumDistance = suggestionDistance
	like := cmd.SuggestionsFor(word)
	if len(like) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", strings.Join(like, " or "))
}

// addFlagSuggestion adds the flag that an unknown one probably means to its error.
func addFlagSuggestion(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if best := settings.Nearest(unknown.GetSpecifiedName(), names); best != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, best)
	}
	return err
}

func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "The exit codes of all commands",
		Long: exitCodeHelp() + "\n\n" +
			"A command on several objects that fails for all of them has the code of the first failure.\n" +
			"can-i, doctor and audit verify exit with 1 if the answer is no. exec, approve and rollback with --wait exit with the\n" +
			"result of the execution; their help has the codes. up has those of fleetloop-up, and a plugin has its own.",
	}
}

// newHelpCommand returns the command help. That of cobra succeeds for a command that does not exist.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "help [COMMAND]",
		Short:             "Help about any command",
		ValidArgsFunction: completeHelpTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			found := cmd.Root()
			for _, word := range args {
				next, rest, err := found.Find([]string{word})
				if err != nil || next == found || len(rest) > 0 {
					return RejectUnknownCommand(found, []string{word})
				}
				found = next
			}
			found.SetContext(cmd.Context())
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

func completeHelpTopics(cmd *cobra.Command, args []string, toComplete string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	parent, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, sub := range parent.Commands() {
		hasHelp := sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand()
		if hasHelp && strings.HasPrefix(sub.Name(), toComplete) {
			names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
