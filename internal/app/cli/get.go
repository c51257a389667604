package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/fleetclient"
)

// A scope is which resources a command is about, apart from its arguments.
type scope struct {
	labels  string
	search  string
	cluster string
}

func (sc *scope) addFlags(s *session, cmd *cobra.Command, selects bool) {
	if selects {
		cmd.Flags().StringVarP(&sc.labels, "selector", "l", "", "label `selector`, as in region=us-east,tier!=test")
		cmd.Flags().StringVar(&sc.search, "search", "", "search `expression`, as in \"name like 'demo-%'\"")
	}
	cmd.Flags().StringVar(&sc.cluster, "cluster", "", "only the children of this cluster, by `name` or id")
	_ = cmd.RegisterFlagCompletionFunc("cluster", s.completeClusters)
}

// A target is what a command is about: the resources that refs name or, if
// there are none, those that the scope selects.
type target struct {
	kind kind
	refs []ref
	scope
	missingOK bool // what is named and is not there is left out
}

// target reads the arguments. Names and selectors exclude each other.
func (sc *scope) target(cmd *cobra.Command, args []string) (target, error) {
	k, refs, err := parseRefs(args, sc.cluster)
	switch {
	case err != nil:
	case len(refs) > 0 && (sc.labels != "" || sc.search != ""):
		err = errors.New("names and a selector exclude each other")
	case sc.cluster != "" && !k.isChild():
		err = errors.New("only node pools are in a cluster; leave out --cluster")
	}
	if err != nil {
		return target{}, usage(cmd, err)
	}
	return target{kind: k, refs: refs, scope: *sc}, nil
}

// everything reports whether nothing narrows the target down.
func (t target) everything() bool {
	return len(t.refs) == 0 && t.labels == "" && t.search == "" && t.cluster == ""
}

// find finds all resources of the target before anything is done to one of
// them, so that a name that is written wrong is noticed in time. A selection
// that is empty is an error: to wait for nothing, or to change it, is a
// mistake.
func (t target) find(ctx context.Context, client *fleetclient.Client) ([]item, error) {
	if len(t.refs) > 0 {
		return t.findNamed(ctx, client)
	}
	var items []item
	sel, err := t.selection(ctx, client, t.kind)
	if err != nil {
		return nil, err
	}
	for page, err := range pages(ctx, client, sel) {
		if err != nil {
			return nil, err
		}
		items = append(items, page...)
	}
	if len(items) == 0 && !t.missingOK {
		return nil, &failure{
			err: fmt.Errorf("no %s match", t.kind.collection), code: CodePrecondition,
			next: fmt.Sprintf("fleetloop get %s   lists what there is", t.kind.collection),
		}
	}
	if t.kind.isChild() {
		nameOwners(ctx, client, items, map[string]string{})
	}
	return items, nil
}

func (t target) findNamed(ctx context.Context, client *fleetclient.Client) ([]item, error) {
	var items []item
	owners := map[string]string{}
	for _, r := range t.refs {
		i, err := resolve(ctx, client, r)
		if t.missingOK && errors.Is(err, errNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		items = append(items, i)
		if r.kind.isChild() {
			nameOwners(ctx, client, items[len(items)-1:], owners)
		}
	}
	return items, nil
}

// selection is the part of the collection that the flags select.
func (sc *scope) selection(ctx context.Context, client *fleetclient.Client, k kind) (selection, error) {
	sel := selection{kind: k, labels: sc.labels, search: sc.search}
	if sc.cluster != "" {
		owner, err := resolve(ctx, client, ref{kind: kindOf(k.parent), name: sc.cluster})
		if err != nil {
			return sel, err
		}
		sel.parent = owner.resource.ID
	}
	return sel, nil
}

type getOptions struct {
	scope
	format    string
	noHeaders bool
	limit     int
	watch     bool
	watchOptions
}

func (s *session) getCommand() *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "get KIND [NAME|ID ...]",
		Short: "Show resources",
		Example: "  fleetloop get clusters -l region=us-east\n" +
			"  fleetloop get cluster c1 -o yaml\n" +
			"  fleetloop get nodepools --cluster c1 -w\n" +
			"  fleetloop get clusters -o name | xargs fleetloop describe",
		ValidArgsFunction: s.completeNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return s.get(cmd, args, o) },
	}
	o.addFlags(s, cmd, true)
	addOutputFlag(cmd, &o.format, formats()...)
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "leave out the heads of the columns")
	cmd.Flags().IntVar(&o.limit, "limit", 0, "show at most so many `resources`; 0 means all")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on and show what changes")
	o.addWatchFlags(cmd)
	return cmd
}

func (s *session) get(cmd *cobra.Command, args []string, o getOptions) error {
	if o.watch {
		return s.watch(cmd, args, o)
	}
	if err := checkFormat(cmd, o.format, formats()...); err != nil {
		return err
	}
	if o.limit < 0 {
		return usagef(cmd, "--limit %d is below zero", o.limit)
	}
	what, err := o.target(cmd, args)
	if err != nil {
		return err
	}
	client, err := s.connect(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	if len(what.refs) > 0 {
		return s.getNamed(cmd.Context(), client, what.refs, o)
	}
	sel, err := o.selection(cmd.Context(), client, what.kind)
	if err != nil {
		return err
	}
	sel.limit = o.limit
	return s.getSelected(cmd.Context(), client, sel, o)
}

func (s *session) getSelected(ctx context.Context, client *fleetclient.Client, sel selection, o getOptions) error {
	out := s.newPrinter(o.format, sel.kind, false, !o.noHeaders)
	owners := map[string]string{}
	count := 0
	for items, err := range pages(ctx, client, sel) {
		if err != nil {
			return err
		}
		if showsOwners(sel.kind, o.format) {
			nameOwners(ctx, client, items, owners)
		}
		if err := out.print(items); err != nil {
			return err
		}
		count += len(items)
	}
	if count == 0 && (o.format == formatTable || o.format == formatWide) {
		s.note("No %s found.", sel.kind.collection)
	}
	return out.close()
}

// getNamed shows what was found before it tells what was not.
func (s *session) getNamed(ctx context.Context, client *fleetclient.Client, refs []ref, o getOptions) error {
	var found []item
	var errs []error
	for _, r := range refs {
		i, err := resolve(ctx, client, r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, i)
	}
	if err := s.printNamed(ctx, client, found, len(refs) == 1, o); err != nil {
		return err
	}
	return all(errs, len(found))
}

// printNamed writes items in their order. A table has the columns of one kind,
// so another kind begins another table.
func (s *session) printNamed(ctx context.Context, client *fleetclient.Client, found []item, single bool, o getOptions) error {
	tables := o.format == formatTable || o.format == formatWide
	for first := true; len(found) > 0; first = false {
		n := len(found)
		if other := slices.IndexFunc(found, func(i item) bool { return i.kind != found[0].kind }); tables && other > 0 {
			n = other
		}
		if tables && !first {
			if _, err := io.WriteString(s.env.Stdout, "\n"); err != nil {
				return err
			}
		}
		if showsOwners(found[0].kind, o.format) {
			nameOwners(ctx, client, found[:n], map[string]string{})
		}
		out := s.newPrinter(o.format, found[0].kind, single, !o.noHeaders)
		if err := out.print(found[:n]); err != nil {
			return err
		}
		if err := out.close(); err != nil {
			return err
		}
		found = found[n:]
	}
	return nil
}

func showsOwners(k kind, format string) bool {
	return k.isChild() && (format == formatTable || format == formatWide)
}
