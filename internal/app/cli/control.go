package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

// Problem codes of the API for syncs that cannot be retried.
const (
	codeSyncRunning = "sync_running"
	codeSyncPaused  = "sync_paused"
)

// controlAction is an action on the sync of a cluster.
type controlAction struct {
	verb string // as in "retry cluster/eu-1"
	do   func(*fleetclient.Syncs, context.Context, string, v1.SyncControl) (v1.ClusterSync, error)
	done string // as in "cluster/eu-1 retried"
}

// describeOutcome returns the result of the action.
func (st controlAction) describeOutcome(sync v1.ClusterSync) string {
	if sync.State == v1.SyncSynced && st.verb == "retry" {
		return "is already synced"
	}
	return st.done
}

type controlOptions struct {
	scope
	format   string
	allStuck bool
	reason   string
	duration time.Duration // of a pause; 0 for no end
}

// syncControl returns the reason and the end of a pause.
func (o controlOptions) syncControl(now time.Time) v1.SyncControl {
	c := v1.SyncControl{Reason: o.reason}
	if o.duration > 0 {
		until := now.Add(o.duration).UTC().Truncate(time.Second)
		c.Until = &until
	}
	return c
}

func newRetryCommand(s *session) *cobra.Command {
	var o controlOptions
	cmd := newControlCommand(s, controlAction{"retry", retrySync, "retried"}, &o)
	cmd.Short = "Retry the sync of clusters to Gardener now"
	cmd.Long = "Retry the sync of clusters to Gardener now instead of after their backoff, and reset their failure count.\n" +
		"Clusters that are being synced or are paused are skipped; if such a cluster was named, the command fails."
	cmd.Use = "retry NAME|ID ... | -l SELECTOR | --all-stuck"
	cmd.Example = "  fleetloop clusters retry eu-1\n  fleetloop clusters retry --all-stuck"
	cmd.Flags().BoolVar(&o.allStuck, "all-stuck", false, "retry all clusters that are stuck")
	return cmd
}

// retrySync is Syncs.Retry, which takes no reason.
//
//nolint:revive // the order of the parameters is that of a method expression
func retrySync(syncs *fleetclient.Syncs, ctx context.Context, id string, _ v1.SyncControl) (v1.ClusterSync, error) {
	return syncs.Retry(ctx, id)
}

func newPauseCommand(s *session) *cobra.Command {
	var o controlOptions
	cmd := newControlCommand(s, controlAction{"pause", (*fleetclient.Syncs).Pause, "paused"}, &o)
	cmd.Short = "Pause the sync of clusters to Gardener"
	cmd.Long = "Pause the sync of clusters to Gardener until 'fleetloop clusters resume', or for the time of --for.\n" +
		"The pause of a paused cluster gets the new reason and end."
	cmd.Example = "  fleetloop clusters pause eu-1 --reason 'network maintenance' --for 2h\n  fleetloop clusters pause -l region=eu"
	cmd.Flags().StringVar(&o.reason, "reason", "", "`text` that says why; shown with the cluster and its changes")
	cmd.Flags().DurationVar(&o.duration, "for", 0, "resume automatically after this `duration`, such as 2h; 0 means never")
	return cmd
}

func newResumeCommand(s *session) *cobra.Command {
	var o controlOptions
	cmd := newControlCommand(s, controlAction{"resume", (*fleetclient.Syncs).Resume, "resumed"}, &o)
	cmd.Flags().StringVar(&o.reason, "reason", "", "`text` that says why; shown with the changes of the cluster")
	cmd.Short = "Resume the sync of paused clusters to Gardener"
	cmd.Example = "  fleetloop clusters resume eu-1\n  fleetloop clusters resume -l region=eu"
	return cmd
}

func newControlCommand(s *session, st controlAction, o *controlOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:               st.verb + " NAME|ID ... | -l SELECTOR",
		ValidArgsFunction: s.completeClusters,
		RunE:              func(cmd *cobra.Command, args []string) error { return runControl(s, cmd, args, st, *o) },
	}
	cmd.Flags().StringVarP(&o.labels, "selector", "l", "", "label `selector`, for example region=us-east,tier!=test")
	addOutputFlag(cmd, &o.format, changeFormats())
	return cmd
}

