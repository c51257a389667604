package action

import (
	"slices"
	"strings"
)

// A Right is a permission for one verb in a specific place.
type Right struct {
	Group, Resource, Subresource string
	Verb                         string
	Namespace                    string // empty means all namespaces, or cluster-scoped
	Name                         string // empty means any
	Executor                     bool   // in the namespace of executions; Namespace is unset then
}

// String returns a short form such as "patch apps/deployments/scale".
func (r Right) String() string {
	resource := r.Resource
	if r.Group != "" {
		resource = r.Group + "/" + resource
	}
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return r.Verb + " " + resource
}

// Rights returns the rights that the account needs for the target of the request. For an action
// with several kinds it returns those for the kind of the target.
func (r Request) Rights() []Right {
	own, _ := findKind(r.Target.APIVersion, r.Target.Kind)
	var others []string
	for _, kind := range r.Action.Kinds {
		if k, ok := findKind("", kind); ok && k.Resource != own.Resource {
			others = append(others, k.Resource)
		}
	}
	var rights []Right
	for _, p := range r.Action.Permissions {
		if p.Group == own.Group && slices.Contains(others, p.Resource) && !p.Executor {
			continue
		}
		for _, verb := range p.Verbs {
			right := Right{Group: p.Group, Resource: p.Resource, Subresource: p.Subresource, Verb: verb, Executor: p.Executor}
			if p.Executor {
				rights = append(rights, right)
				continue
			}
			if !p.ClusterScoped {
				right.Namespace = r.Target.Namespace
			}
			if p.Group == own.Group && p.Resource == own.Resource && canBeGrantedByName(verb) {
				right.Name = r.Target.Name
			}
			rights = append(rights, right)
		}
	}
	return rights
}

// canBeGrantedByName reports whether a verb can be granted for single objects by name.
func canBeGrantedByName(verb string) bool {
	return !slices.Contains(strings.Fields("list watch create deletecollection"), verb)
}
