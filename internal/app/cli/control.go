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
	// do acts on the cluster with an id.
	do   func(*fleetclient.Syncs, context.Context, string, v1.SyncControl) (v1.ClusterSync, error)
	done string // as in "cluster/eu-1 retried"
}

// describeOutcome returns the result of the action for people, as in "cluster/eu-1 retried".
func (a controlAction) describeOutcome(sync v1.ClusterSync) string {
	if sync.State == v1.SyncSynced && a.verb == "retry" {
		return "is already synced"
	}
	return a.done
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
	cmd := newControlCommand(s, controlAction{verb: "retry", do: retrySync, done: "retried"}, &o)
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
	cmd := newControlCommand(s, controlAction{verb: "pause", do: (*fleetclient.Syncs).Pause, done: "paused"}, &o)
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
	cmd := newControlCommand(s, controlAction{verb: "resume", do: (*fleetclient.Syncs).Resume, done: "resumed"}, &o)
	cmd.Flags().StringVar(&o.reason, "reason", "", "`text` that says why; shown with the changes of the cluster")
	cmd.Short = "Resume the sync of paused clusters to Gardener"
	cmd.Example = "  fleetloop clusters resume eu-1\n  fleetloop clusters resume -l region=eu"
	return cmd
}

func newControlCommand(s *session, action controlAction, o *controlOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:               action.verb + " NAME|ID ... | -l SELECTOR",
		ValidArgsFunction: s.completeClusters,
		RunE:              func(cmd *cobra.Command, args []string) error { return runControl(s, cmd, args, action, *o) },
	}
	cmd.Flags().StringVarP(&o.labels, "selector", "l", "", "label `selector`, for example region=us-east,tier!=test")
	AddOutputFlag(cmd, &o.format, changeFormats())
	return cmd
}

func runControl(s *session, cmd *cobra.Command, args []string, action controlAction, o controlOptions) error {
	if err := CheckFormat(cmd, o.format, changeFormats()); err != nil {
		return err
	}
	refs, err := parseClusterRefs(args)
	if err != nil {
		return usageError(cmd, err)
	}
	// The clusters are selected by exactly one of names, -l and --all-stuck.
	selectors := 0
	for _, given := range []bool{len(refs) > 0, o.labels != "", o.allStuck} {
		if given {
			selectors++
		}
	}
	switch {
	case o.duration < 0:
		return usageErrorf(cmd, "--for %s is negative", o.duration)
	case selectors == 0:
		return usageErrorf(cmd, "give the clusters to %s by name or with -l", action.verb)
	case selectors > 1:
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
	return s.controlAndPrintAll(cmd.Context(), client, action, items, o)
}

// findClusters finds all clusters before the first action, so that a misspelled name fails early.
func (o controlOptions) findClusters(ctx context.Context, client *fleetclient.Client, refs []resource.Ref) ([]resource.Item, error) {
	if !o.allStuck {
		return target{kind: resource.Kinds()[0], refs: refs, scope: o.scope}.findItems(ctx, client)
	}
	var items []resource.Item
	for sync, err := range client.Syncs().List(ctx, fleetclient.SyncOptions{States: []v1.SyncState{v1.SyncStuck}}) {
		if err != nil {
			return nil, err
		}
		item, err := resource.SyncItem(sync)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// controlAndPrintAll acts on each cluster and prints the results. A cluster whose state does not allow the action is
// an error only if the user named it.
func (s *session) controlAndPrintAll(
	ctx context.Context, client *fleetclient.Client, action controlAction, items []resource.Item, o controlOptions,
) error {
	named := o.labels == "" && !o.allStuck
	options := s.showOptions()
	options.Single = named && len(items) == 1
	out := resource.NewSyncPrinter(s.env.Stdout, o.format, options)
	if o.format == formatText {
		out = controlPrinter{s, action}
	}
	control := o.syncControl(s.env.Now())
	var errs []error
	done := 0
	for _, item := range items {
		sync, err := action.do(client.Syncs(), ctx, item.Resource.ID, control)
		if err == nil {
			done++
			if err := out.Write([]v1.ClusterSync{sync}); err != nil {
				return err
			}
			continue
		}
		if reason := skipReason(err); reason != "" && !named {
			s.printNote("%s %s", item.KindAndName(), reason)
			continue
		}
		errs = append(errs, fmt.Errorf("%s %s: %w", action.verb, item.KindAndName(), err))
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
	if !ok {
		return ""
	}
	switch {
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
	s      *session
	action controlAction
}

// Write prints the action on each cluster.
func (p controlPrinter) Write(syncs []v1.ClusterSync) error {
	for _, sync := range syncs {
		outcome := p.action.describeOutcome(sync)
		_, err := fmt.Fprintf(p.s.env.Stdout, "%s/%s %s\n", resource.Kinds()[0].Singular, sync.Name, outcome)
		if err != nil {
			return err
		}
	}
	return nil
}

func (controlPrinter) Close() error { return nil }
