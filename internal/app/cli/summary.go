package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

func summaryFormats() []string {
	return []string{terminal.FormatTable, terminal.FormatJSON, terminal.FormatYAML}
}

func stuckFormats() []string {
	return []string{terminal.FormatTable, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName}
}

func newSummaryCommand(s *session) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "summary",
		Short: "Count clusters, node pools and syncs, and show the most frequent problems",
		Long: "Count the clusters and node pools by phase, the syncs by state and the clusters by label, and show the most\n" +
			"frequent reasons for which resources are not ready. The server counts in the background; the first line is the\n" +
			"age of the counts.",
		Example:           "  fleetloop summary\n  fleetloop summary -o json",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckFormat(cmd, format, summaryFormats()); err != nil {
				return err
			}
			client, err := s.newClient(cmd)
			if err != nil {
				return err
			}
			defer client.CloseIdle()
			summary, err := client.Summary(cmd.Context())
			if err != nil {
				return explainOldServer(err, "summary")
			}
			return printSummary(s, format, summary)
		},
	}
	AddOutputFlag(cmd, &format, summaryFormats())
	return cmd
}

// explainOldServer explains a missing path of the API.
func explainOldServer(err error, command string) error {
	if fleetclient.IsNotFound(err) {
		return &failure{err: fmt.Errorf("the server does not support %s", command), code: CodeFailed, next: "use a fleet API of the same release"}
	}
	return err
}

func printSummary(s *session, format string, summary v1.Summary) error {
	switch format {
	case terminal.FormatTable:
		return printSummaryTables(s, summary)
	case terminal.FormatJSON:
		return WriteYAMLOrJSON(s.env.Stdout, format, summary)
	}
	raw, err := json.Marshal(summary)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	text, err := resource.JSONToYAML(raw) // keeps the order of the fields
	if err != nil {
		return err
	}
	_, err = s.env.Stdout.Write(text)
	return err
}

func printSummaryTables(s *session, summary v1.Summary) error {
	now := s.env.Now()
	if _, err := fmt.Fprintf(s.env.Stdout, "Counted %s ago\n", terminal.Since(now, summary.AsOf)); err != nil {
		return err
	}
	// Each table is a list of rows, of which the first has the column headers.
	tables := [][][]terminal.Cell{kindRows(summary, now), syncRows(summary, now), failingDeliveryRows(summary, now)}
	for _, key := range slices.Sorted(maps.Keys(summary.Labels)) {
		tables = append(tables, labelRows(key, summary.Labels[key], summary.MoreLabelValues[key]))
	}
	tables = append(tables, reasonRows(summary, now))
	for _, rows := range tables {
		if len(rows) == 1 {
			continue // the column headers alone
		}
		if _, err := fmt.Fprintln(s.env.Stdout); err != nil {
			return err
		}
		t := terminal.Table{Colour: s.useColour()}
		if err := t.WriteRows(s.env.Stdout, rows); err != nil {
			return err
		}
	}
	return nil
}

func summaryPhases() []v1.Phase {
	return []v1.Phase{v1.PhaseReady, v1.PhasePending, v1.PhaseProvisioning, v1.PhaseFailed, v1.PhaseDeleting}
}

func phaseCountRow(firstCell string, of v1.LabelSummary) []terminal.Cell {
	row := terminal.PlainRow(firstCell, strconv.FormatInt(of.Total, 10))
	for _, p := range summaryPhases() {
		cell := terminal.Cell{Text: strconv.FormatInt(of.Phases[p], 10)}
		if of.Phases[p] > 0 {
			cell.Style = terminal.PhaseStyle(p)
		}
		row = append(row, cell)
	}
	return row
}

func phaseHeaders(first string) []string {
	heads := []string{first, "TOTAL"}
	for _, p := range summaryPhases() {
		heads = append(heads, strings.ToUpper(string(p)))
	}
	return heads
}

func formatOldest(o *v1.OldestResource, now time.Time) string {
	if o == nil {
		return "-"
	}
	return o.Name + " (" + terminal.Since(now, o.Since) + ")"
}

