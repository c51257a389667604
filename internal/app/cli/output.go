package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// formatText prints the result in a few words.
const formatText = "text"

func getFormats() []string {
	return []string{terminal.FormatTable, terminal.FormatWide, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName}
}

func watchFormats() []string {
	return []string{terminal.FormatTable, terminal.FormatWide, terminal.FormatJSON, terminal.FormatName}
}

func changeFormats() []string {
	return []string{formatText, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName}
}

func versionFormats() []string { return []string{formatText, terminal.FormatJSON} }

// CheckFormat returns a usage error if a format is not among those of a command.
func CheckFormat(cmd *cobra.Command, format string, formats []string) error {
	if slices.Contains(formats, format) {
		return nil
	}
	return usageErrorf(cmd, "unknown output format %q%s", format, resource.SuggestWords(format, withTemplates(formats)))
}

func (s *session) showOptions() resource.PrintOptions {
	return resource.PrintOptions{Colour: s.useColour(), Now: s.env.Now}
}

func (s *session) newChangedResourcePrinter(format string, single bool, doneVerb string) resource.Printer[resource.Item] {
	if format == formatText {
		return textPrinter{s.env.Stdout, doneVerb}
	}
	o := s.showOptions()
	o.Single = single
	return resource.NewPrinter(s.env.Stdout, format, resource.Kind{}, o)
}

type textPrinter struct {
	w    io.Writer
	verb string
}

// Write prints the action on each item.
func (p textPrinter) Write(items []resource.Item) error {
	for _, i := range items {
		if _, err := fmt.Fprintf(p.w, "%s %s\n", i.KindAndName(), p.verb); err != nil {
			return err
		}
	}
	return nil
}

func (textPrinter) Close() error { return nil }
