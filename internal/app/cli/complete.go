package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A completion is worth no more than a moment, and a list no more than what
// fits a screen or two.
const (
	completionTimeout = 2 * time.Second
	completionLimit   = 200
)

// completeNames completes kinds, and then the names that the server has.
func (s *session) completeNames(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if prefix, rest, ok := strings.Cut(toComplete, "/"); ok && len(args) == 0 {
		k, err := findKind(prefix)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return s.liveNames(cmd, k, rest, prefix+"/")
	}
	if len(args) == 0 {
		return cobra.AppendActiveHelp(collections(), "a kind of resource, or kind/name"), cobra.ShellCompDirectiveNoFileComp
	}
	k, err := findKind(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return s.liveNames(cmd, k, toComplete, "")
}

func (s *session) completeClusters(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return s.liveNames(cmd, kinds()[0], toComplete, "")
}

// liveNames asks the server for the names that begin so. A server that can
// not be asked has none; a completion is no place for errors.
func (s *session) liveNames(cmd *cobra.Command, k kind, start, lead string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const files = cobra.ShellCompDirectiveNoFileComp
	client, err := s.connect(cmd)
	if err != nil {
		return nil, files
	}
	defer client.CloseIdle()
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background() //nolint:forbidigo // cobra completes without a context when it was run without one
	}
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	sel := selection{kind: k, limit: completionLimit}
	owner, name, hasOwner := strings.Cut(start, "/")
	if k.isChild() && hasOwner {
		i, err := resolve(ctx, client, ref{kind: kindOf(k.parent), name: owner})
		if err != nil {
			return nil, files
		}
		sel.parent, start, lead = i.resource.ID, name, lead+owner+"/"
	}
	if start != "" {
		sel.search = "name like " + quote(start+"%")
	}
	var names []cobra.Completion
	for items, err := range pages(ctx, client, sel) {
		if err != nil {
			return nil, files
		}
		for _, i := range items {
			names = append(names, cobra.CompletionWithDesc(lead+i.resource.Name, string(i.resource.Status.Phase)))
		}
	}
	return names, files
}
