package cli

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/cli/show"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

func buildVersion() (version, revision string) { return telemetry.Version() }

func (s *session) versionCommand() *cobra.Command {
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
			version, revision := buildVersion()
			if format == show.JSON {
				enc := json.NewEncoder(s.env.Stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(map[string]string{
					"version": version, "revision": revision, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintf(s.env.Stdout, "fleetloop %s (revision %s, %s, %s/%s)\n", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	addOutputFlag(cmd, &format, versionFormats())
	return cmd
}
