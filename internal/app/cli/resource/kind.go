package resource

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Kind is one kind of resource with the names that users write.
type Kind struct {
	// Name is the kind in the API, and Collection its plural there.
	Name       string
	Collection string

	// Singular is the prefix of names, as in cluster/eu-1.
	Singular string

	short  string // may be empty
	parent string // the collection of the parent, or empty
}

// Kinds returns all kinds in display order.
func Kinds() []Kind {
	return []Kind{
		{Name: v1.KindCluster, Collection: v1.CollectionClusters, Singular: "cluster", short: "c"},
		{Name: v1.KindNodePool, Collection: v1.CollectionNodePools, Singular: "nodepool", short: "np", parent: v1.CollectionClusters},
		{Name: v1.KindManifest, Collection: v1.CollectionManifests, Singular: "manifest"},
		{Name: v1.KindWorkload, Collection: v1.CollectionWorkloads, Singular: "workload"},
	}
}

// Collections returns the plural names of all kinds.
func Collections() []string {
	var list []string
	for _, k := range Kinds() {
		list = append(list, k.Collection)
	}
	return list
}

// ParseKind finds a kind by any of its names, in any case.
func ParseKind(text string) (Kind, error) {
	name := strings.ToLower(text)
	for _, k := range Kinds() {
		if name != "" && (name == k.Collection || name == k.Singular || name == k.short) {
			return k, nil
		}
	}
	known := Collections()
	for _, k := range Kinds() {
		known = append(known, k.Singular)
	}
	return Kind{}, fmt.Errorf("unknown resource kind %q%s", text, suggestNearest(text, known, Collections()))
}

// SuggestWords returns suggestions for an unknown word: the nearest known word, if one is near, and
// all known words.
func SuggestWords(text string, known []string) string { return suggestNearest(text, known, known) }

// suggestNearest finds the nearest word among known, and lists others.
func suggestNearest(text string, known, listed []string) string {
	list := strings.Join(listed, ", ")
	if near := settings.Nearest(text, known); near != "" {
		return "; did you mean " + near + "? Use one of " + list
	}
	return "; use one of " + list
}

// IsChild reports whether resources of this kind have a parent.
func (k Kind) IsChild() bool { return k.parent != "" }

// Parent returns the kind of the parents, or the zero Kind without one.
func (k Kind) Parent() Kind {
	for _, other := range Kinds() {
		if other.Collection == k.parent {
			return other
		}
	}
	return Kind{}
}

// Children returns the kinds whose parents are of this kind.
func (k Kind) Children() []Kind {
	return slices.DeleteFunc(Kinds(), func(other Kind) bool { return other.parent != k.Collection })
}

// Ref is a reference to one resource by its name or ID, as users write it.
//
// It is a kind and a name or ID, as in "cluster eu-1", "cluster/eu-1" or "nodepool/eu-1/workers".
// For a kind with a parent it may include the parent. Names are resolved with the search of the API.
// An ambiguous name is an error, never a guess.
type Ref struct {
	Kind   Kind
	Parent string
	Name   string
}

// String returns the reference for messages.
func (r Ref) String() string {
	if r.Parent != "" {
		return fmt.Sprintf("%s %q", r.Kind.Singular, r.Parent+"/"+r.Name)
	}
	return fmt.Sprintf("%s %q", r.Kind.Singular, r.Name)
}

// ParseRefs reads either a kind and names of it, or any number of kind/name. Parent is the parent
// of all of them, empty for any. Without names it selects every resource of the kind, and refs is
// empty.
func ParseRefs(args []string, parent string) (firstKind Kind, refs []Ref, err error) {
	if len(args) == 0 {
		return Kind{}, nil, fmt.Errorf("give a resource kind: %s", strings.Join(Collections(), ", "))
	}
	if strings.Contains(args[0], "/") {
		refs, err = parseSlashSeparatedRefs(args, parent)
		if err != nil {
			return Kind{}, nil, err
		}
		return refs[0].Kind, refs, nil
	}
	kind, err := ParseKind(args[0])
	if err != nil {
		return Kind{}, nil, err
	}
	for _, name := range args[1:] {
		ref, err := parseRef(kind, name, parent)
		if err != nil {
			return Kind{}, nil, err
		}
		refs = append(refs, ref)
	}
	return kind, refs, nil
}

// parseSlashSeparatedRefs reads arguments of the form kind/name.
func parseSlashSeparatedRefs(args []string, parent string) ([]Ref, error) {
	var refs []Ref
	for _, arg := range args {
		prefix, name, ok := strings.Cut(arg, "/")
		if !ok {
			return nil, fmt.Errorf("%q is not of the form kind/name like %q", arg, args[0])
		}
		kind, err := ParseKind(prefix)
		if err != nil {
			return nil, err
		}
		ref, err := parseRef(kind, name, parent)
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// parseRef reads a name, or parent/name. parent is the parent that a flag names, or empty.
func parseRef(k Kind, text, parent string) (Ref, error) {
	r := Ref{Kind: k, Parent: parent, Name: text}
	if before, after, ok := strings.Cut(text, "/"); ok {
		if parent != "" {
			return Ref{}, fmt.Errorf("%q already names a parent, but --cluster %q is given", text, parent)
		}
		r.Parent = before
		r.Name = after
		if r.Parent == "" {
			return Ref{}, fmt.Errorf("%q lacks the name of its cluster", text)
		}
	}
	switch {
	case r.Name == "" || strings.Contains(r.Name, "/"):
		return Ref{}, fmt.Errorf("%q is not a valid name or id of a %s", text, k.Singular)
	case r.Parent != "" && !k.IsChild():
		return Ref{}, fmt.Errorf("a %s has no parent, but %q names %q", k.Singular, r.Name, r.Parent)
	}
	return r, nil
}
