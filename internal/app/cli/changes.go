package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/cli/lookup"
	"github.com/fleetloop/fleetloop/internal/app/cli/show"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/fleetclient"
)

const (
	// defaultChanges is how many change events are listed when nobody says, and
	// defaultPast how many a stream begins with.
	defaultChanges = 50
	defaultPast    = 10
)

func changesFormats() []string { return []string{show.Table, show.Wide, show.JSON, show.YAML} }

type changesOptions struct {
	query     fleetclient.ChangeEventsQuery
	since     string
	until     string
	limit     int
	format    string
	noHeaders bool
	follow    bool
}

// AddToChanges adds commands below fleetloop changes. Root is what Command
// gave.
func AddToChanges(root *cobra.Command, more ...*cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.Name() == changesName {
			cmd.AddCommand(more...)
		}
	}
}

const changesName = "changes"

func (s *session) changesCommand() *cobra.Command {
	var o changesOptions
	cmd := &cobra.Command{
		Use:   changesName,
		Short: "List changes of nodes and clusters, with actor and reason",
		Long: "List changes of nodes and clusters with their actor and reason, newest first.\n\n" +
			"With --follow, print the most recent changes and then new ones as they arrive, until interrupted. A lost\n" +
			"connection is reopened without missing a change.",
		Example: "  fleetloop changes --cluster eu-1 --since 1h\n" +
			"  fleetloop changes --node gpu-node-01 -o wide\n" +
			"  fleetloop changes --actor alice --field spec.version\n" +
			"  fleetloop changes --actor node-drainer --action drain-failed --since 7d -o json\n" +
			"  fleetloop changes -f",

		SuggestionsMinimumDistance: 2,

		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.runChanges(cmd, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.query.Cluster, "cluster", "", "show only events in this `cluster`")
	f.StringVar(&o.query.Node, "node", "", "show only changes of this `node`")
	f.StringVar(&o.query.Actor, "actor", "", "show only changes by these `actors` (people or components), separated by commas")
	f.StringVar(&o.query.Field, "field", "", "show only changes of this `field` or a field below it, such as spec.version")
	f.StringVar(&o.query.Source, "source", "", "show only changes reported by these `components`, separated by commas")
	f.StringVar(&o.query.Action, "action", "", "show only these `actions`, such as cordon, separated by commas")
	f.StringVar(&o.query.Subject, "subject", "", "show only changes of this `subject`, such as executions/scale-web")
	f.StringVar(&o.query.Session, "session", "", "show only changes with this session `id`, as shown by -o wide")
	f.StringVar(&o.since, "since", "", "show only events since this `time`: an age (2h, 7d), a day (2026-03-01) or a time (2026-03-01T12:00:00Z)")
	f.StringVar(&o.until, "until", "", "show only events until this `time`: an age, a day or a time")
	f.IntVar(&o.limit, "limit", defaultChanges, "maximum `number` of events, 0 for all; with --follow, the number of past events to show first (default 10)")
	f.BoolVar(&o.noHeaders, "no-headers", false, "do not print column headers")
	f.BoolVarP(&o.follow, "follow", "f", false, "print new changes as they arrive")
	addOutputFlag(cmd, &o.format, changesFormats())
	_ = cmd.RegisterFlagCompletionFunc("cluster", s.completeClusters)
	return cmd
}

func (s *session) runChanges(cmd *cobra.Command, o changesOptions) error {
	if err := checkFormat(cmd, o.format, changesFormats()); err != nil {
		return err
	}
	switch {
	case o.limit < 0:
		return usageErrorf(cmd, "--limit %d is negative", o.limit)
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
	look := s.showOptions()
	look.NoHeaders = o.noHeaders
	c := changesSession{session: s, client: client, o: o, out: show.NewChangePrinter(s.env.Stdout, o.format, o.follow, look)}
	if o.follow {
		return c.followChanges(cmd.Context())
	}
	return c.printList(cmd.Context())
}

// A changesSession shows change events.
type changesSession struct {
	*session

	client *fleetclient.Client
	o      changesOptions
	out    show.ChangePrinter

	// past are those of the list, which the stream may tell again: what came while
	// the list was made. They are more than are shown, for it need not be the newest.
	past map[string]bool
	at   string // where the stream goes on
}

// readPages gives the pages of the list, as far as they are wanted, and where a
// stream goes on from it.
func (c *changesSession) readPages(ctx context.Context, each func([]v1.ChangeEvent) error) (live string, more bool, err error) {
	q := c.o.query
	left := c.o.limit
	if c.o.limit > 0 && !c.o.follow {
		q.PageSize = min(c.o.limit, fleetclient.DefaultPageSize)
	}
	for page, err := range c.client.ChangeEvents(ctx, q) {
		if err != nil {
			return "", false, changesFailure(err)
		}
		if live == "" {
			live = page.Cursor
		}
		items := page.Items
		c.rememberEvents(items)
		if c.o.limit > 0 {
			items = items[:min(len(items), left)]
			left -= len(items)
		}
		if err := each(items); err != nil {
			return "", false, err
		}
		if c.o.limit > 0 && left == 0 {
			return live, page.Continue != "" || len(items) < len(page.Items), nil
		}
	}
	return live, false, nil
}

func (c *changesSession) printList(ctx context.Context) error {
	count := 0
	_, more, err := c.readPages(ctx, func(items []v1.ChangeEvent) error {
		count += len(items)
		return c.out.Write(items)
	})
	if err != nil {
		return err
	}
	if err := c.out.Close(); err != nil {
		return err
	}
	if count == 0 {
		if err := c.checkCluster(ctx); err != nil {
			return err
		}
	}
	switch {
	case !show.IsTable(c.o.format):
	case count == 0:
		c.printNote("No changes found.")
	case more:
		c.printNote("Only the newest %d are shown; --limit 0 shows all.", count)
	}
	return nil
}

// checkCluster says why a cluster has no changes at all: there is none of that
// name. The timeline also has changes of clusters that the fleet API does not
// keep, or keeps no longer.
func (c *changesSession) checkCluster(ctx context.Context) error {
	name := c.o.query.Cluster
	if name == "" {
		return nil
	}
	page, err := c.client.ChangeEventsPage(ctx, fleetclient.ChangeEventsQuery{Cluster: name, PageSize: 1}, "")
	if err != nil || len(page.Items) > 0 {
		return changesFailure(err)
	}
	cluster, err := lookup.Resolve(ctx, c.client, lookup.Ref{Kind: lookup.Kinds()[0], Name: name})
	switch {
	case errors.Is(err, lookup.ErrNotFound):
		return &failure{
			err: fmt.Errorf("there is no cluster %q and no change of a cluster with that name", name), code: CodePrecondition,
			next: "run 'fleetloop get clusters' to list the clusters",
		}
	case errors.Is(err, lookup.ErrAmbiguous):
		return nil
	case err == nil && cluster.Resource.Name != name:
		return &failure{
			err: fmt.Errorf("%q is the id of cluster %q; changes are stored by cluster name", name, cluster.Resource.Name), code: CodePrecondition,
			next: "fleetloop changes --cluster " + cluster.Resource.Name,
		}
	}
	return err
}

// followChanges shows the past, and then what comes, until ctx ends, which is the usual
// end.
func (c *changesSession) followChanges(ctx context.Context) error {
	if err := c.printLast(ctx); err != nil {
		return err
	}
	again := backoff.Policy{Initial: 200 * time.Millisecond, Max: 10 * time.Second}
	for failures := 0; ctx.Err() == nil; {
		before := c.at
		err := c.client.WatchChangeEvents(ctx, c.o.query, c.at, c.handleEvent)
		if c.at != before {
			failures = 0
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, io.EOF): // it is meant to end, or has lasted long enough
		case !isTransient(err):
			return changesFailure(err)
		case failures == 0:
			c.printNote("warning: %v; retrying", err)
		}
		_ = backoff.Sleep(ctx, max(again.Delay(failures), retryAfter(err))) // the loop asks whether ctx ended
		failures++
	}
	return nil
}

// printLast shows the last events, from the oldest of them.
func (c *changesSession) printLast(ctx context.Context) (err error) {
	var items []v1.ChangeEvent
	c.at, _, err = c.readPages(ctx, func(page []v1.ChangeEvent) error {
		items = append(items, page...)
		return nil
	})
	if err != nil {
		return err
	}
	if len(items) == 0 {
		if err := c.checkCluster(ctx); err != nil {
			return err
		}
	}
	slices.Reverse(items)
	return c.out.Write(items)
}

// rememberEvents notes events of the list, if a stream follows.
func (c *changesSession) rememberEvents(items []v1.ChangeEvent) {
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

// handleEvent shows an event of the stream.
func (c *changesSession) handleEvent(e v1.WatchEvent) error {
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
		c.at = e.Cursor
	}
	return nil
}

// keyOf is what no two events have in common.
func keyOf(e *v1.ChangeEvent) string {
	return e.Tenant + "\x00" + e.Cluster + "\x00" + e.Source + "\x00" + e.ID
}

// changesFailure says what to do about an error of the API.
func changesFailure(err error) error {
	e, ok := errors.AsType[*fleetclient.Error](err)
	switch {
	case !ok:
	case e.Status == http.StatusNotFound:
		return &failure{err: err, code: CodeFailed, next: "the server has no change events: it is older than this command or is not a fleet-api"}
	case e.Status == http.StatusGone:
		return &failure{err: err, code: CodePrecondition, next: "run 'fleetloop changes -f' again"}
	}
	return err
}
