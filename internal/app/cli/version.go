package cli

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/version"
)

func newVersionCommand(s *session) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "version",
		Short:             "Print the version",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(cmd, format, versionFormats()); err != nil {
				return err
			}
			build := version.Get()
			if format == terminal.FormatJSON {
				enc := json.NewEncoder(s.env.Stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(map[string]string{
					"version": build.Version, "revision": build.Revision, "go": build.Go, "platform": build.Platform,
				})
			}
			_, err := io.WriteString(s.env.Stdout, build.Text("fleetloop"))
			return err
		},
	}
	addOutputFlag(cmd, &format, versionFormats())
	return cmd
}
