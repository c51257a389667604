package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

type patchOptions struct {
	scope
	spec         string
	labelChanges []string
	file         string
	format       string
	dryRun       dryRun
}

func newPatchCommand(s *session) *cobra.Command {
	var o patchOptions
	cmd := &cobra.Command{
		Use:   "patch KIND NAME|ID ...|-l SELECTOR [--spec JSON] [--label KEY=VALUE|KEY-] | -f FILE",
		Short: "Change the spec or the labels of resources",
		Long: "Change the spec or the labels of resources.\n\n" +
			"--spec is a JSON merge patch (RFC 7386): it changes the given fields, removes those that are null and keeps the rest.\n" +
			"With -f, the spec and the labels are replaced by those in the file.",
		Example: "  fleetloop patch cluster eu-1 --spec '{\"replicas\": 5}'\n" +
			"  fleetloop patch cluster eu-1 --label tier=gold --label old-\n" +
			"  fleetloop patch clusters -l tier=silver --label tier=gold --dry-run\n" +
			"  fleetloop patch -f fleet.yaml",
		ValidArgsFunction: s.completeKindOrName,
		RunE:              func(cmd *cobra.Command, args []string) error { return runPatch(s, cmd, args, o) },
	}
	o.addFlags(s, cmd, true)
	cmd.Flags().StringVar(&o.spec, "spec", "", "merge this `JSON` object into the spec")
	cmd.Flags().StringArrayVar(&o.labelChanges, "label", nil, "set a label, `key=value`, or remove it, key-; can be repeated")
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", fileUsage)
	o.dryRun.addFlag(cmd)
	AddOutputFlag(cmd, &o.format, changeFormats())
	return cmd
}

func newLabelCommand(s *session) *cobra.Command {
	var o patchOptions
	cmd := &cobra.Command{
		Use:   "label KIND NAME|ID|-l SELECTOR KEY=VALUE|KEY- ...",
		Short: "Set and remove labels of resources",
		Example: "  fleetloop label cluster eu-1 tier=gold old-\n" +
			"  fleetloop label cluster/eu-1 tier=gold\n" +
			"  fleetloop label clusters -l tier=silver tier=gold",
		ValidArgsFunction: s.completeKindOrName,
		RunE: func(cmd *cobra.Command, args []string) error {
			targetArgs := 2 // a kind and a name
			if len(args) > 0 && strings.Contains(args[0], "/") || o.isSelective() {
				targetArgs = 1 // kind/name, or a kind
			}
			if len(args) <= targetArgs {
				return usageErrorf(cmd, "give the resource, and the labels to set (key=value) or remove (key-)")
			}
			o.labelChanges = args[targetArgs:]
			return runPatch(s, cmd, args[:targetArgs], o)
		},
	}
	o.addFlags(s, cmd, true)
	o.dryRun.addFlag(cmd)
	AddOutputFlag(cmd, &o.format, changeFormats())
	return cmd
}

// An edit makes a resource equal to a document, or merges changes into its current state.
type edit struct {
	document *resource.Document // nil for a merge

	spec         string // a JSON merge patch, or empty
	setLabels    map[string]string
	removeLabels []string
}

