package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

// The limits of a completion: its duration, and as many names as fit on one or
// two screens.
const (
	completionTimeout = 2 * time.Second
	completionLimit   = 200
)

// completeKindOrName completes kinds, then names from the server.
func (s *session) completeKindOrName(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return s.completeKindOrNameOf(resource.Collections()...)(cmd, args, toComplete)
}

// completeKindOrNameOf returns the completion of a command that has only some of the kinds.
func (s *session) completeKindOrNameOf(collections ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 && !strings.Contains(toComplete, "/") {
			return cobra.AppendActiveHelp(slices.Clone(collections), "a resource kind, or kind/name"), cobra.ShellCompDirectiveNoFileComp
		}
		return s.completeNameOfKind(cmd, args, toComplete)
	}
}

func (s *session) completeNameOfKind(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if prefix, rest, ok := strings.Cut(toComplete, "/"); ok && len(args) == 0 {
		k, err := resource.ParseKind(prefix)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return s.completeNamesFromServer(cmd, k, rest, prefix+"/")
	}
	k, err := resource.ParseKind(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return s.completeNamesFromServer(cmd, k, toComplete, "")
}

func (s *session) completeClusters(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return s.completeNamesFromServer(cmd, resource.Kinds()[0], toComplete, "")
}

// completeNamesFromServer returns the names on the server with a prefix. An unreachable server yields none,
// because a completion cannot show errors.
func (s *session) completeNamesFromServer(
	cmd *cobra.Command,
	k resource.Kind,
	typed, resultPrefix string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	const files = cobra.ShellCompDirectiveNoFileComp
	client, err := s.newClient(cmd)
	if err != nil {
		return nil, files
	}
	defer client.CloseIdle()
	ctx, cancel := withCompletionTimeout(cmd)
	defer cancel()
	sel := resource.Selection{Kind: k, Limit: completionLimit}
	owner, name, hasOwner := strings.Cut(typed, "/")
	if k.IsChild() && hasOwner {
		i, err := resource.Resolve(ctx, client, resource.Ref{Kind: k.Parent(), Name: owner})
		if err != nil {
			return nil, files
		}
		sel.Parent, typed, resultPrefix = i.Resource.ID, name, resultPrefix+owner+"/"
	}
	sel.Search = resource.NamePrefixSearch(typed)
	var names []cobra.Completion
	for items, err := range resource.ListPages(ctx, client, sel) {
		if err != nil {
			return nil, files
		}
		for _, i := range items {
			names = append(names, cobra.CompletionWithDesc(resultPrefix+i.Resource.Name, string(i.Resource.Status.Phase)))
		}
	}
	return names, files
}

func withCompletionTimeout(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background() // cobra has no context if it was run without one
	}
	return context.WithTimeout(parent, completionTimeout)
}
