package lookup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetclient"
)

// Why a reference leads to no resource.
var (
	// ErrNotFound means that nothing bears the name or id.
	ErrNotFound = errors.New("not found")

	// ErrAmbiguous means that several bear the name.
	ErrAmbiguous = errors.New("more than one has this name")
)

// An Error says which reference leads nowhere, and wraps the reason.
type Error struct {
	Ref Ref
	Err error
}

// Error says what was looked for and why it was not found.
func (e *Error) Error() string { return fmt.Sprintf("find %s: %v", e.Ref, e.Err) }

// Unwrap gives the reason.
func (e *Error) Unwrap() error { return e.Err }

// An Item is one resource: as it was served, for those who want all of it,
// and decoded.
type Item struct {
	Raw      json.RawMessage
	Resource v1.Resource
	Kind     Kind

	// Owner is the parent's name, or its id where the name is not known.
	Owner string
}

// Label is how the item is called in messages, in a form that the commands
// take as an argument.
func (i Item) Label() string {
	if i.Kind.IsChild() && i.Owner != "" {
		return i.Kind.Singular + "/" + i.Owner + "/" + i.Resource.Name
	}
	return i.Kind.Singular + "/" + i.Resource.Name
}

// NewItem decodes a resource as it was served.
func NewItem(k Kind, raw json.RawMessage) (Item, error) {
	i := Item{Raw: raw, Kind: k}
	if err := json.Unmarshal(raw, &i.Resource); err != nil {
		return Item{}, fmt.Errorf("%w: a %s of it: %w", fleetclient.ErrBadAnswer, k.Singular, err)
	}
	if owner := i.Resource.OwnerResource; owner != nil {
		i.Owner = owner.ID
	} else if owner := i.Resource.OwnerReferences; owner != nil {
		i.Owner = owner.ID
	}
	return i, nil
}

// Resolve finds the resource that the user named. If that names none, or more
// than one, the error is an *Error.
func Resolve(ctx context.Context, client *fleetclient.Client, r Ref) (Item, error) {
	if isID(r.Name) {
		return byID(ctx, client, r)
	}
	sel := Selection{Kind: r.Kind, Search: "name = " + quoteLiteral(r.Name), Limit: maxOfName}
	if r.Parent != "" {
		owner, err := Resolve(ctx, client, Ref{Kind: r.Kind.Parent(), Name: r.Parent})
		if err != nil {
			return Item{}, err
		}
		sel.Parent = owner.Resource.ID
	}
	for found, err := range Pages(ctx, client, sel) {
		switch {
		case err != nil:
			return Item{}, fmt.Errorf("find %s: %w", r, err)
		case len(found) > 0:
			return oneOf(r, found)
		}
	}
	return Item{}, &Error{Ref: r, Err: ErrNotFound}
}

// maxOfName is how many resources of one name are looked at: those that are being
// deleted share their names with the one that came after them.
const maxOfName = 50

// oneOf gives the resource that a name means: the only one, or the only one that
// is not being deleted.
func oneOf(r Ref, found []Item) (Item, error) {
	if len(found) == 1 {
		return found[0], nil
	}
	live := slices.DeleteFunc(found, func(i Item) bool { return i.Resource.DeletedTime != nil })
	if len(live) != 1 {
		return Item{}, &Error{Ref: r, Err: ErrAmbiguous}
	}
	return live[0], nil
}

func byID(ctx context.Context, client *fleetclient.Client, r Ref) (Item, error) {
	raw, err := client.GetRaw(ctx, r.Kind.Collection, r.Name)
	if fleetclient.IsNotFound(err) {
		return Item{}, &Error{Ref: r, Err: ErrNotFound}
	}
	if err != nil {
		return Item{}, err
	}
	return NewItem(r.Kind, raw)
}

// Again reads an item anew, or finds it gone.
func Again(ctx context.Context, client *fleetclient.Client, i Item) (now Item, gone bool, err error) {
	raw, err := client.GetRaw(ctx, i.Kind.Collection, i.Resource.ID)
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

// NameOwners puts the parents' names where their ids stand, and keeps them in
// known for the next call. A parent that can not be read, as when it has just
// gone, stays an id.
func NameOwners(ctx context.Context, client *fleetclient.Client, items []Item, known map[string]string) {
	const atOnce = 50 // the API takes a search of at most 4096 characters
	var missing []string
	for _, i := range items {
		if _, ok := known[i.Owner]; !ok && isID(i.Owner) {
			known[i.Owner] = i.Owner
			missing = append(missing, quoteLiteral(i.Owner))
		}
	}
	for len(missing) > 0 {
		n := min(atOnce, len(missing))
		sel := Selection{Kind: items[0].Kind.Parent(), Search: "id in [" + strings.Join(missing[:n], ", ") + "]"}
		missing = missing[n:]
		for owners, err := range Pages(ctx, client, sel) {
			if err != nil {
				return
			}
			for _, o := range owners {
				known[o.Resource.ID] = o.Resource.Name
			}
		}
	}
	for i := range items {
		if name, ok := known[items[i].Owner]; ok {
			items[i].Owner = name
		}
	}
}

// isID reports whether a text looks like the id of a resource. No name has
// that form and length.
func isID(text string) bool {
	const length = 36 // uuid.Parse takes longer and shorter forms, too
	if len(text) != length {
		return false
	}
	_, err := uuid.Parse(text)
	return err == nil
}

// quoteLiteral writes a text as a literal of the API's query language.
func quoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
