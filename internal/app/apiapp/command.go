package apiapp

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// NewCommand returns the command line of fleet-api.
func NewCommand(stdout, stderr io.Writer, env func(string) (string, bool)) *cobra.Command {
	cfg := OverriddenDefaults()
	var file string
	load := func(cmd *cobra.Command) (*settings.Report, error) {
		return settings.Load(&cfg, settings.Source{File: file, Env: env, Flags: cmd.Flags()})
	}

	root := &cobra.Command{
		Use:           "fleet-api",
		Short:         "Serve the fleet API on PostgreSQL",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := load(cmd); err != nil {
				return err
			}
			return runAPIUntilDone(cmd.Context(), cfg, stderr)
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentFlags().StringVar(&file, "config", "", "configuration file (YAML)")
	settings.AddFlags(root.PersistentFlags(), &cfg)

	root.AddCommand(
		&cobra.Command{
			Use: "migrate", Short: "Migrate the database schema and exit", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if _, err := load(cmd); err != nil {
					return err
				}
				return migrateDatabase(cmd.Context(), cfg, stderr)
			},
		},
		process.NewConfigCommands("fleet-api", stdout, func(cmd *cobra.Command) ([]*settings.Report, error) {
			report, err := load(cmd)
			return []*settings.Report{report}, err
		}, &cfg),
	)
	terminal.AddVersionCommandAndFlag(root)
	return root
}

func runAPIUntilDone(ctx context.Context, cfg Config, stderr io.Writer) error {
	p, err := process.New(ctx, "fleet-api", cfg.Process, stderr)
	if err != nil {
		return err
	}
	parts, addr, err := BuildParts(ctx, p, cfg.Part)
	if err != nil {
		return err
	}
	p.Log.InfoContext(ctx, "listening", "server", "fleet API", "addr", addr)
	return p.Run(ctx, nil, parts...)
}

func migrateDatabase(ctx context.Context, cfg Config, stderr io.Writer) error {
	if cfg.Database.URL == "" {
		return errNoDatabase
	}
	p, err := process.New(ctx, "fleet-api", cfg.Process, stderr)
	if err != nil {
		return err
	}
	return postgres.MigrateSchema(ctx, cfg.Database, p.Log)
}
