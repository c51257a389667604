package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	// defaultChanges is the default number of listed change events.
	defaultChanges = 50
	// defaultPast is the default number of past events at the start of a stream.
	defaultPast = 10
)

func changesFormats() []string {
	return []string{terminal.FormatTable, terminal.FormatWide, terminal.FormatJSON, terminal.FormatYAML}
}

type changesOptions struct {
	query     fleetclient.ChangeEventOptions
	since     string
	until     string
	limit     int
	format    string
	noHeaders bool
	follow    bool

	newestLast bool
}

// AddChangesSubcommands adds commands below fleetloop changes. root is the result of Command.
func AddChangesSubcommands(root *cobra.Command, more ...*cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.Name() == changesName {
			cmd.AddCommand(more...)
		}
	}
}

const (
	changesName = "changes"
	eventsName  = "events" // as kubectl names it
)

func newChangesCommand(s *session) *cobra.Command {
	var o changesOptions
	cmd := &cobra.Command{
		Use:     changesName + " [KIND/NAME]",
		Aliases: []string{eventsName},
		Short:   "List changes of nodes and clusters, with actor and reason",
		Long: "List changes of nodes and clusters, or of one object, with their actor and reason, newest first. As 'fleetloop\n" +
			"events', list the newest last. An object is cluster/NAME, nodepool/CLUSTER/NAME, node/NAME or execution/NAME.\n\n" +
			"With --follow, print the most recent changes and then new ones as they arrive, until interrupted. A lost\n" +
			"connection is reopened without missing a change.",
		Example: "  fleetloop changes --cluster eu-1 --since 1h\n" +
			"  fleetloop changes --node gpu-node-01 -o wide\n" +
			"  fleetloop changes --actor alice --field spec.version\n" +
			"  fleetloop changes --actor node-drainer --action drain-failed --since 7d -o json\n" +
			"  fleetloop changes --outcome failed --dry-runs false --since 1d\n" +
			"  fleetloop changes -f\n" +
			"  fleetloop events nodepool/eu-1/workers",

		SuggestionsMinimumDistance: 2,

		ValidArgsFunction: s.completeObject,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.setObjectFilterFromArgs(cmd, args); err != nil {
				return err
			}
			o.newestLast = cmd.CalledAs() == eventsName
			return runChanges(s, cmd, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.query.Cluster, "cluster", "", "show only events in these `clusters`, separated by commas")
	f.StringVar(&o.query.Node, "node", "", "show only changes of this `node`")
	f.StringVar(&o.query.Actor, "actor", "", "show only changes by these `actors` (people or components), separated by commas")
	f.StringVar(&o.query.Field, "field", "", "show only changes of this `field` or a field below it, such as spec.version")
	f.StringVar(&o.query.Source, "source", "", "show only changes reported by these `components`, separated by commas")
	f.StringVar(&o.query.Action, "action", "", "show only these `actions`, such as cordon, separated by commas")
	f.StringVar(&o.query.Subject, "subject", "", "show only changes of this `subject`, such as executions/scale-web")
	f.StringVar(&o.query.Session, "session", "", "show only changes with this session `id`, as shown by -o wide")
	f.StringVar(&o.query.Outcome, "outcome", "", "show only changes with this `outcome`: succeeded or failed")
	f.StringVar(&o.query.DryRun, "dry-runs", "", "with true, show only dry runs; with false, none; `true|false`")
	f.StringVar(&o.query.Text, "text", "", "show only changes whose summary or reason contains this `text`, in upper or lower case")
	f.StringVar(
		&o.since,
		"since",
		"",
		"show only events since this `time`: an age (2h, 7d), a day (2026-03-01) or a time (2026-03-01T12:00:00Z)",
	)
	f.StringVar(&o.until, "until", "", "show only events until this `time`: an age, a day or a time")
	f.IntVar(
		&o.limit,
		"limit",
		defaultChanges,
		"maximum `number` of events, 0 for all; with --follow, the past events to show first, 10 if not given",
	)
	f.BoolVar(&o.noHeaders, "no-headers", false, "do not print column headers")
	f.BoolVarP(&o.follow, "follow", "f", false, "print new changes as they arrive")
	f.BoolVarP(&o.follow, "watch", "w", false, "the same as --follow")
	AddOutputFlag(cmd, &o.format, changesFormats())
	_ = cmd.RegisterFlagCompletionFunc("cluster", s.completeClusters)
	cmd.AddCommand(newResendCommand(s))
	return cmd
}

func runChanges(s *session, cmd *cobra.Command, o changesOptions) error {
	if err := CheckFormat(cmd, o.format, changesFormats()); err != nil {
		return err
	}
	switch {
	case o.limit < 0:
		return usageErrorf(cmd, "--limit %d is negative", o.limit)
	case !slices.Contains([]string{"", changeevent.OutcomeSucceeded, changeevent.OutcomeFailed}, o.query.Outcome):
		return usageErrorf(cmd, "--outcome %q is not %s or %s", o.query.Outcome, changeevent.OutcomeSucceeded, changeevent.OutcomeFailed)
	case !slices.Contains([]string{"", "true", "false"}, o.query.DryRun):
		return usageErrorf(cmd, "--dry-runs %q is not true or false", o.query.DryRun)
	case o.follow && o.until != "":
		return usageErrorf(cmd, "--until cannot be combined with --follow")
	}
	var err error
	if o.query.Since, err = parseSince(o.since, s.env.Now()); err != nil {
		return usageError(cmd, err)
	}
	if o.query.Until, err = parseSince(o.until, s.env.Now()); err != nil {
		return usageErrorf(cmd, "--until %q is not an age such as 2h or 7d, or a time such as 2026-03-01 or 2026-03-01T12:00:00Z", o.until)
	}
	if o.follow && !cmd.Flags().Changed("limit") && o.since == "" {
		o.limit = defaultPast
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	options := s.showOptions()
	options.NoHeaders = o.noHeaders
	c := changesSession{
		session: s,
		client:  client,
		o:       o,
		out:     resource.NewChangePrinter(s.env.Stdout, o.format, o.follow, options),
	}
	if o.follow {
		return c.followChanges(cmd.Context())
	}
	return c.printList(cmd.Context())
}

// changesSession prints change events.
type changesSession struct {
	*session

	client *fleetclient.Client
	o      changesOptions
	out    resource.Printer[v1.ChangeEvent]

	// past holds the events of the list that the stream may repeat, because they arrived during the
	// list request. It holds more than are shown, because such an event need not be the newest.
	past map[string]bool
	// cursor is the position at which the stream continues.
	cursor string
}

// readPages passes the requested pages of the list to handlePage, at most as many events as the limit allows. It
// returns the position at which a stream continues, and whether there are more events than the limit.
func (c *changesSession) readPages(
	ctx context.Context, handlePage func([]v1.ChangeEvent) error,
) (streamCursor string, more bool, err error) {
	query := c.o.query
	left := c.o.limit
	if c.o.limit > 0 && !c.o.follow { // a stream remembers a whole page
		query.PageSize = min(c.o.limit, fleetclient.DefaultPageSize)
	}
	for page, err := range c.client.ChangeEvents().Pages(ctx, query) {
		if err != nil {
			return "", false, explainChangesError(err)
		}
		if streamCursor == "" { // the first page is the newest
			streamCursor = page.Cursor
		}
		items := page.Items
		c.rememberIfFollowing(items)
		if c.o.limit > 0 {
			items = items[:min(len(items), left)]
			left -= len(items)
		}
		if err := handlePage(items); err != nil {
			return "", false, err
		}
		if c.o.limit > 0 && left == 0 {
			return streamCursor, page.Continue != "" || len(items) < len(page.Items), nil
		}
	}
	return streamCursor, false, nil
}

func (c *changesSession) printList(ctx context.Context) error {
	count := 0
	var newestFirst []v1.ChangeEvent // kept until all are read, to print the newest last
	_, more, err := c.readPages(ctx, func(items []v1.ChangeEvent) error {
		count += len(items)
		if c.o.newestLast {
			newestFirst = append(newestFirst, items...)
			return nil
		}
		return c.out.Write(items)
	})
	if err != nil {
		return err
	}
	slices.Reverse(newestFirst)
	if err := c.out.Write(newestFirst); err != nil {
		return err
	}
	if err := c.out.Close(); err != nil {
		return err
	}
	if count == 0 {
		if err := c.checkClusterKnown(ctx); err != nil {
			return err
		}
	}
	if !terminal.IsTableFormat(c.o.format) {
		return nil
	}
	switch {
	case count == 0:
		c.printNote("No changes found.")
	case more:
		c.printNote("Only the newest %d are shown; --limit 0 shows all.", count)
	}
	return nil
}

// checkClusterKnown returns an error if a cluster without changes does not exist. The timeline also has
// changes of clusters that the fleet API never kept or has deleted.
func (c *changesSession) checkClusterKnown(ctx context.Context) error {
	name := c.o.query.Cluster
	if name == "" || strings.Contains(name, ",") {
		return nil
	}
	page, err := c.client.ChangeEvents().Page(ctx, fleetclient.ChangeEventOptions{Cluster: name, PageSize: 1}, "")
	if err != nil || len(page.Items) > 0 {
		return explainChangesError(err)
	}
	cluster, err := resource.Resolve(ctx, c.client, resource.Ref{Kind: resource.Kinds()[0], Name: name})
	switch {
	case errors.Is(err, resource.ErrNotFound):
		return &failure{
			err:  fmt.Errorf("there is no cluster %q and no change of a cluster with that name", name),
			code: CodePrecondition,
			next: "run 'fleetloop get clusters' to list the clusters",
		}
	case errors.Is(err, resource.ErrAmbiguous):
		return nil
	case err == nil && cluster.Resource.Name != name:
		return &failure{
			err:  fmt.Errorf("%q is the id of cluster %q; changes are stored by cluster name", name, cluster.Resource.Name),
			code: CodePrecondition,
			next: "fleetloop changes --cluster " + cluster.Resource.Name,
		}
	}
	return err
}

// followChanges prints past events, then new ones until ctx ends, which is the normal end.
func (c *changesSession) followChanges(ctx context.Context) error {
	if err := c.printPastEvents(ctx); err != nil {
		return err
	}
	retry := backoff.Policy{Initial: 200 * time.Millisecond, Max: 10 * time.Second}
	failures := 0 // since the last event
	for ctx.Err() == nil {
		before := c.cursor
		err := c.client.Raw().WatchChangeEvents(ctx, c.o.query, c.cursor, c.printNewAndAdvanceCursor)
		if c.cursor != before {
			failures = 0
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, io.EOF): // a normal end, or the maximum duration
		case !fleetclient.IsTransient(err):
			return explainChangesError(err)
		case failures == 0:
			c.printNote("warning: %v; retrying", err)
		}
		_ = backoff.Sleep(ctx, max(retry.Delay(failures), retryAfter(err))) // the loop checks ctx
		failures++
	}
	return nil
}

// printPastEvents prints the last events, the oldest first.
func (c *changesSession) printPastEvents(ctx context.Context) (err error) {
	var items []v1.ChangeEvent
	c.cursor, _, err = c.readPages(ctx, func(page []v1.ChangeEvent) error {
		items = append(items, page...)
		return nil
	})
	if err != nil {
		return err
	}
	if len(items) == 0 {
		if err := c.checkClusterKnown(ctx); err != nil {
			return err
		}
	}
	slices.Reverse(items)
	return c.out.Write(items)
}

// rememberIfFollowing records the events of the list if a stream follows.
func (c *changesSession) rememberIfFollowing(items []v1.ChangeEvent) {
	if !c.o.follow {
		return
	}
	if c.past == nil {
		c.past = make(map[string]bool, len(items))
	}
	for i := range items {
		c.past[keyOf(&items[i])] = true
	}
}

// printNewAndAdvanceCursor prints an event of the stream, unless the list had it.
func (c *changesSession) printNewAndAdvanceCursor(e v1.WatchEvent) error {
	if e.Type == v1.WatchChanged {
		var event v1.ChangeEvent
		if err := json.Unmarshal(e.Data, &event); err != nil {
			return fmt.Errorf("read a change event: %w", err)
		}
		if !c.past[keyOf(&event)] {
			if err := c.out.Write([]v1.ChangeEvent{event}); err != nil {
				return err
			}
		}
	}
	if e.Cursor != "" {
		c.cursor = e.Cursor
	}
	return nil
}

func keyOf(e *v1.ChangeEvent) string {
	return e.Tenant + "\x00" + e.Cluster + "\x00" + e.Source + "\x00" + e.ID
}

// explainChangesError explains how to solve an error of the API.
func explainChangesError(err error) error {
	e, ok := errors.AsType[*fleetclient.Error](err)
	if !ok {
		return err
	}
	switch e.Status {
	case http.StatusNotFound:
		next := "the server has no change events: it is older than this command or is not a fleet-api"
		return &failure{err: err, code: CodeFailed, next: next}
	case http.StatusGone:
		return &failure{err: err, code: CodePrecondition, next: "run 'fleetloop changes -f' again"}
	}
	return err
}
