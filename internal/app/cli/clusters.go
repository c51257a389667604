package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

func newClustersCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "clusters",
		Aliases: []string{"cluster"},
		Short:   "Show and control the sync of clusters to Gardener",

		SuggestionsMinimumDistance: 2,

		Args: RejectUnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSyncCommand(s), newRetryCommand(s), newPauseCommand(s), newResumeCommand(s))
	return cmd
}

type syncOptions struct {
	states    []string
	format    string
	noHeaders bool
	limit     int
}

// everyState selects all states.
const everyState = "all"

func stateFilterNames() []string {
	names := []string{everyState}
	for _, state := range v1.SyncStates() {
		names = append(names, string(state))
	}
	return names
}

func newSyncCommand(s *session) *cobra.Command {
	var o syncOptions
	cmd := &cobra.Command{
		Use:   "sync [NAME|ID ...]",
		Short: "Show the status of the sync of clusters to Gardener",
		Long: "Show the status of the sync to Gardener of the named clusters, or of all clusters that are not synced, longest\n" +
			"waiting first.\n\n" +
			"States: pending (waiting for a worker), running (a worker is syncing it), backing_off (failed, waiting for the\n" +
			"next attempt), stuck (failed 8 times in a row or more; still retried), paused, synced.",
		Example: "  fleetloop clusters sync\n" +
			"  fleetloop clusters sync eu-1 -o yaml\n" +
			"  fleetloop clusters sync --state stuck,backing_off -o wide",
		ValidArgsFunction: s.completeClusters,
		RunE:              func(cmd *cobra.Command, args []string) error { return showSyncs(s, cmd, args, o) },
	}
	cmd.Flags().StringSliceVar(&o.states, "state", nil, "show only clusters in these `states`, separated by commas, or all")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(stateFilterNames(), cobra.ShellCompDirectiveNoFileComp))
	AddOutputFlag(cmd, &o.format, getFormats())
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "do not print column headers")
	cmd.Flags().IntVar(&o.limit, "limit", 0, "maximum `number` of clusters; 0 for all")
	return cmd
}

func showSyncs(s *session, cmd *cobra.Command, args []string, o syncOptions) error {
	if err := CheckFormat(cmd, o.format, getFormats()); err != nil {
		return err
	}
	refs, err := parseClusterRefs(args)
	switch {
	case err != nil:
		return usageError(cmd, err)
	case o.limit < 0:
		return usageErrorf(cmd, "--limit %d is negative", o.limit)
	case len(refs) > 0 && len(o.states) > 0:
		return usageErrorf(cmd, "names cannot be combined with --state")
	}
	for _, state := range o.states {
		if !slices.Contains(stateFilterNames(), state) {
			return usageErrorf(cmd, "unknown state %q%s", state, resource.SuggestWords(state, stateFilterNames()))
		}
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	options := s.showOptions()
	options.Single = len(refs) == 1
	options.NoHeaders = o.noHeaders
	out := resource.NewSyncPrinter(s.env.Stdout, o.format, options)
	if len(refs) > 0 {
		return showNamedSyncs(cmd.Context(), client, refs, out)
	}
	return showSelectedSyncs(cmd.Context(), s, client, out, o)
}

// parseClusterRefs reads names and IDs of clusters, also in the form cluster/name.
func parseClusterRefs(args []string) ([]resource.Ref, error) {
	cluster := resource.Kinds()[0]
	names := []string{cluster.Collection}
	for _, arg := range args {
		if kind, name, ok := strings.Cut(arg, "/"); ok {
			if k, err := resource.ParseKind(kind); err == nil && k == cluster {
				arg = name
			}
		}
		names = append(names, arg)
	}
	_, refs, err := resource.ParseRefs(names, "")
	return refs, err
}

// showNamedSyncs prints the syncs that it found before it returns errors about the others.
func showNamedSyncs(ctx context.Context, client *fleetclient.Client, refs []resource.Ref, out resource.Printer[v1.ClusterSync]) error {
	var found []v1.ClusterSync
	var errs []error
	for _, ref := range refs {
		sync, err := resolveSync(ctx, client, ref)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, sync)
	}
	if len(found) > 0 {
		if err := errors.Join(out.Write(found), out.Close()); err != nil {
			return err
		}
	}
	return joinErrorsWithExitCode(errs, len(found))
}

