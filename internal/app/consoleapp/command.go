package consoleapp

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const binary = "console"

// NewCommand returns the command line of console.
func NewCommand(stdout, stderr io.Writer, env func(string) (string, bool)) *cobra.Command {
	cfg := OverriddenDefaults()
	var file string
	load := func(cmd *cobra.Command) (*settings.Report, error) {
		return settings.Load(&cfg, settings.Source{File: file, Env: env, Flags: cmd.Flags()})
	}
	root := &cobra.Command{
		Use:   binary,
		Short: "Serve the web console",
		Long: `Serve the web console. It signs people in and forwards their requests to the fleet API
with their own tokens, which stay on the server.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := load(cmd); err != nil {
				return err
			}
			return runConsoleUntilDone(cmd.Context(), cfg, stderr)
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentFlags().StringVar(&file, "config", "", "configuration file (YAML)")
	settings.AddFlags(root.PersistentFlags(), &cfg)
	root.AddCommand(process.NewConfigCommands(binary, stdout, func(cmd *cobra.Command) ([]*settings.Report, error) {
		report, err := load(cmd)
		return []*settings.Report{report}, err
	}, &cfg))
	terminal.AddVersionCommandAndFlag(root)
	return root
}

func runConsoleUntilDone(ctx context.Context, cfg Config, stderr io.Writer) error {
	p, err := process.New(ctx, binary, cfg.Process, stderr)
	if err != nil {
		return err
	}
	parts, url, err := BuildParts(ctx, p, cfg.Part, Overrides{})
	if err != nil {
		return err
	}
	p.Log.InfoContext(ctx, "console ready", "url", url)
	return p.Run(ctx, nil, parts...)
}
