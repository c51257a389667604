package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

func newDescribeCommand(s *session) *cobra.Command {
	var sc scope
	cmd := &cobra.Command{
		Use:   "describe KIND NAME|ID ...",
		Short: "Show details of resources",
		Long: "Show all details of resources: spec, generation, conditions, the report of each adapter, the status of the\n" +
			"sync to Gardener, and the node pools of a cluster.",
		Example:           "  fleetloop describe cluster eu-1\n  fleetloop describe nodepool eu-1/workers",
		ValidArgsFunction: s.completeKindOrName,
		RunE:              func(cmd *cobra.Command, args []string) error { return runDescribe(s, cmd, args, sc) },
	}
	sc.addFlags(s, cmd, true)
	return cmd
}

func runDescribe(s *session, cmd *cobra.Command, args []string, sc scope) error {
	what, err := sc.parseTarget(cmd, args)
	if err != nil {
		return err
	}
	if what.isUnrestricted() {
		return usageErrorf(cmd, "give the %s by name or id", what.kind.Collection)
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	items, err := what.findItems(cmd.Context(), client)
	if err != nil {
		return err
	}
	for n, item := range items {
		if n > 0 {
			if _, err := io.WriteString(s.env.Stdout, "\n\n"); err != nil {
				return err
			}
		}
		description, err := readDescription(cmd.Context(), client, item)
		if err != nil {
			return err
		}
		if err := resource.WriteDescription(s.env.Stdout, description, s.showOptions()); err != nil {
			return err
		}
	}
	return nil
}

// readDescription reads what belongs to a resource: reports, the sync of a cluster, and children.
func readDescription(ctx context.Context, client *fleetclient.Client, item resource.Item) (resource.Description, error) {
	id := item.Resource.ID
	reports, err := client.Collection(item.Kind.Collection).Statuses(ctx, id)
	if err != nil {
		return resource.Description{}, err
	}
	description := resource.Description{Item: item, Reports: reports}
	if item.Kind.Name == v1.KindCluster {
		sync, err := client.Syncs().Get(ctx, id)
		switch {
		case err == nil:
			description.Sync = &sync
		case !fleetclient.IsNotFound(err): // a server without Gardener has none
			return resource.Description{}, err
		}
	}
	for _, kind := range item.Kind.Children() {
		children := resource.Children{Kind: kind}
		selection := resource.Selection{
			Kind:   kind,
			Parent: id,
			Limit:  resource.MaxChildren + 1, // one more than shown tells whether there are more
		}
		for page, err := range resource.ListPages(ctx, client, selection) {
			if err != nil {
				return resource.Description{}, err
			}
			children.Items = append(children.Items, page...)
		}
		if len(children.Items) > 0 {
			description.Children = append(description.Children, children)
		}
	}
	return description, nil
}
