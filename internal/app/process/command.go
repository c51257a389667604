package process

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// NewConfigCommands returns the command "config", which shows the configuration in force and the schema
// of the file. load reads the configuration into cfg, and further reports become separate
// documents. With checks, which run after the load, the command "config check" is added.
func NewConfigCommands(
	component string, out io.Writer, load func(*cobra.Command) ([]*settings.Report, error), cfg any, checks ...func() error,
) *cobra.Command {
	config := &cobra.Command{Use: "config", Short: "Show the configuration", Args: cobra.NoArgs}
	config.AddCommand(newConfigShowCommand(out, load), newConfigSchemaCommand(component, out, cfg))
	if len(checks) > 0 {
		config.AddCommand(newConfigCheckCommand(out, load, checks))
	}
	return config
}

// newConfigShowCommand returns the command "config show".
func newConfigShowCommand(out io.Writer, load func(*cobra.Command) ([]*settings.Report, error)) *cobra.Command {
	var origins bool
	show := &cobra.Command{
		Use:   "show",
		Short: "Print the effective configuration, with secrets redacted",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reports, err := load(cmd)
			if err != nil {
				return err
			}
			for i, report := range reports {
				if i > 0 {
					if _, err := io.WriteString(out, "---\n"); err != nil {
						return err
					}
				}
				if err := report.WriteYAML(out, origins); err != nil {
					return err
				}
			}
			return nil
		},
	}
	show.Flags().BoolVar(&origins, "origins", false, "show the source of each value")
	return show
}

// newConfigSchemaCommand returns the command "config schema".
func newConfigSchemaCommand(component string, out io.Writer, cfg any) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := settings.Schema(cfg, component)
			if err != nil {
				return err
			}
			_, err = out.Write(text)
			return err
		},
	}
}

// newConfigCheckCommand returns the command "config check".
func newConfigCheckCommand(out io.Writer, load func(*cobra.Command) ([]*settings.Report, error), checks []func() error) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Validate the configuration without starting anything",
		Long: `Validate the configuration and the files that it names, without starting anything. The exit
status is 1 for every error, also for those that a starting process only logs, such as an
invalid change event sink.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := load(cmd); err != nil {
				return err
			}
			var errs []error
			for _, check := range checks {
				errs = append(errs, check())
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
			_, err := io.WriteString(out, "configuration is valid\n")
			return err
		},
	}
}
