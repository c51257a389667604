package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

type getOptions struct {
	scope
	format    string
	noHeaders bool
	limit     int
	sortBy    SortFlag
	watch     bool
	watchOptions
}

func newGetCommand(s *session) *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "get KIND [NAME|ID ...]",
		Short: "Show resources",
		Example: "  fleetloop get clusters -l region=us-east\n" +
			"  fleetloop get cluster eu-1 -o yaml\n" +
			"  fleetloop get nodepools --cluster eu-1 -w\n" +
			"  fleetloop get clusters --sort-by .status.last_transition_time\n" +
			"  fleetloop get clusters -o name | xargs fleetloop describe",
		ValidArgsFunction: s.completeKindOrName,
		RunE:              func(cmd *cobra.Command, args []string) error { return runGet(s, cmd, args, o) },
	}
	o.addFlags(s, cmd, true)
	AddOutputFlag(cmd, &o.format, getFormats())
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "do not print column headers")
	cmd.Flags().IntVar(&o.limit, "limit", 0, "maximum `number` of resources; 0 for all")
	o.sortBy.AddFlag(cmd.Flags(), ".name or .spec.replicas")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "print changes as they happen")
	o.addWatchFlags(cmd)
	return cmd
}

func runGet(s *session, cmd *cobra.Command, args []string, o getOptions) error {
	if o.watch {
		return runWatch(s, cmd, args, o)
	}
	if err := CheckFormat(cmd, o.format, getFormats()); err != nil {
		return err
	}
	if o.limit < 0 {
		return usageErrorf(cmd, "--limit %d is negative", o.limit)
	}
	what, err := o.parseTarget(cmd, args)
	if err != nil {
		return err
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	if len(what.refs) > 0 {
		return fetchAndPrintNamed(cmd, s, client, what.refs, o)
	}
	sel, err := o.newSelection(cmd.Context(), client, what.kind)
	if err != nil {
		return err
	}
	if o.sortBy != "" {
		return listSortAndPrint(cmd, s, client, sel, o)
	}
	sel.Limit = o.limit
	return listAndPrintSelected(cmd.Context(), s, client, sel, o)
}

// listAndPrintSelected prints each page as soon as it is read.
func listAndPrintSelected(ctx context.Context, s *session, client *fleetclient.Client, sel resource.Selection, o getOptions) error {
	out := s.newPrinter(sel.Kind, false, o)
	owners := map[string]string{}
	count := 0
	for items, err := range resource.ListPages(ctx, client, sel) {
		if err != nil {
			return err
		}
		if showsOwners(sel.Kind, o.format) {
			resource.ReplaceOwnerIDsWithNames(ctx, client, items, owners)
		}
		if err := out.Write(items); err != nil {
			return err
		}
		count += len(items)
	}
	if count == 0 && terminal.IsTableFormat(o.format) {
		s.printNoneFoundInScope(ctx, client, sel.Kind.Collection)
	}
	return out.Close()
}

// listSortAndPrint reads all resources before it prints the first ones.
func listSortAndPrint(cmd *cobra.Command, s *session, client *fleetclient.Client, sel resource.Selection, o getOptions) error {
	var found []resource.Item
	for items, err := range resource.ListPages(cmd.Context(), client, sel) {
		if err != nil {
			return err
		}
		found = append(found, items...)
	}
	if err := sortResources(cmd, o.sortBy, found); err != nil {
		return err
	}
	if o.limit > 0 {
		found = found[:min(o.limit, len(found))]
	}
	if len(found) == 0 && terminal.IsTableFormat(o.format) {
		s.printNoneFoundInScope(cmd.Context(), client, sel.Kind.Collection)
	}
	if len(found) == 0 {
		return s.newPrinter(sel.Kind, false, o).Close()
	}
	return s.printItemsByKind(cmd.Context(), client, found, false, o)
}

func sortResources(cmd *cobra.Command, f SortFlag, items []resource.Item) error {
	return SortItems(cmd, f, items, func(i resource.Item) any { return i.Raw })
}

// fetchAndPrintNamed prints the resources that it found before it returns errors about the others.
func fetchAndPrintNamed(cmd *cobra.Command, s *session, client *fleetclient.Client, refs []resource.Ref, o getOptions) error {
	var found []resource.Item
	var errs []error
	for _, ref := range refs {
		item, err := resource.Resolve(cmd.Context(), client, ref)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, item)
	}
	if err := sortResources(cmd, o.sortBy, found); err != nil {
		return err
	}
	if err := s.printItemsByKind(cmd.Context(), client, found, len(refs) == 1, o); err != nil {
		return err
	}
	return joinErrorsWithExitCode(errs, len(found))
}

// printItemsByKind writes items in their order. A table has the columns of one kind, so another kind
// begins another table.
func (s *session) printItemsByKind(
	ctx context.Context, client *fleetclient.Client, found []resource.Item, single bool, o getOptions,
) error {
	if len(found) == 0 {
		return nil
	}
	if !terminal.IsTableFormat(o.format) {
		return s.printItems(ctx, client, found, single, o)
	}
	for n, items := range splitWhereKindChanges(found) {
		if n > 0 {
			if _, err := io.WriteString(s.env.Stdout, "\n"); err != nil {
				return err
			}
		}
		if err := s.printItems(ctx, client, items, single, o); err != nil {
			return err
		}
	}
	return nil
}

// splitWhereKindChanges splits items into runs of the same kind.
func splitWhereKindChanges(items []resource.Item) [][]resource.Item {
	var runs [][]resource.Item
	begin := 0
	for i := range items {
		if items[i].Kind != items[begin].Kind {
			runs = append(runs, items[begin:i])
			begin = i
		}
	}
	return append(runs, items[begin:])
}

// printItems writes items with the columns of the first one's kind.
func (s *session) printItems(
	ctx context.Context, client *fleetclient.Client, items []resource.Item, single bool, o getOptions,
) error {
	kind := items[0].Kind
	if showsOwners(kind, o.format) {
		resource.ReplaceOwnerIDsWithNames(ctx, client, items, map[string]string{})
	}
	out := s.newPrinter(kind, single, o)
	if err := out.Write(items); err != nil {
		return err
	}
	return out.Close()
}

func (s *session) newPrinter(k resource.Kind, single bool, o getOptions) resource.Printer[resource.Item] {
	options := s.showOptions()
	options.Single = single
	options.NoHeaders = o.noHeaders
	return resource.NewPrinter(s.env.Stdout, o.format, k, options)
}

func showsOwners(k resource.Kind, format string) bool {
	return k.IsChild() && terminal.IsTableFormat(format)
}
