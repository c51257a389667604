package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

// scope selects the resources of a command, apart from its arguments.
type scope struct {
	labels  string
	search  string
	cluster string
}

func (sc *scope) addFlags(s *session, cmd *cobra.Command, withSelectors bool) {
	if withSelectors {
		cmd.Flags().StringVarP(&sc.labels, "selector", "l", "", "label `selector`, for example region=us-east,tier!=test")
		cmd.Flags().StringVar(&sc.search, "search", "", "search `expression`, for example \"name like 'demo-%'\"")
	}
	cmd.Flags().StringVar(&sc.cluster, "cluster", "", "select only children of this cluster, by `name` or id")
	_ = cmd.RegisterFlagCompletionFunc("cluster", s.completeClusters)
}

// target is the set of resources of a command. It holds those that refs name or, without refs,
// those that the scope selects.
type target struct {
	kind resource.Kind
	refs []resource.Ref
	scope
	missingOK bool // missing named resources are left out
}

// isSelective reports whether a selector selects the resources.
func (sc *scope) isSelective() bool { return sc.labels != "" || sc.search != "" }

// parseTarget reads the arguments. Names and selectors exclude each other.
func (sc *scope) parseTarget(cmd *cobra.Command, args []string) (target, error) {
	kind, refs, err := resource.ParseRefs(args, sc.cluster)
	if err != nil {
		return target{}, usageError(cmd, err)
	}
	if len(refs) > 0 && sc.isSelective() {
		return target{}, usageErrorf(cmd, "names cannot be combined with a selector")
	}
	if sc.cluster != "" && !kind.IsChild() {
		return target{}, usageErrorf(cmd, "--cluster is only for node pools; leave it out")
	}
	return target{kind: kind, refs: refs, scope: *sc}, nil
}

// isUnrestricted reports whether the target is not restricted.
func (t target) isUnrestricted() bool {
	return len(t.refs) == 0 && t.labels == "" && t.search == "" && t.cluster == ""
}

// findItems finds all resources of the target before the first change, so that a misspelled name
// fails early. An empty selection is an error, because waiting for or changing nothing is a
// mistake.
func (t target) findItems(ctx context.Context, client *fleetclient.Client) ([]resource.Item, error) {
	if len(t.refs) > 0 {
		return t.findNamed(ctx, client)
	}
	selection, err := t.newSelection(ctx, client, t.kind)
	if err != nil {
		return nil, err
	}
	var items []resource.Item
	for page, err := range resource.ListPages(ctx, client, selection) {
		if err != nil {
			return nil, err
		}
		items = append(items, page...)
	}
	if len(items) == 0 && !t.missingOK {
		return nil, &failure{
			err:  fmt.Errorf("no %s match", t.kind.Collection),
			code: CodePrecondition,
			next: fmt.Sprintf("run 'fleetloop get %s' to list the resources", t.kind.Collection),
		}
	}
	if t.kind.IsChild() {
		resource.ReplaceOwnerIDsWithNames(ctx, client, items, map[string]string{})
	}
	return items, nil
}

func (t target) findNamed(ctx context.Context, client *fleetclient.Client) ([]resource.Item, error) {
	var items []resource.Item
	owners := map[string]string{}
	for _, ref := range t.refs {
		item, err := resource.Resolve(ctx, client, ref)
		if t.missingOK && errors.Is(err, resource.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		if ref.Kind.IsChild() {
			resource.ReplaceOwnerIDsWithNames(ctx, client, items[len(items)-1:], owners)
		}
	}
	return items, nil
}

// newSelection returns the part of the collection that the flags select.
func (sc *scope) newSelection(ctx context.Context, client *fleetclient.Client, k resource.Kind) (resource.Selection, error) {
	sel := resource.Selection{Kind: k, Labels: sc.labels, Search: sc.search}
	if sc.cluster != "" {
		owner, err := resource.Resolve(ctx, client, resource.Ref{Kind: k.Parent(), Name: sc.cluster})
		if err != nil {
			return sel, err
		}
		sel.Parent = owner.Resource.ID
	}
	return sel, nil
}