func kindRows(summary v1.Summary, now time.Time) [][]terminal.Cell {
	rows := [][]terminal.Cell{terminal.PlainRow(append(phaseHeaders("KIND"), "OLDEST NOT READY")...)}
	for _, collection := range slices.Sorted(maps.Keys(summary.Kinds)) {
		of := summary.Kinds[collection]
		row := phaseCountRow(collection, of.LabelSummary)
		rows = append(rows, append(row, terminal.Cell{Text: formatOldest(of.OldestNotReady, now)}))
	}
	return rows
}

func syncRows(summary v1.Summary, now time.Time) [][]terminal.Cell {
	heads := []string{"SYNC"}
	counts := []string{v1.CollectionClusters}
	for _, state := range v1.SyncStates() {
		heads = append(heads, strings.ToUpper(string(state)))
		counts = append(counts, strconv.FormatInt(summary.Sync.States[state], 10))
	}
	heads = append(heads, "OLDEST UNSYNCED")
	counts = append(counts, formatOldest(summary.Sync.OldestUnsynced, now))
	return [][]terminal.Cell{terminal.PlainRow(heads...), terminal.PlainRow(counts...)}
}

// failingDeliveryRows counts the change events that sinks do not accept. It has no row if there are none.
func failingDeliveryRows(summary v1.Summary, now time.Time) [][]terminal.Cell {
	d := summary.Deliveries
	rows := [][]terminal.Cell{terminal.PlainRow("CHANGE EVENTS", "FAILING", "GIVEN UP", "FAILING FOR")}
	if d.Failing+d.GivenUp == 0 {
		return rows
	}
	failingFor := "-"
	if d.FailingSince != nil {
		failingFor = terminal.Since(now, *d.FailingSince)
	}
	return append(rows, []terminal.Cell{
		{Text: v1.CollectionClusters},
		deliveryCountCell(d.Failing, terminal.Busy),
		deliveryCountCell(d.GivenUp, terminal.Bad),
		{Text: failingFor},
	})
}

// deliveryCountCell returns a count of deliveries, in a style unless it is zero. The server counts up to
// v1.MaxDeliveries.
func deliveryCountCell(count int64, style terminal.Style) terminal.Cell {
	text := strconv.FormatInt(count, 10)
	switch count {
	case 0:
		return terminal.Cell{Text: text}
	case v1.MaxDeliveries:
		return terminal.Cell{Text: text + "+", Style: style}
	}
	return terminal.Cell{Text: text, Style: style}
}

// labelRows returns the values of a label, the most frequent first.
func labelRows(key string, values map[string]v1.LabelSummary, more int) [][]terminal.Cell {
	rows := [][]terminal.Cell{terminal.PlainRow(phaseHeaders(strings.ToUpper(key))...)}
	byFrequency := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(cmp.Compare(values[b].Total, values[a].Total), strings.Compare(a, b))
	})
	for _, value := range byFrequency {
		rows = append(rows, phaseCountRow(value, values[value]))
	}
	if more > 0 {
		rows = append(rows, terminal.PlainRow(fmt.Sprintf("%d more", more)))
	}
	return rows
}

func reasonRows(summary v1.Summary, now time.Time) [][]terminal.Cell {
	rows := [][]terminal.Cell{terminal.PlainRow("COUNT", "SOURCE", "SINCE", "EXAMPLE", "REASON")}
	for _, r := range summary.TopReasons {
		example := strings.ToLower(r.Example.Kind) + "/" + r.Example.Name
		rows = append(rows, terminal.PlainRow(strconv.FormatInt(r.Count, 10), r.Source, terminal.Since(now, r.Since), example, r.Reason))
	}
	return rows
}

type stuckOptions struct {
	causes    []string
	olderThan time.Duration
	format    string
	noHeaders bool
	limit     int
}

func stuckCauseNames() []string {
	var names []string
	for _, c := range v1.StuckCauseTypes() {
		names = append(names, string(c))
	}
	return names
}

