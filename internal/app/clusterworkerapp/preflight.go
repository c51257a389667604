package clusterworkerapp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	preflightPage  = 200
	preflightCalls = 8 // concurrent calls
)

func newPreflightCommand(out io.Writer, loadConfig func(*cobra.Command) (Config, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "preflight [CLUSTER...]",
		Short: "Check with Gardener whether clusters would be accepted (dry run)",
		Long: `Check that Gardener is reachable and grants the required permissions. Then build the
Shoot of every cluster in the database, or of the named clusters, and have Gardener
validate it (dryRun=All). Nothing is changed in Gardener or in the database. The output
lists Shoots that are missing and that a worker would create again.

The exit code is 1 if any check fails.`,
		Example: `  cluster-worker preflight
  cluster-worker preflight eu-west-07`,
		RunE: func(cmd *cobra.Command, names []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return checkAccessAndDryRunClusters(cmd.Context(), cfg.Part, out, names)
		},
	}
}

// errPreflight makes preflight exit with code 1.
var errPreflight = errors.New("preflight failed: see the errors above")

func checkAccessAndDryRunClusters(ctx context.Context, cfg Part, out io.Writer, clusterNames []string) error {
	if err := errors.Join(cfg.validateWithTrialWorker(), cfg.sinksConfigWithDefaults().ValidateSinks()); err != nil {
		return err
	}
	pool, err := postgres.New(cfg.Database, slog.New(slog.DiscardHandler)) //nolint:contextcheck // it makes no idle connections
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pool.CheckSchemaNotBehindOrAltered(ctx); err != nil {
		return err
	}
	store := pgstore.New(pool)
	installation, err := store.GetInstallationID(ctx)
	if err != nil {
		return err
	}

	// Open the garden, and check what the worker may do there.
	open, err := cfg.newGardenOpener()
	if err != nil {
		return err
	}
	garden, err := open(installation)
	if err != nil {
		return err
	}
	if client, ok := garden.(*gardener.Client); ok {
		defer client.Close()
		if !printAccessFindings(out, client.CheckAccess(ctx, cfg.Shoots.CredentialsBindingName)) {
			return errPreflight
		}
	}
	if err := cfg.checkRecordedGardenMatches(ctx, store, garden); err != nil {
		return err
	}

	// Check the clusters.
	project, err := garden.FindProjectName(ctx)
	if err != nil {
		return err
	}
	maker, err := cfg.newManifestMaker(installation, project)
	if err != nil {
		return err
	}
	check := &preflightChecker{garden: garden, maker: maker, out: out, names: clusterNames}
	if err := check.dryRunAndPrintSelectedClusters(ctx, store); err != nil {
		return err
	}
	return check.printNotFoundNamesAndTotals()
}

// checkRecordedGardenMatches rejects a garden other than the one with the Shoots.
func (c Part) checkRecordedGardenMatches(ctx context.Context, store *pgstore.Store, garden Garden) error {
	recorded, err := store.GetRecordedGarden(ctx)
	if err != nil {
		return err
	}
	configured, err := identifyGarden(ctx, garden)
	if err != nil {
		return err
	}
	if recorded != "" && recorded != configured && !c.MoveToGarden {
		return newGardenMismatchError(recorded, configured)
	}
	return nil
}

// printAccessFindings prints the findings and reports whether a worker could run.
func printAccessFindings(out io.Writer, findings []gardener.CheckResult) (noneBroken bool) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, f := range findings {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, terminal.ReplaceUnprintable(f.Subject), terminal.ReplaceUnprintable(f.Message))
	}
	_ = w.Flush()
	return !slices.ContainsFunc(findings, func(f gardener.CheckResult) bool { return f.Level == gardener.Broken })
}

// preflightChecker validates clusters against Gardener.
type preflightChecker struct {
	garden Garden
	maker  *manifest.Maker
	out    io.Writer
	names  []string // empty means all

	checked, rejected int
	checkedNames      []string // the names and ids of the checked clusters
}

