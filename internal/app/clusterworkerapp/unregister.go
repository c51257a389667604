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

func newUnregisterCommand(out io.Writer, loadConfig func(*cobra.Command) (Config, error)) *cobra.Command {
	abandon := false
	cmd := &cobra.Command{
		Use:   "unregister",
		Short: "Allow clusters to be deleted without a cluster-worker",
		Long: `Remove the registration of the cluster-worker, so that clusters can be deleted
without one. The first start of a cluster-worker registers it in the database. From
then on, the row of a cluster is kept until a cluster-worker has confirmed that its
Shoot is deleted.

Delete the clusters and stop all cluster-workers first. Shoots that are left behind
keep running, and Fleetloop no longer tracks them.`,
		Example: `  cluster-worker unregister
  cluster-worker unregister --abandon-shoots`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return unregisterClusterWorker(cmd.Context(), cfg.Database, out, abandon)
		},
	}
	cmd.Flags().BoolVar(&abandon, "abandon-shoots", false, "unregister although clusters have Shoots; the Shoots keep running")
	return cmd
}

func unregisterClusterWorker(ctx context.Context, database postgres.Config, out io.Writer, abandonShoots bool) error {
	if database.URL == "" {
		return errNoDatabase
	}
	pool, err := postgres.New(database, slog.New(slog.DiscardHandler)) //nolint:contextcheck // it makes no idle connections
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pool.CheckSchemaNotBehindOrAltered(ctx); err != nil {
		return err
	}
	u, err := pgstore.New(pool).UnregisterClusterWorker(ctx, abandonShoots)
	switch {
	case err != nil:
		return err
	case u.Running != "":
		return fmt.Errorf(
			"unregister cluster-worker: %q is still running: stop all cluster-workers, wait one minute and retry",
			terminal.ReplaceUnprintable(u.Running),
		)
	case !u.Removed:
		return fmt.Errorf(
			"unregister cluster-worker: %s a Shoot whose deletion is not confirmed: delete the clusters and wait for a cluster-worker to finish, or use --abandon-shoots to leave the Shoots running",
			formatClustersHave(u.Guarded),
		)
	}
	_, _ = fmt.Fprintln(out, "No cluster-worker is registered. Clusters are deleted without one.")
	if u.Guarded > 0 {
		_, _ = fmt.Fprintf(out, "%s a Shoot that may still be running: delete those Shoots in Gardener.\n", formatClustersHave(u.Guarded))
	}
	return nil
}

func formatClustersHave(count int64) string {
	if count == 1 {
		return "1 cluster has"
	}
	return fmt.Sprintf("%d clusters have", count)
}
