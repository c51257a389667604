package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

type watchOptions struct {
	interval time.Duration
}

func (o *watchOptions) addWatchFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&o.interval, "interval", time.Second, "`duration` between two checks")
}

func newWatchCommand(s *session) *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "watch KIND [NAME|ID ...]",
		Short: "Watch resources",
		Long: "Show resources and then their changes, until interrupted or until all named resources are deleted.\n\n" +
			"A row is printed again when a value other than an age changes. With -o json, each line is an object with the\n" +
			"type of the change (ADDED, MODIFIED, DELETED) and the resource, for every change.",
		Example:           "  fleetloop watch clusters -l region=us-east\n  fleetloop watch cluster eu-1 -o json",
		ValidArgsFunction: s.completeKindOrName,
		RunE:              func(cmd *cobra.Command, args []string) error { return runWatch(s, cmd, args, o) },
	}
	o.addFlags(s, cmd, true)
	AddOutputFlag(cmd, &o.format, watchFormats())
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "do not print column headers")
	o.addWatchFlags(cmd)
	return cmd
}

func runWatch(s *session, cmd *cobra.Command, args []string, o getOptions) error {
	if err := CheckFormat(cmd, o.format, watchFormats()); err != nil {
		return err
	}
	switch {
	case o.interval <= 0:
		return usageErrorf(cmd, "--interval %s is not positive; use a duration such as 2s", o.interval)
	case o.limit != 0:
		return usageErrorf(cmd, "--limit cannot be combined with --watch")
	case o.sortBy != "":
		return usageErrorf(cmd, "--sort-by cannot be combined with --watch")
	}
	what, err := o.parseTarget(cmd, args)
	if err != nil {
		return err
	}
	for _, r := range what.refs {
		if r.Kind != what.kind {
			return usageErrorf(
				cmd,
				"--watch supports one kind of resource, but %s and %s are given; watch them one after the other",
				what.kind.Collection,
				r.Kind.Collection,
			)
		}
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	w, err := s.newWatcher(cmd.Context(), client, what, o)
	if err != nil {
		return err
	}
	return w.pollUntilGone(cmd.Context())
}

// watcher prints changes since its last poll. It watches the named resources or, without names, those of the
// selection.
type watcher struct {
	*session
	client    *fleetclient.Client
	named     []resource.Item
	selection resource.Selection
	kind      resource.Kind
	format    string
	interval  time.Duration
	printer   resource.Printer[resource.Item]
	owners    map[string]string // names of parents by id

	seen   map[string]watched // by id
	round  int
	failed bool // the last poll failed
}

// watched is a resource as a poll has seen it.
type watched struct {
	state string // as stateToCompare returns it
	item  resource.Item
	round int // in which it was last seen
}

// newWatcher returns a watcher of a target. It resolves names once and then uses IDs, so that a new
// resource with the same name is not mistaken for the old one.
func (s *session) newWatcher(ctx context.Context, client *fleetclient.Client, what target, o getOptions) (*watcher, error) {
	w := &watcher{
		session:  s,
		client:   client,
		kind:     what.kind,
		format:   o.format,
		interval: o.interval,
		printer:  s.newPrinter(what.kind, false, o),
		owners:   map[string]string{},
		seen:     map[string]watched{},
	}
	var err error
	if len(what.refs) > 0 {
		w.named, err = what.findItems(ctx, client)
	} else {
		w.selection, err = what.newSelection(ctx, client, what.kind)
	}
	return w, err
}

// pollUntilGone polls until ctx ends, which is the normal end of a watch, or until all named
// resources are gone.
func (w *watcher) pollUntilGone(ctx context.Context) error {
	for ctx.Err() == nil {
		pause, err := w.pollOnce(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if len(w.named) > 0 && len(w.seen) == 0 && !w.failed {
			return nil
		}
		_ = backoff.Sleep(ctx, pause) // the loop checks ctx
	}
	return nil
}

// pollOnce polls once and returns the pause before the next poll. It retries if the server is
// unreachable or overloaded, and returns permanent errors.
func (w *watcher) pollOnce(ctx context.Context) (pause time.Duration, err error) {
	w.round++
	err = w.readAndPrintChanged(ctx)
	if err == nil {
		w.failed = false
		return w.interval, w.printDeleted()
	}
	if ctx.Err() != nil || !fleetclient.IsTransient(err) {
		return 0, err
	}
	if !w.failed { // warn once for failures in a row
		w.failed = true
		w.printNote("warning: %v; retrying every %s", err, w.interval)
	}
	return max(w.interval, retryAfter(err)), nil
}

// readAndPrintChanged reads all watched resources and prints those that are new or have changed.
func (w *watcher) readAndPrintChanged(ctx context.Context) error {
	if len(w.named) == 0 {
		for items, err := range resource.ListPages(ctx, w.client, w.selection) {
			if err != nil {
				return err
			}
			if err := w.printAddedAndModified(ctx, items); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range w.named {
		now, gone, err := resource.ReadAgain(ctx, w.client, item)
		if err != nil {
			return err
		}
		if gone {
			continue // printDeleted notices it
		}
		if err := w.printAddedAndModified(ctx, []resource.Item{now}); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) printAddedAndModified(ctx context.Context, items []resource.Item) error {
	if showsOwners(w.kind, w.format) {
		resource.ReplaceOwnerIDsWithNames(ctx, w.client, items, w.owners)
	}
	var changed []resource.Item
	var types []string // of the changes, in the same order
	for _, item := range items {
		id := item.Resource.ID
		before, known := w.seen[id]
		now := watched{state: w.stateToCompare(item), item: item, round: w.round}
		w.seen[id] = now
		switch {
		case !known:
			types = append(types, "ADDED")
		case before.state != now.state:
			types = append(types, "MODIFIED")
		default:
			continue
		}
		changed = append(changed, item)
	}
	return w.writeItems(changed, types)
}

// printDeleted prints and forgets the resources that the last poll has not seen.
func (w *watcher) printDeleted() error {
	for _, id := range slices.Sorted(maps.Keys(w.seen)) {
		last := w.seen[id]
		if last.round == w.round {
			continue
		}
		delete(w.seen, id)
		if w.format == terminal.FormatName {
			continue // a missing resource has no name to print
		}
		if err := w.writeItems([]resource.Item{resource.DeletedItem(last.item)}, []string{"DELETED"}); err != nil {
			return err
		}
	}
	return nil
}

// stateToCompare returns what must differ for a resource to be printed again.
func (w *watcher) stateToCompare(i resource.Item) string {
	if w.format == terminal.FormatJSON {
		return string(i.Raw)
	}
	return resource.RowTextWithoutAges(i, w.format == terminal.FormatWide)
}

func (w *watcher) writeItems(items []resource.Item, changeTypes []string) error {
	if w.format != terminal.FormatJSON {
		return w.printer.Write(items)
	}
	for n, i := range items {
		line, err := json.Marshal(change{Type: changeTypes[n], Object: i.Raw})
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		if _, err := w.env.Stdout.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// change is one line of a watch in JSON.
type change struct {
	Type   string          `json:"type"` // ADDED, MODIFIED or DELETED
	Object json.RawMessage `json:"object"`
}

func retryAfter(err error) time.Duration {
	d, _ := backoff.RetryAfter(err)
	return min(d, time.Minute)
}
