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
		RunE: func(cmd *cobra.Command, args []string) error {
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
			for n, i := range items {
				if n > 0 {
					if _, err := io.WriteString(s.env.Stdout, "\n\n"); err != nil {
						return err
					}
				}
				if err := describeItem(cmd.Context(), s, client, i); err != nil {
					return err
				}
			}
			return nil
		},
	}
	sc.addFlags(s, cmd, true)
	return cmd
}

func describeItem(ctx context.Context, s *session, client *fleetclient.Client, i resource.Item) error {
	reports, err := client.Collection(i.Kind.Collection).Statuses(ctx, i.Resource.ID)
	if err != nil {
		return err
	}
	details := resource.Description{Item: i, Reports: reports}
	if i.Kind.Name == v1.KindCluster {
		sync, err := client.Syncs().Get(ctx, i.Resource.ID)
		switch {
		case err == nil:
			details.Sync = &sync
		case !fleetclient.IsNotFound(err): // a server without Gardener has none
			return err
		}
	}
	for _, k := range i.Kind.Children() {
		of := resource.Children{Kind: k}
		for page, err := range resource.ListPages(ctx, client, resource.Selection{Kind: k, Parent: i.Resource.ID, Limit: resource.MaxChildren + 1}) {
			if err != nil {
				return err
			}
			of.Items = append(of.Items, page...)
		}
		if len(of.Items) > 0 {
			details.Children = append(details.Children, of)
		}
	}
	return resource.WriteDescription(s.env.Stdout, details, s.showOptions())
}
