package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

// The kinds of objects that change events name and the fleet API does not store.
const (
	nodeKind      = "node"
	executionKind = "execution"
)

// setObjectFilterFromArgs adds the object of the arguments to the query.
func (o *changesOptions) setObjectFilterFromArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	kind, name, isObject := strings.Cut(args[0], "/")
	if len(args) == 2 && !isObject {
		kind, name, isObject = args[0], args[1], true
	}
	switch {
	case len(args) == 1 && FormatCommandSuggestion(cmd, args[0]) != "":
		return RejectUnknownCommand(cmd, args)
	case len(args) == 1 && !isObject:
		return usageErrorf(cmd, "%q is neither a command nor an object; give an object as KIND/NAME, such as cluster/%[1]s", args[0])
	case len(args) > 2 || len(args) == 2 && strings.Contains(args[0], "/"):
		return usageErrorf(cmd, "give one object")
	case o.query.Node != "" || o.query.Subject != "":
		return usageErrorf(cmd, "an object cannot be combined with --node or --subject")
	}
	switch single := strings.TrimSuffix(strings.ToLower(kind), "s"); {
	case single == nodeKind && name != "":
		o.query.Node = name
		return nil
	case single == executionKind && name != "":
		o.query.Subject = executionKind + "s/" + name
		return nil
	}
	k, refs, err := resource.ParseRefs([]string{kind + "/" + name}, o.query.Cluster)
	if err != nil {
		return usageError(cmd, err)
	}
	switch k.Collection {
	case v1.CollectionClusters:
		o.query.Cluster = refs[0].Name
	case v1.CollectionNodePools:
		o.query.Cluster = refs[0].Parent
	default:
		return usageErrorf(
			cmd,
			"the timeline has no changes of %s; use cluster/NAME, nodepool/CLUSTER/NAME, node/NAME or execution/NAME",
			k.Collection,
		)
	}
	o.query.Subject = k.Collection + "/" + refs[0].Name
	return nil
}

// completeObject completes kinds, then names: those of resources from the list of the fleet API, and those of nodes
// and executions from the newest changes, because the fleet API does not store them.
func (s *session) completeObject(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	kind, name, isObject := strings.Cut(toComplete, "/")
	prefix := kind + "/"
	if len(args) == 1 {
		kind, name, prefix, isObject = args[0], toComplete, "", true
	}
	kind = strings.TrimSuffix(strings.ToLower(kind), "s")
	if !isObject || len(args) > 1 || kind != nodeKind && kind != executionKind {
		return s.completeKindOrNameOf(v1.CollectionClusters, v1.CollectionNodePools, nodeKind+"s", executionKind+"s")(cmd, args, toComplete)
	}
	var names []cobra.Completion
	for _, e := range s.listNewestChanges(cmd) {
		found := e.Node
		if kind == executionKind {
			_, found, _ = strings.Cut(e.Subject, executionKind+"s/")
		}
		if found = prefix + found; found != prefix && strings.HasPrefix(found, prefix+name) && !slices.Contains(names, found) {
			names = append(names, found)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// listNewestChanges returns the newest changes, and none if the server does not answer.
func (s *session) listNewestChanges(cmd *cobra.Command) []v1.ChangeEvent {
	client, err := s.newClient(cmd)
	if err != nil {
		return nil
	}
	defer client.CloseIdle()
	ctx, cancel := withCompletionTimeout(cmd)
	defer cancel()
	page, err := client.ChangeEvents().Page(ctx, fleetclient.ChangeEventOptions{PageSize: completionLimit}, "")
	if err != nil {
		return nil
	}
	return page.Items
}
