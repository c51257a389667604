package clusterworkerapp

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

func unregisterCommand(out io.Writer, load func(*cobra.Command) (Config, error)) *cobra.Command {
	abandon := false
	cmd := &cobra.Command{
		Use:   "unregister",
		Short: "Record that this installation has no cluster-worker any more",
		Long: `Record that this installation has no cluster-worker any more, so that clusters can
be deleted without one. The first start of a cluster-worker records that there is one;
from then on the database keeps the row of a cluster until a cluster-worker has
confirmed that its Shoot is gone.

Stop all cluster-workers first. Delete the clusters first, too: Shoots that are left
behind run on, and nothing here knows of them any more.`,
		Example: `  cluster-worker unregister
  cluster-worker unregister --abandon-shoots`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			return runUnregister(cmd.Context(), cfg.Database, out, abandon)
		},
	}
	cmd.Flags().BoolVar(&abandon, "abandon-shoots", false, "do so although clusters have Shoots, which run on")
	return cmd
}

func runUnregister(ctx context.Context, database postgres.Config, out io.Writer, abandon bool) error {
	if database.URL == "" {
		return errNoDatabase
	}
	pool, err := postgres.New(database, slog.New(slog.DiscardHandler)) //nolint:contextcheck // it makes no idle connections
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pool.CheckSchema(ctx); err != nil {
		return err
	}
	u, err := pgstore.New(pool).Unregister(ctx, abandon)
	switch {
	case err != nil:
		return err
	case u.Running != "":
		return fmt.Errorf("cluster-worker %q is running, or was until a moment ago: stop all cluster-workers, wait a minute and try again", terminal.Clean(u.Running))
	case !u.Removed:
		return fmt.Errorf("%s a Shoot that is not confirmed gone: delete the clusters and let a cluster-worker finish, or give --abandon-shoots to leave the Shoots running",
			clustersHave(u.Guarded))
	}
	_, _ = fmt.Fprintln(out, "No cluster-worker is registered. Clusters are deleted without one.")
	if u.Guarded > 0 {
		_, _ = fmt.Fprintf(out, "%s a Shoot that may be running: remove those in Gardener.\n", clustersHave(u.Guarded))
	}
	return nil
}

func clustersHave(n int64) string {
	if n == 1 {
		return "1 cluster has"
	}
	return fmt.Sprintf("%d clusters have", n)
}
