package action

import (
	"slices"
	"strings"
)

// A Right is one permission, of one verb, where a request needs it.
type Right struct {
	Group, Resource, Subresource string
	Verb                         string
	Namespace                    string // empty is all of them, or none
	Name                         string // empty is any
	Executor                     bool   // in the namespace of executions, which Namespace does not say
}

// String is a right in short, such as "patch apps/deployments/scale".
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

// Rights are what the action's account needs for the request's target. Of an
// action for several kinds they are those for the target's.
func (r Request) Rights() []Right {
	own, _ := resourceOf(r.Target.APIVersion, r.Target.Kind)
	var others []string
	for _, kind := range r.Action.Kinds {
		if k, ok := resourceOf("", kind); ok && k.Resource != own.Resource {
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
			if p.Group == own.Group && p.Resource == own.Resource && ofOne(verb) {
				right.Name = r.Target.Name
			}
			rights = append(rights, right)
		}
	}
	return rights
}

// ofOne says whether a verb is allowed for objects by name.
func ofOne(verb string) bool {
	return !slices.Contains(strings.Fields("list watch create deletecollection"), verb)
}