// resolveSync returns the sync of the cluster that a reference names.
func resolveSync(ctx context.Context, client *fleetclient.Client, ref resource.Ref) (v1.ClusterSync, error) {
	cluster, err := resource.Resolve(ctx, client, ref)
	if err != nil {
		return v1.ClusterSync{}, err
	}
	return client.Syncs().Get(ctx, cluster.Resource.ID)
}

// showSelectedSyncs prints a list as it arrives, a page at once, and the total from which it was selected.
func showSelectedSyncs(
	ctx context.Context, s *session, client *fleetclient.Client, out resource.Printer[v1.ClusterSync], o syncOptions,
) error {
	seen := tally{states: map[v1.SyncState]int{}}
	states := defaultOrNamedSyncStates(o.states)
	var chunk []v1.ClusterSync
	for sync, err := range client.Syncs().List(ctx, fleetclient.SyncOptions{States: states}) {
		if err != nil {
			return err
		}
		if o.limit > 0 && seen.all == o.limit {
			seen.more = true
			break
		}
		seen.addSync(sync)
		chunk = append(chunk, sync)
		if len(chunk) == fleetclient.DefaultPageSize {
			if err := out.Write(chunk); err != nil {
				return err
			}
			chunk = chunk[:0]
		}
	}
	if err := errors.Join(out.Write(chunk), out.Close()); err != nil || !terminal.IsTableFormat(o.format) {
		return err
	}
	switch {
	case seen.more:
		s.printNote("More clusters exist; the list is limited by --limit %d.", o.limit)
	case len(o.states) == 0:
		return printUnsyncedCounts(ctx, s, client, seen)
	case seen.all == 0:
		s.printNote("No clusters are in state %s.", strings.Join(o.states, " or "))
	}
	return nil
}

// defaultOrNamedSyncStates returns the states to request; nil requests all. Without names these are all states except
// synced.
func defaultOrNamedSyncStates(names []string) []v1.SyncState {
	all := v1.SyncStates()
	switch {
	case slices.Contains(names, everyState):
		return nil
	case len(names) == 0:
		return slices.DeleteFunc(all, func(state v1.SyncState) bool { return state == v1.SyncSynced })
	}
	return slices.DeleteFunc(all, func(state v1.SyncState) bool { return !slices.Contains(names, string(state)) })
}

// tally counts syncs by state.
type tally struct {
	states        map[v1.SyncState]int
	all, unsynced int
	more          bool // more exist than were counted
}

func (t *tally) addSync(sync v1.ClusterSync) {
	t.all++
	t.states[sync.State]++
	if sync.Synced == nil {
		t.unsynced++
	}
}

// printUnsyncedCounts prints in one line how many clusters are not synced.
func printUnsyncedCounts(ctx context.Context, s *session, client *fleetclient.Client, seen tally) error {
	body, err := client.Raw().ListPage(ctx, v1.CollectionClusters, url.Values{"page": {"1"}, "size": {"1"}}, nil)
	if err != nil {
		return err
	}
	var page v1.List
	if err := json.Unmarshal(body, &page); err != nil {
		return fmt.Errorf("count clusters: %w: %w", fleetclient.ErrInvalidResponse, err)
	}
	total := int64(seen.all) // a lower bound
	if page.Total != nil {
		total = max(total, *page.Total)
	}
	var parts []string
	for _, state := range v1.SyncStates() {
		if n := seen.states[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	switch {
	case total == 0:
		s.printNoneFoundInScope(ctx, client, v1.CollectionClusters)
	case len(parts) == 0:
		s.printNote("All %d clusters are synced.", total)
	default:
		s.printNote("%d of %d clusters are not synced: %s.", seen.unsynced, total, strings.Join(parts, ", "))
	}
	return nil
}
