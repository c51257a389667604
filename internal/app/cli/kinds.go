package cli

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A kind is one kind of resource and what users call it.
type kind struct {
	name       string // as in the API
	collection string
	singular   string // as in names like cluster/c1
	short      string // may be empty
	parent     string // the parent's collection, empty for a kind without
}

// kinds are all kinds in the order in which they are offered.
func kinds() []kind {
	return []kind{
		{v1.KindCluster, v1.CollectionClusters, "cluster", "c", ""},
		{v1.KindNodePool, v1.CollectionNodePools, "nodepool", "np", v1.CollectionClusters},
		{v1.KindManifest, v1.CollectionManifests, "manifest", "", ""},
		{v1.KindWorkload, v1.CollectionWorkloads, "workload", "", ""},
	}
}

func (k kind) isChild() bool { return k.parent != "" }

// findKind finds a kind by any of its names, in any case.
func findKind(text string) (kind, error) {
	name := strings.ToLower(text)
	var known []string
	for _, k := range kinds() {
		if name != "" && (name == k.collection || name == k.singular || name == k.short) {
			return k, nil
		}
		known = append(known, k.collection)
	}
	return kind{}, fmt.Errorf("there is no kind of resource %q; there are %s", text, strings.Join(known, ", "))
}

func kindOf(collection string) kind {
	list := kinds()
	return list[slices.IndexFunc(list, func(k kind) bool { return k.collection == collection })]
}

// A ref is one resource as the user named it: its name or id and, for a kind
// with a parent, perhaps the parent's.
type ref struct {
	kind   kind
	parent string
	name   string
}

func (r ref) String() string {
	if r.parent != "" {
		return fmt.Sprintf("%s %q", r.kind.singular, r.parent+"/"+r.name)
	}
	return fmt.Sprintf("%s %q", r.kind.singular, r.name)
}

// parseRefs reads either a kind and names of it, or any number of kind/name.
// Without names, every resource of the kind is meant and refs is empty.
func parseRefs(args []string, parent string) (k kind, refs []ref, err error) {
	if len(args) == 0 {
		return kind{}, nil, fmt.Errorf("say which kind of resource: %s", strings.Join(collections(), ", "))
	}
	if !strings.Contains(args[0], "/") {
		if k, err = findKind(args[0]); err != nil {
			return kind{}, nil, err
		}
		for _, arg := range args[1:] {
			r, err := newRef(k, arg, parent)
			if err != nil {
				return kind{}, nil, err
			}
			refs = append(refs, r)
		}
		return k, refs, nil
	}
	for _, arg := range args {
		prefix, rest, ok := strings.Cut(arg, "/")
		if !ok {
			return kind{}, nil, fmt.Errorf("%q is not of the form kind/name, as %q is", arg, args[0])
		}
		if k, err = findKind(prefix); err != nil {
			return kind{}, nil, err
		}
		r, err := newRef(k, rest, parent)
		if err != nil {
			return kind{}, nil, err
		}
		refs = append(refs, r)
	}
	return refs[0].kind, refs, nil
}

func newRef(k kind, text, parent string) (ref, error) {
	r := ref{kind: k, parent: parent, name: text}
	if before, after, ok := strings.Cut(text, "/"); ok {
		if parent != "" {
			return ref{}, fmt.Errorf("%q names a parent, and so does the flag", text)
		}
		r.parent, r.name = before, after
		if r.parent == "" {
			return ref{}, fmt.Errorf("%q lacks the name of the parent", text)
		}
	}
	switch {
	case r.name == "" || strings.Contains(r.name, "/"):
		return ref{}, fmt.Errorf("%q is not the name or id of a %s", text, k.singular)
	case r.parent != "" && !k.isChild():
		return ref{}, fmt.Errorf("a %s has no parent; want its name or id and not %q", k.singular, r.parent+"/"+r.name)
	}
	return r, nil
}

func collections() []string {
	var list []string
	for _, k := range kinds() {
		list = append(list, k.collection)
	}
	return list
}
