package execcli

import (
	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

func newActionsCommand(s *session) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "actions [NAME]",
		Short:             "List the available actions, or describe one",
		Example:           "  fleetloop exec actions\n  fleetloop exec actions scale_deployment",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeActionsAndParameters,
		RunE:              func(cmd *cobra.Command, args []string) error { return runActions(s, cmd, args, format) },
	}
	addOutputFlag(cmd, &format, listOutputFormats())
	return cmd
}

func runActions(s *session, cmd *cobra.Command, args []string, format string) error {
	if err := cli.CheckFormat(cmd, format, listOutputFormats()); err != nil {
		return err
	}
	list := action.Catalogue()
	if len(args) > 0 {
		a, ok := action.Find(args[0])
		if !ok {
			return unknownActionError(cmd, args[0])
		}
		list = []*action.Action{a}
	}
	switch {
	case format == terminal.FormatName:
		for _, a := range list {
			if err := s.printToStdout("%s", a.Name); err != nil {
				return err
			}
		}
		return nil
	case format == terminal.FormatJSON || format == terminal.FormatYAML:
		return cli.WriteYAMLOrJSON(s.env.Stdout, format, CatalogueValue(list, len(args) > 0))
	case len(args) > 0:
		return WriteActionDescription(s.env.Stdout, list[0], s.newOutputOptions())
	}
	return WriteActions(s.env.Stdout, list, format == terminal.FormatWide, s.newOutputOptions())
}