func runControl(s *session, cmd *cobra.Command, args []string, st controlAction, o controlOptions) error {
	if err := CheckFormat(cmd, o.format, changeFormats()); err != nil {
		return err
	}
	refs, err := parseClusterRefs(args)
	ways := 0
	for _, given := range []bool{len(refs) > 0, o.labels != "", o.allStuck} {
		if given {
			ways++
		}
	}
	switch {
	case err != nil:
		return usageError(cmd, err)
	case o.duration < 0:
		return usageErrorf(cmd, "--for %s is negative", o.duration)
	case ways == 0:
		return usageErrorf(cmd, "give the clusters to %s by name or with -l", st.verb)
	case ways > 1:
		return usageErrorf(cmd, "names, -l and --all-stuck cannot be combined")
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	items, err := o.findClusters(cmd.Context(), client, refs)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		s.printNote("No clusters are stuck.")
	}
	return s.controlAll(cmd.Context(), client, st, items, o)
}

// findClusters finds all clusters before the first action.
func (o controlOptions) findClusters(ctx context.Context, client *fleetclient.Client, refs []resource.Ref) ([]resource.Item, error) {
	if !o.allStuck {
		return target{kind: resource.Kinds()[0], refs: refs, scope: o.scope}.findItems(ctx, client)
	}
	var items []resource.Item
	for sync, err := range client.Syncs().List(ctx, fleetclient.SyncOptions{States: []v1.SyncState{v1.SyncStuck}}) {
		if err != nil {
			return nil, err
		}
		i, err := resource.SyncItem(sync)
		if err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	return items, nil
}

func (s *session) controlAll(ctx context.Context, client *fleetclient.Client, st controlAction, items []resource.Item, o controlOptions) error {
	look := s.showOptions()
	named := o.labels == "" && !o.allStuck
	look.Single = named && len(items) == 1
	out := resource.NewSyncPrinter(s.env.Stdout, o.format, look)
	if o.format == formatText {
		out = controlPrinter{s, st}
	}
	control := o.syncControl(s.env.Now())
	var errs []error
	done := 0
	for _, i := range items {
		sync, err := st.do(client.Syncs(), ctx, i.Resource.ID, control)
		switch why := skipReason(err); {
		case err == nil:
			done++
			if err := out.Write([]v1.ClusterSync{sync}); err != nil {
				return err
			}
			continue
		case why != "" && !named:
			s.printNote("%s %s", i.KindAndName(), why)
			continue
		}
		errs = append(errs, fmt.Errorf("%s %s: %w", st.verb, i.KindAndName(), err))
		if errors.Is(err, fleetclient.ErrUnreachable) || ctx.Err() != nil {
			break // all others would fail alike
		}
	}
	if done > 0 || len(errs) == 0 {
		if err := out.Close(); err != nil {
			return err
		}
	}
	return joinErrorsWithExitCode(errs, done)
}

// skipReason returns why one of many clusters was left unchanged. It is empty if the error has
// another meaning.
func skipReason(err error) string {
	e, ok := errors.AsType[*fleetclient.Error](err)
	switch {
	case !ok:
	case e.Problem.Code == codeSyncRunning:
		return "is being synced now"
	case e.Problem.Code == codeSyncPaused:
		return "is paused"
	case fleetclient.IsNotFound(err):
		return "is gone"
	}
	return ""
}

// controlPrinter prints the action on each cluster.
type controlPrinter struct {
	s  *session
	st controlAction
}

// Write prints the action on each cluster.
func (p controlPrinter) Write(syncs []v1.ClusterSync) error {
	for _, sync := range syncs {
		if _, err := fmt.Fprintf(p.s.env.Stdout, "%s/%s %s\n", resource.Kinds()[0].Singular, sync.Name, p.st.describeOutcome(sync)); err != nil {
			return err
		}
	}
	return nil
}

// Close does nothing.
func (controlPrinter) Close() error { return nil }