// dryRunAndPrintSelectedClusters checks the clusters of the database, page by page.
func (c *preflightChecker) dryRunAndPrintSelectedClusters(ctx context.Context, store *pgstore.Store) error {
	lastID := ""
	for {
		page, err := store.ListClusters(ctx, lastID, preflightPage)
		if err != nil || len(page) == 0 {
			return err
		}
		lastID = page[len(page)-1].ClusterID
		selected := slices.DeleteFunc(page, func(cluster clusterworker.Claim) bool { return !c.isSelected(cluster) })
		if err := c.dryRunAndPrintPage(ctx, selected); err != nil {
			return err
		}
	}
}

// isSelected reports whether a cluster is named, or all are, and is not being deleted.
func (c *preflightChecker) isSelected(cluster clusterworker.Claim) bool {
	if cluster.Deleting {
		return false
	}
	return len(c.names) == 0 || slices.Contains(c.names, cluster.Name) || slices.Contains(c.names, cluster.ClusterID)
}

// dryRunAndPrintPage checks the clusters of a page in parallel and prints the results in order.
func (c *preflightChecker) dryRunAndPrintPage(ctx context.Context, page []clusterworker.Claim) error {
	// Both are in the order of the page.
	errs := make([]error, len(page))
	missing := make([]bool, len(page))
	slots := make(chan struct{}, preflightCalls)
	var calls sync.WaitGroup
	for i, cluster := range page {
		slots <- struct{}{} // wait for a free one
		calls.Go(func() {
			defer func() { <-slots }()
			errs[i] = c.dryRunCluster(ctx, cluster)
			if errs[i] == nil {
				missing[i], errs[i] = c.isSyncedShootMissing(ctx, cluster)
			}
		})
	}
	calls.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i, cluster := range page {
		c.checked++
		c.checkedNames = append(c.checkedNames, cluster.Name, cluster.ClusterID)
		name := terminal.ReplaceUnprintable(cluster.Name)
		switch {
		case errs[i] != nil:
			c.rejected++
			_, _ = fmt.Fprintf(c.out, "error   cluster %s (%s): %s\n", name, cluster.ClusterID, terminal.ReplaceUnprintable(errs[i].Error()))
		case missing[i]:
			_, _ = fmt.Fprintf(c.out, "missing cluster %s (%s): Shoot %q was synced and does not exist; the worker creates it again\n",
				name, cluster.ClusterID, cluster.ShootName)
		}
	}
	return nil
}

func (c *preflightChecker) dryRunCluster(ctx context.Context, cluster clusterworker.Claim) error {
	if cluster.ShootName == "" {
		cluster.ShootName = c.maker.DeriveShootName(cluster, 0)
	}
	m, err := c.maker.BuildManifest(cluster)
	if err != nil {
		return err
	}
	return c.garden.DryRunShoot(ctx, m)
}

// isSyncedShootMissing reports whether Gardener no longer has the Shoot of a cluster that was
// synced. After a restore, the cluster may be one that was deleted after the backup.
func (c *preflightChecker) isSyncedShootMissing(ctx context.Context, cluster clusterworker.Claim) (missing bool, err error) {
	if cluster.SyncedGeneration == 0 || cluster.ShootName == "" {
		return false, nil
	}
	_, err = c.garden.GetShoot(ctx, cluster.ShootName)
	if errors.Is(err, shoot.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// printNotFoundNamesAndTotals prints the named clusters that were not found, and the totals. It returns errPreflight if any
// was rejected.
func (c *preflightChecker) printNotFoundNamesAndTotals() (errIfRejected error) {
	for _, name := range c.names {
		if !slices.Contains(c.checkedNames, name) {
			c.rejected++
			_, _ = fmt.Fprintf(c.out, "error   cluster %s: not found, or being deleted\n", terminal.ReplaceUnprintable(name))
		}
	}
	_, _ = fmt.Fprintf(c.out, "clusters checked: %d, would be rejected: %d\n", c.checked, c.rejected)
	if c.rejected > 0 {
		return errPreflight
	}
	return nil
}