func newStuckCommand(s *session) *cobra.Command {
	var o stuckOptions
	cmd := &cobra.Command{
		Use:   "stuck [clusters|nodepools]",
		Short: "Show clusters and node pools that are stuck, and the cause",
		Long: "Show the clusters and node pools that have not been ready, or not been synced to Gardener, for longer than\n" +
			"--older-than, oldest first, with the cause.\n\n" +
			"Causes: adapter (a required adapter has not reported the current generation, or reported a failure), gardener\n" +
			"(the sync fails or waits), paused, none_reported (no adapter has reported), children (waiting for the deletion\n" +
			"of node pools).",
		Example: "  fleetloop stuck\n" +
			"  fleetloop stuck clusters --cause gardener --older-than 1h\n" +
			"  fleetloop stuck -o name",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: []string{v1.CollectionClusters, v1.CollectionNodePools},
		RunE:      func(cmd *cobra.Command, args []string) error { return showStuck(s, cmd, args, o) },
	}
	o.addFilterFlags(cmd)
	AddOutputFlag(cmd, &o.format, stuckFormats())
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "do not print column headers")
	cmd.Flags().IntVar(&o.limit, "limit", 0, "maximum `number` of resources; 0 for all")
	return cmd
}

func (o *stuckOptions) addFilterFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&o.causes, "cause", nil, "show only these `causes`, separated by commas")
	_ = cmd.RegisterFlagCompletionFunc("cause", cobra.FixedCompletions(stuckCauseNames(), cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().DurationVar(&o.olderThan, "older-than", 0, "minimum `time` for which a resource is not ready (default 5m)")
}

// parseStuckQuery checks the arguments and returns the query.
func (o *stuckOptions) parseStuckQuery(cmd *cobra.Command, args []string) (q fleetclient.StuckOptions, err error) {
	if err := CheckFormat(cmd, o.format, stuckFormats()); err != nil {
		return q, err
	}
	if len(args) > 0 {
		k, err := resource.ParseKind(args[0])
		if err != nil || k.Collection != v1.CollectionClusters && k.Collection != v1.CollectionNodePools {
			can := []string{v1.CollectionClusters, v1.CollectionNodePools}
			return q, usageErrorf(cmd, "%s cannot be stuck%s", args[0], resource.SuggestWords(args[0], can))
		}
		q.Collection = k.Collection
	}
	for _, cause := range o.causes {
		if !slices.Contains(stuckCauseNames(), cause) {
			return q, usageErrorf(cmd, "unknown cause %q%s", cause, resource.SuggestWords(cause, stuckCauseNames()))
		}
		q.Causes = append(q.Causes, v1.StuckCauseType(cause))
	}
	switch {
	case o.limit < 0:
		return q, usageErrorf(cmd, "--limit %d is negative", o.limit)
	case o.olderThan < 0:
		return q, usageErrorf(cmd, "--older-than %s is negative", o.olderThan)
	}
	q.OlderThan = o.olderThan
	return q, nil
}

func showStuck(s *session, cmd *cobra.Command, args []string, o stuckOptions) error {
	q, err := o.parseStuckQuery(cmd, args)
	if err != nil {
		return err
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	options := s.showOptions()
	options.NoHeaders = o.noHeaders
	out := resource.NewStuckPrinter(s.env.Stdout, o.format, options)
	written, more, err := writeStuck(cmd.Context(), client, q, out, o.limit)
	if err != nil {
		return explainOldServer(err, "stuck")
	}
	if !terminal.IsTableFormat(o.format) {
		return nil
	}
	switch {
	case more:
		s.printNote("More resources are stuck; the list is limited by --limit %d.", o.limit)
	case written == 0:
		s.printNote("Nothing is stuck.")
	}
	return nil
}

// writeStuck prints resources as they arrive, a page at once. It returns their number, and whether more exist.
func writeStuck(
	ctx context.Context, client *fleetclient.Client, q fleetclient.StuckOptions, out resource.Printer[v1.StuckResource], limit int,
) (written int, more bool, err error) {
	var chunk []v1.StuckResource
	for item, err := range client.Stuck(ctx, q) {
		if err != nil {
			return written, false, err
		}
		if limit > 0 && written == limit {
			more = true
			break
		}
		written++
		chunk = append(chunk, item)
		if len(chunk) == fleetclient.DefaultPageSize {
			if err := out.Write(chunk); err != nil {
				return written, false, err
			}
			chunk = chunk[:0]
		}
	}
	return written, more, errors.Join(out.Write(chunk), out.Close())
}
