package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

const fileUsage = "a `file`, a folder with .yaml, .yml and .json files, or - (standard input)"

func newCreateCommand(s *session) *cobra.Command {
	var file, format string
	var dry dryRun
	cmd := &cobra.Command{
		Use:   "create -f FILE",
		Short: "Create resources from files",
		Long: "Create resources from YAML or JSON files. A file can contain several resources:\n\n" +
			"  kind: Cluster\n  name: eu-1\n  labels: {region: us-east}\n  spec: {version: \"1.30\"}\n" +
			"  ---\n  kind: NodePool\n  name: workers\n  cluster: eu-1\n  spec: {replicas: 3}\n\n" +
			"All resources are validated before the first is created.",
		Example: "  fleetloop create -f fleet.yaml\n" +
			"  fleetloop get clusters -o yaml | fleetloop --server http://other:8080 create -f -",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageErrorf(cmd, "give the file with -f; - is standard input")
			}
			if err := CheckFormat(cmd, format, changeFormats()); err != nil {
				return err
			}
			docs, err := resource.ReadDocuments(file, s.env.Stdin)
			if err != nil {
				return usageError(cmd, err)
			}
			client, err := s.newClient(cmd)
			if err != nil {
				return err
			}
			defer client.CloseIdle()
			return createAndPrintAll(cmd.Context(), s, client, docs, createOptions{format, dry})
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", fileUsage)
	dry.addFlag(cmd)
	AddOutputFlag(cmd, &format, changeFormats())
	return cmd
}

type createOptions struct {
	format string
	dryRun dryRun
}

// createAndPrintAll creates the resources of documents and prints them. It continues after a failure, because the
// documents may be independent.
func createAndPrintAll(
	ctx context.Context, s *session, client *fleetclient.Client, docs []resource.Document, o createOptions,
) error {
	out := s.newChangedResourcePrinter(o.format, len(docs) == 1, o.dryRun.describe("created"))
	var errs []error
	done := 0
	for _, doc := range docs {
		item, err := createOne(ctx, client, doc, o.dryRun)
		if err != nil {
			errs = append(errs, fmt.Errorf("create %s (%s): %w", doc.Ref, doc.Where, err))
			continue
		}
		done++
		if err := out.Write([]resource.Item{item}); err != nil {
			return err
		}
	}
	if done > 0 {
		if err := out.Close(); err != nil {
			return err
		}
	}
	return joinErrorsWithExitCode(errs, done)
}

// createOne creates the resource of a document. A child is created in the collection of its parent.
func createOne(ctx context.Context, client *fleetclient.Client, doc resource.Document, dry dryRun) (resource.Item, error) {
	kind := doc.Ref.Kind
	collection := kind.Collection
	var owner string
	if kind.IsChild() {
		parent, err := resource.Resolve(ctx, client, resource.Ref{Kind: kind.Parent(), Name: doc.Ref.Parent})
		if err != nil {
			return resource.Item{}, err
		}
		collection = fleetclient.Nested(kind.Parent().Collection, parent.Resource.ID, collection)
		owner = parent.Resource.Name
	}
	created, err := dry.collection(client, collection).Create(ctx, doc.CreateRequest)
	if err != nil {
		return resource.Item{}, err
	}
	return itemOf(kind, created, owner)
}

// itemOf converts a resource in the response to a change into an item.
func itemOf(k resource.Kind, r v1.Resource, owner string) (resource.Item, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return resource.Item{}, fmt.Errorf("write JSON: %w", err)
	}
	return resource.Item{Raw: raw, Resource: r, Kind: k, Owner: owner}, nil
}
