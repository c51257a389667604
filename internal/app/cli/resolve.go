package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetclient"
)

// errNotFound means that nothing bears the name or id.
var errNotFound = errors.New("not found")

// An item is one resource: as it was served, for those who want all of it,
// and decoded.
type item struct {
	raw      json.RawMessage
	resource v1.Resource
	kind     kind

	// owner is the parent's name, or its id where the name is not known.
	owner string
}

// label is how the item is called in messages, in a form that the commands
// take as an argument.
func (i item) label() string {
	if i.kind.isChild() && i.owner != "" {
		return i.kind.singular + "/" + i.owner + "/" + i.resource.Name
	}
	return i.kind.singular + "/" + i.resource.Name
}

func newItem(k kind, raw json.RawMessage) (item, error) {
	i := item{raw: raw, kind: k}
	if err := json.Unmarshal(raw, &i.resource); err != nil {
		return item{}, fmt.Errorf("%w: a %s of it: %w", fleetclient.ErrBadAnswer, k.singular, err)
	}
	if owner := i.resource.OwnerResource; owner != nil {
		i.owner = owner.ID
	} else if owner := i.resource.OwnerReferences; owner != nil {
		i.owner = owner.ID
	}
	return i, nil
}

// A selection is a part of one collection.
type selection struct {
	kind   kind
	parent string // the parent's id; empty means any
	labels string
	search string
	limit  int // 0 means no limit
}

func (sel selection) collection() string {
	if sel.parent == "" {
		return sel.kind.collection
	}
	return fleetclient.Nested(sel.kind.parent, sel.parent, sel.kind.collection)
}

// pages reads a selection page by page. It ends with the first error.
func pages(ctx context.Context, client *fleetclient.Client, sel selection) iter.Seq2[[]item, error] {
	const pageSize = 500
	return func(yield func([]item, error) bool) {
		query := fleetclient.Query{Labels: sel.labels, Search: sel.search, PageSize: pageSize}.Values()
		left := sel.limit
		var body []byte
		for {
			if sel.limit > 0 {
				query.Set("limit", strconv.Itoa(min(left, pageSize)))
			}
			var page struct {
				Items    []json.RawMessage `json:"items"`
				Continue string            `json:"continue"`
			}
			var err error
			if body, err = client.ListPage(ctx, sel.collection(), query, body); err == nil {
				if err = json.Unmarshal(body, &page); err != nil {
					err = fmt.Errorf("list %s: %w: %w", sel.kind.collection, fleetclient.ErrBadAnswer, err)
				}
			}
			items := make([]item, 0, len(page.Items))
			for _, raw := range page.Items {
				i, itemErr := newItem(sel.kind, raw)
				err = errors.Join(err, itemErr)
				items = append(items, i)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			left -= len(items)
			if !yield(items, nil) || page.Continue == "" || sel.limit > 0 && left <= 0 {
				return
			}
			if page.Continue == query.Get("continue") {
				yield(nil, fmt.Errorf("list %s: %w: the page continues with itself", sel.kind.collection, fleetclient.ErrBadAnswer))
				return
			}
			query.Set("continue", page.Continue)
		}
	}
}

// resolve finds the resource that the user named.
func resolve(ctx context.Context, client *fleetclient.Client, r ref) (item, error) {
	if isID(r.name) {
		return byID(ctx, client, r.kind, r.name)
	}
	sel := selection{kind: r.kind, search: "name = " + quote(r.name), limit: 2}
	if r.parent != "" {
		owner, err := resolve(ctx, client, ref{kind: kindOf(r.kind.parent), name: r.parent})
		if err != nil {
			return item{}, err
		}
		sel.parent = owner.resource.ID
	}
	for found, err := range pages(ctx, client, sel) {
		switch {
		case err != nil:
			return item{}, fmt.Errorf("find %s: %w", r, err)
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return item{}, &failure{
				err: fmt.Errorf("find %s: more than one bears the name", r), code: CodePrecondition,
				next: fmt.Sprintf("fleetloop get %s -o wide   lists their ids; give one, or PARENT/%s", r.kind.collection, r.name),
			}
		}
	}
	return item{}, &failure{
		err: fmt.Errorf("find %s: %w", r, errNotFound), code: CodePrecondition,
		next: fmt.Sprintf("fleetloop get %s   lists what there is", r.kind.collection),
	}
}

func byID(ctx context.Context, client *fleetclient.Client, k kind, id string) (item, error) {
	raw, err := client.GetRaw(ctx, k.collection, id)
	if fleetclient.IsNotFound(err) {
		return item{}, &failure{
			err: fmt.Errorf("find %s %q: %w", k.singular, id, errNotFound), code: CodePrecondition,
			next: fmt.Sprintf("fleetloop get %s -o wide   lists what there is", k.collection),
		}
	}
	if err != nil {
		return item{}, err
	}
	return newItem(k, raw)
}

// nameOwners puts the parents' names where their ids stand. A parent that can
// not be read, as when it has just gone, stays an id.
func nameOwners(ctx context.Context, client *fleetclient.Client, items []item, known map[string]string) {
	const atOnce = 50 // a query is at most 4096 characters
	var missing []string
	for _, i := range items {
		if _, ok := known[i.owner]; !ok && isID(i.owner) {
			known[i.owner] = i.owner
			missing = append(missing, i.owner)
		}
	}
	for len(missing) > 0 {
		n := min(atOnce, len(missing))
		var quoted []string
		for _, id := range missing[:n] {
			quoted = append(quoted, quote(id))
		}
		missing = missing[n:]
		sel := selection{kind: kindOf(items[0].kind.parent), search: "id in [" + strings.Join(quoted, ", ") + "]"}
		for owners, err := range pages(ctx, client, sel) {
			if err != nil {
				return
			}
			for _, o := range owners {
				known[o.resource.ID] = o.resource.Name
			}
		}
	}
	for i := range items {
		if name, ok := known[items[i].owner]; ok {
			items[i].owner = name
		}
	}
}

// isID reports whether a text looks like the id of a resource, a UUID. No
// name has that form and length.
func isID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range []byte(text) {
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return false
			}
		}
	}
	return true
}

// quote writes a text as a literal of the API's query language.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
