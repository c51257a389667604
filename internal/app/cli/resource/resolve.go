package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
)

// The reasons why a reference cannot be resolved.
var (
	// ErrNotFound means that no resource has the name or ID.
	ErrNotFound = errors.New("not found")

	// ErrAmbiguous means that several resources have the name.
	ErrAmbiguous = errors.New("more than one has this name")
)

// LookupError holds an unresolved reference and wraps the reason.
type LookupError struct {
	Ref Ref
	Err error
}

// Error returns the reference and the reason.
func (e *LookupError) Error() string { return fmt.Sprintf("find %s: %v", e.Ref, e.Err) }

// Unwrap returns the reason.
func (e *LookupError) Unwrap() error { return e.Err }

// Item is one resource, decoded and in its original form.
type Item struct {
	Raw      json.RawMessage
	Resource v1.Resource
	Kind     Kind

	// Owner is the name of the parent, or its ID if the name is unknown.
	Owner string
}

// KindAndName returns the name of the item in messages, in a form that commands accept as an argument.
func (i Item) KindAndName() string {
	if i.Kind.IsChild() && i.Owner != "" {
		return i.Kind.Singular + "/" + i.Owner + "/" + i.Resource.Name
	}
	return i.Kind.Singular + "/" + i.Resource.Name
}

// NewItem decodes a resource from the API.
func NewItem(k Kind, raw json.RawMessage) (Item, error) {
	i := Item{Raw: raw, Kind: k}
	if err := json.Unmarshal(raw, &i.Resource); err != nil {
		return Item{}, fmt.Errorf("%w: a %s of it: %w", fleetclient.ErrInvalidResponse, k.Singular, err)
	}
	if owner := i.Resource.OwnerResource; owner != nil {
		i.Owner = owner.ID
	} else if owner := i.Resource.OwnerReferences; owner != nil {
		i.Owner = owner.ID
	}
	return i, nil
}

// Resolve finds the resource of a reference. If there is none or more than one, the error is a
// *LookupError.
func Resolve(ctx context.Context, client *fleetclient.Client, r Ref) (Item, error) {
	if isUUID(r.Name) {
		return readByID(ctx, client, r)
	}
	selection := Selection{Kind: r.Kind, Search: "name = " + quoteLiteral(r.Name), Limit: maxNamesakes}
	if r.Parent != "" {
		owner, err := Resolve(ctx, client, Ref{Kind: r.Kind.Parent(), Name: r.Parent})
		if err != nil {
			return Item{}, err
		}
		selection.Parent = owner.Resource.ID
	}
	for found, err := range ListPages(ctx, client, selection) {
		if err != nil {
			return Item{}, fmt.Errorf("find %s: %w", r, err)
		}
		if len(found) > 0 {
			return selectOnlyOrOnlyLive(r, found)
		}
	}
	return Item{}, &LookupError{Ref: r, Err: ErrNotFound}
}

// maxNamesakes limits the number of resources that are read for one name. Resources in deletion share
// their names with their successors.
const maxNamesakes = 50

// selectOnlyOrOnlyLive returns the only resource with a name, or the only one that is not in deletion.
func selectOnlyOrOnlyLive(r Ref, found []Item) (Item, error) {
	if len(found) == 1 {
		return found[0], nil
	}
	live := slices.DeleteFunc(found, func(i Item) bool { return i.Resource.DeletedTime != nil })
	if len(live) != 1 {
		return Item{}, &LookupError{Ref: r, Err: ErrAmbiguous}
	}
	return live[0], nil
}

func readByID(ctx context.Context, client *fleetclient.Client, r Ref) (Item, error) {
	raw, err := client.Raw().Get(ctx, r.Kind.Collection, r.Name)
	if fleetclient.IsNotFound(err) {
		return Item{}, &LookupError{Ref: r, Err: ErrNotFound}
	}
	if err != nil {
		return Item{}, err
	}
	return NewItem(r.Kind, raw)
}

// ReadAgain reads an item again and reports whether it is gone.
func ReadAgain(ctx context.Context, client *fleetclient.Client, i Item) (now Item, gone bool, err error) {
	raw, err := client.Raw().Get(ctx, i.Kind.Collection, i.Resource.ID)
	if fleetclient.IsNotFound(err) {
		return i, true, nil
	}
	if err != nil {
		return i, false, err
	}
	now, err = NewItem(i.Kind, raw)
	now.Owner = i.Owner
	return now, false, err
}

// ReplaceOwnerIDsWithNames replaces the IDs of parents with names, and stores them in known for the next call. A
// parent that cannot be read, for example after its deletion, keeps its ID.
func ReplaceOwnerIDsWithNames(ctx context.Context, client *fleetclient.Client, items []Item, known map[string]string) {
	const idsPerSearch = 50 // the API accepts a search of at most 4096 characters
	var missing []string
	for _, item := range items {
		if _, ok := known[item.Owner]; !ok && isUUID(item.Owner) {
			known[item.Owner] = item.Owner // until its name is read
			missing = append(missing, quoteLiteral(item.Owner))
		}
	}
	for ids := range slices.Chunk(missing, idsPerSearch) {
		selection := Selection{Kind: items[0].Kind.Parent(), Search: "id in [" + strings.Join(ids, ", ") + "]"}
		for owners, err := range ListPages(ctx, client, selection) {
			if err != nil {
				return
			}
			for _, owner := range owners {
				known[owner.Resource.ID] = owner.Resource.Name
			}
		}
	}
	for i := range items {
		if name, ok := known[items[i].Owner]; ok {
			items[i].Owner = name
		}
	}
}

// isUUID reports whether a text has the form of a resource ID. No name has that form and length.
func isUUID(text string) bool {
	const length = 36 // uuid.Parse also accepts longer and shorter forms
	if len(text) != length {
		return false
	}
	_, err := uuid.Parse(text)
	return err == nil
}

// quoteLiteral quotes a text as a literal of the API query language.
func quoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
