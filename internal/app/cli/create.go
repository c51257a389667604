package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetclient"
)

const (
	// formatText says in a few words what was done.
	formatText = "text"

	fileUsage = "a `file`, a folder with .yaml, .yml and .json files, or - (standard input)"
)

func changeFormats() []string { return []string{formatText, formatJSON, formatYAML, formatName} }

func (s *session) createCommand() *cobra.Command {
	var file, format string
	cmd := &cobra.Command{
		Use:   "create -f FILE",
		Short: "Create resources that files describe",
		Long: "Create the resources that files describe, YAML or JSON, one or more in a file:\n\n" +
			"  kind: Cluster\n  name: c1\n  labels: {region: us-east}\n  spec: {version: \"1.30\"}\n" +
			"  ---\n  kind: NodePool\n  name: workers\n  cluster: c1\n  spec: {replicas: 3}\n\n" +
			"All are checked before the first is created.",
		Example: "  fleetloop create -f fleet.yaml\n" +
			"  fleetloop get clusters -o yaml | fleetloop --server http://other:8080 create -f -",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef(cmd, "say with -f which file describes the resources; - is standard input")
			}
			if err := checkFormat(cmd, format, changeFormats()...); err != nil {
				return err
			}
			docs, err := s.readDocuments(file)
			if err != nil {
				return usage(cmd, err)
			}
			client, err := s.connect(cmd)
			if err != nil {
				return err
			}
			defer client.CloseIdle()
			return s.create(cmd.Context(), client, docs, format)
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", fileUsage)
	addOutputFlag(cmd, &format, changeFormats()...)
	return cmd
}

// create goes on after a failure: the documents may have nothing to do with
// each other.
func (s *session) create(ctx context.Context, client *fleetclient.Client, docs []document, format string) error {
	out := s.newChangePrinter(format, len(docs) == 1, "created")
	var errs []error
	done := 0
	for _, d := range docs {
		i, err := createOne(ctx, client, d)
		if err != nil {
			errs = append(errs, fmt.Errorf("create %s (%s): %w", d.ref(), d.where, err))
			continue
		}
		done++
		if err := out.print([]item{i}); err != nil {
			return err
		}
	}
	if done > 0 {
		if err := out.close(); err != nil {
			return err
		}
	}
	return all(errs, done)
}

func createOne(ctx context.Context, client *fleetclient.Client, d document) (item, error) {
	collection := d.kind.collection
	if d.kind.isChild() {
		owner, err := resolve(ctx, client, ref{kind: kindOf(d.kind.parent), name: d.Cluster})
		if err != nil {
			return item{}, err
		}
		collection = fleetclient.Nested(d.kind.parent, owner.resource.ID, collection)
		d.Cluster = owner.resource.Name
	}
	r, err := client.Create(ctx, collection, d.request())
	if err != nil {
		return item{}, err
	}
	return changed(d.kind, r, d.Cluster)
}

// changed is an item of what the server answered to a change.
func changed(k kind, r v1.Resource, owner string) (item, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return item{}, fmt.Errorf("write JSON: %w", err)
	}
	return item{raw: raw, resource: r, kind: k, owner: owner}, nil
}

// newChangePrinter gives a printer that says what was done, or what came of
// it.
func (s *session) newChangePrinter(format string, single bool, verb string) printer {
	if format == formatText {
		return textPrinter{s, verb}
	}
	return s.newPrinter(format, kind{}, single, false)
}

type textPrinter struct {
	*session
	verb string
}

func (p textPrinter) print(items []item) error {
	for _, i := range items {
		if _, err := fmt.Fprintf(p.env.Stdout, "%s %s\n", i.label(), p.verb); err != nil {
			return err
		}
	}
	return nil
}

func (textPrinter) close() error { return nil }