func runPatch(s *session, cmd *cobra.Command, args []string, o patchOptions) error {
	if err := CheckFormat(cmd, o.format, changeFormats()); err != nil {
		return err
	}
	what, edits, err := o.parseTargetAndEdits(s, cmd, args)
	if err != nil {
		return usageError(cmd, err)
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
	out := s.newChangedResourcePrinter(o.format, len(items) == 1, o.dryRun.describe("patched"))
	var errs []error
	done := 0
	for n, item := range items {
		change := edits[min(n, len(edits)-1)] // the last one is for all further resources
		after, err := change.patchWithRetry(cmd.Context(), client, item, o.dryRun)
		if err != nil {
			errs = append(errs, fmt.Errorf("patch %s: %w", item.KindAndName(), err))
			continue
		}
		done++
		if err := out.Write([]resource.Item{after}); err != nil {
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

// maxTries limits the attempts to apply an edit after conflicts.
const maxTries = 5

// patchWithRetry changes a resource. It retries after another client has changed the resource, so that an edit
// that merges does not undo concurrent changes.
func (e edit) patchWithRetry(
	ctx context.Context, client *fleetclient.Client, i resource.Item, dry dryRun,
) (after resource.Item, err error) {
	for range maxTries {
		after, err = e.patchOnce(ctx, client, i, dry)
		if err == nil || !fleetclient.IsChanged(err) {
			return after, err
		}
	}
	return after, err
}

func (e edit) patchOnce(
	ctx context.Context, client *fleetclient.Client, i resource.Item, dry dryRun,
) (resource.Item, error) {
	now := i.Resource
	var etag string // empty: any version
	if e.document == nil {
		// Read again, because the resource was found by a list, which has no tag per item.
		var err error
		now, etag, err = client.Collection(i.Kind.Collection).GetWithETag(ctx, now.ID)
		if err != nil {
			return resource.Item{}, err
		}
	}
	request, err := e.patchRequest(now)
	if err != nil {
		return resource.Item{}, err
	}
	patched, err := dry.collection(client, i.Kind.Collection).PatchIf(ctx, now.ID, etag, request)
	if err != nil {
		return resource.Item{}, err
	}
	return itemOf(i.Kind, patched, i.Owner)
}

// parseTargetAndEdits reads the resources and their edits from the arguments or from files. The last edit is for all
// further resources.
func (o patchOptions) parseTargetAndEdits(s *session, cmd *cobra.Command, args []string) (what target, edits []edit, err error) {
	if o.file != "" {
		if len(args) > 0 || o.spec != "" || len(o.labelChanges) > 0 || o.isSelective() {
			return what, nil, errors.New("-f cannot be combined with names, selectors, --spec or --label")
		}
		docs, err := resource.ReadDocuments(o.file, s.env.Stdin)
		if err != nil {
			return what, nil, err
		}
		for _, d := range docs {
			what.refs = append(what.refs, d.Ref)
			edits = append(edits, edit{document: &d})
		}
		return what, edits, nil
	}
	if what, err = o.parseTarget(cmd, args); err != nil {
		return what, nil, err
	}
	change, err := newMergeEdit(o.spec, o.labelChanges)
	if err != nil {
		return what, nil, err
	}
	if len(what.refs) == 0 && !o.isSelective() {
		return what, nil, fmt.Errorf("give the %s to change by name or id, or with -l", what.kind.Collection)
	}
	return what, []edit{change}, nil
}

// newMergeEdit returns an edit that merges into the spec and changes single labels.
func newMergeEdit(spec string, labelChanges []string) (edit, error) {
	if spec == "" && len(labelChanges) == 0 {
		return edit{}, errors.New("give the change with --spec, --label or -f")
	}
	if spec != "" {
		if err := resource.CheckPatchIsObject(spec); err != nil {
			return edit{}, fmt.Errorf("--spec %q: %w", spec, err)
		}
	}
	set, remove, err := resource.ParseLabelChanges(labelChanges)
	return edit{spec: spec, setLabels: set, removeLabels: remove}, err
}

// patchRequest returns the request that applies the edit to the current state of a resource.
func (e edit) patchRequest(now v1.Resource) (request v1.PatchRequest, err error) {
	labels := map[string]string{}
	if d := e.document; d != nil {
		maps.Copy(labels, d.Labels)
		request = v1.PatchRequest{Spec: d.Spec, Labels: &labels}
		if d.Annotations != nil {
			request.Annotations = &d.Annotations
		}
		return request, nil
	}
	if e.spec != "" {
		request.Spec, err = resource.ApplyMergePatch(now.Spec, json.RawMessage(e.spec))
		if err != nil {
			return request, err
		}
	}
	if len(e.setLabels)+len(e.removeLabels) > 0 {
		maps.Copy(labels, now.Labels)
		maps.Copy(labels, e.setLabels)
		for _, key := range e.removeLabels {
			delete(labels, key)
		}
		request.Labels = &labels
	}
	return request, nil
}
