package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

// fileOptions select documents.
type fileOptions struct {
	file      string
	recursive bool
}

func (o *fileOptions) addFileFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", fileUsage)
	cmd.Flags().BoolVarP(&o.recursive, "recursive", "R", false, "also read the folders in the folder of -f")
}

// readUniqueDocumentsParentsFirst reads the documents. Parents come first, whatever their order in the files. A
// resource may be given only once.
func (o *fileOptions) readUniqueDocumentsParentsFirst(s *session, cmd *cobra.Command) ([]resource.Document, error) {
	if o.file == "" {
		return nil, usageErrorf(cmd, "give the file with -f; - is standard input")
	}
	read := resource.ReadDocuments
	if o.recursive {
		read = resource.ReadDocumentTree
	}
	docs, err := read(o.file, s.env.Stdin)
	if err != nil {
		return nil, usageError(cmd, err)
	}
	firstWhere := map[resource.Ref]string{} // the place in the files
	for _, doc := range docs {
		if first, ok := firstWhere[doc.Ref]; ok {
			return nil, usageErrorf(cmd, "%s is given twice: %s and %s", doc.Ref, first, doc.Where)
		}
		firstWhere[doc.Ref] = doc.Where
	}
	slices.SortStableFunc(docs, func(a, b resource.Document) int {
		return depthOf(a.Ref.Kind) - depthOf(b.Ref.Kind)
	})
	return docs, nil
}

func depthOf(k resource.Kind) int {
	if k.IsChild() {
		return 1
	}
	return 0
}

type applyOptions struct {
	fileOptions
	format   string
	dryRun   dryRun
	prune    bool
	selector string
	yes      bool
}

func newApplyCommand(s *session) *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Create or update resources so that they match files",
		Long: "Create the resources of YAML or JSON files, or update them to match.\n\n" +
			"Fields in a file are set, fields that were in it at the last apply and no longer are get removed, and all others\n" +
			"keep their values. Lists are replaced as a whole. The names of the applied fields, without values, are kept in the\n" +
			"annotation " + resource.AppliedFieldsAnnotation + ".\n\n" +
			"--prune deletes the resources of the selector that were applied and are not in the files any more, after all\n" +
			"others were applied without an error. It asks for confirmation; --yes skips the question.",
		Example: "  fleetloop apply -f fleet/ -R\n" +
			"  fleetloop apply -f fleet.yaml --dry-run\n" +
			"  fleetloop apply -f fleet/ --prune -l team=shop --yes",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return runApply(s, cmd, o) },
	}
	o.addFileFlags(cmd)
	o.dryRun.addFlag(cmd)
	cmd.Flags().BoolVar(&o.prune, "prune", false, "delete applied resources that -l selects and the files lack")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "label `selector` of --prune, for example team=shop")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "delete without asking for confirmation")
	AddOutputFlag(cmd, &o.format, changeFormats())
	return cmd
}

func runApply(s *session, cmd *cobra.Command, o applyOptions) error {
	if err := CheckFormat(cmd, o.format, changeFormats()); err != nil {
		return err
	}
	needsConfirmation := o.prune && !o.yes && !bool(o.dryRun)
	switch {
	case o.prune && o.selector == "":
		return usageErrorf(cmd, "--prune needs a label selector, -l")
	case !o.prune && o.selector != "":
		return usageErrorf(cmd, "-l is the selector of --prune")
	case needsConfirmation && o.file == "-":
		return usageErrorf(cmd, "standard input cannot hold both the files and the confirmation; add --yes or --dry-run")
	}
	if needsConfirmation {
		if err := s.env.RequireTerminal("--dry-run shows what would be deleted; --yes deletes it without a prompt"); err != nil {
			return err
		}
	}
	docs, err := o.readUniqueDocumentsParentsFirst(s, cmd)
	if err != nil {
		return err
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	a := &applier{
		session: s,
		client:  client,
		o:       o,
		out:     s.newChangedResourcePrinter(o.format, len(docs) == 1 && !o.prune, ""),
		kept:    map[string]bool{},
		planned: map[resource.Ref]bool{},
	}
	return a.applyAndPruneAll(cmd.Context(), docs)
}

// An applier applies documents.
type applier struct {
	*session

	client *fleetclient.Client
	o      applyOptions
	out    resource.Printer[resource.Item]

	// kept holds the ids of the applied resources and their parents, which are not pruned.
	kept map[string]bool
	// planned holds the parents that a dry run would create.
	planned map[resource.Ref]bool
}

// applyAndPruneAll continues after a failure, because the documents may be independent. It prunes only without one.
func (a *applier) applyAndPruneAll(ctx context.Context, docs []resource.Document) error {
	var errs []error
	done := 0
	for _, doc := range docs {
		item, verb, err := a.applyWithRetry(ctx, doc)
		if err != nil {
			errs = append(errs, fmt.Errorf("apply %s (%s): %w", doc.Ref, doc.Where, err))
			continue
		}
		done++
		if err := a.printItemWithVerb(item, verb); err != nil {
			return err
		}
	}
	if a.o.prune && len(errs) > 0 {
		errs = append(errs, errors.New("nothing was pruned, because not everything was applied"))
	} else if a.o.prune {
		pruned, err := a.confirmAndPruneAll(ctx)
		done += pruned
		if err != nil {
			errs = append(errs, err)
		}
	}
	if done > 0 {
		if err := a.out.Close(); err != nil {
			return err
		}
	}
	return joinErrorsWithExitCode(errs, done)
}

func (a *applier) printItemWithVerb(i resource.Item, verb string) error {
	if a.o.format != formatText {
		return a.out.Write([]resource.Item{i})
	}
	_, err := fmt.Fprintf(a.env.Stdout, "%s %s\n", i.KindAndName(), a.o.dryRun.describe(verb))
	return err
}

// applyWithRetry creates or updates the resource of one document, and returns what was done. It retries after
// another client has changed or created the resource.
func (a *applier) applyWithRetry(ctx context.Context, d resource.Document) (item resource.Item, verb string, err error) {
	for range maxTries {
		item, verb, err = a.applyOnce(ctx, d)
		if err == nil {
			a.kept[item.Resource.ID] = true
			return item, verb, nil
		}
		if !fleetclient.IsChanged(err) && !isNameTaken(err) {
			return item, verb, err
		}
	}
	return item, verb, err
}

// isNameTaken reports whether another request has created the resource.
func isNameTaken(err error) bool {
	e, ok := errors.AsType[*fleetclient.Error](err)
	return ok && e.Status == http.StatusConflict && e.Problem.Code == "name_taken"
}

func (a *applier) applyOnce(ctx context.Context, d resource.Document) (item resource.Item, verb string, err error) {
	live, err := a.findLive(ctx, d)
	if err != nil {
		return resource.Item{}, "", err
	}
	if live.missing {
		item, err := a.create(ctx, d, live.owner)
		return item, "created", err
	}
	if live.item.DeletedTime != nil {
		return resource.Item{}, "", &failure{
			err:  errors.New("it is being deleted"),
			code: CodePrecondition,
			next: "apply again when it is deleted; 'fleetloop wait' waits for that",
		}
	}
	item, changed, err := a.patchIfDiffers(ctx, d, live)
	if !changed {
		return item, "unchanged", err
	}
	return item, "configured", err
}

// liveResource is a resource on the server, or its absence.
type liveResource struct {
	item    v1.Resource
	etag    string
	owner   resource.Item // the parent; the zero Item if the kind has none or a dry run would create it
	missing bool
}

func (a *applier) findLive(ctx context.Context, d resource.Document) (live liveResource, err error) {
	ref := d.Ref
	if ref.Kind.IsChild() {
		parent := resource.Ref{Kind: ref.Kind.Parent(), Name: ref.Parent}
		if a.planned[parent] {
			return liveResource{missing: true}, nil
		}
		if live.owner, err = resource.Resolve(ctx, a.client, parent); err != nil {
			return live, err
		}
		a.kept[live.owner.Resource.ID] = true
		ref.Parent = live.owner.Resource.ID
	}
	found, err := resource.Resolve(ctx, a.client, ref)
	if err == nil {
		live.item, live.etag, err = a.client.Collection(ref.Kind.Collection).GetWithETag(ctx, found.Resource.ID)
	}
	if errors.Is(err, resource.ErrNotFound) || fleetclient.IsNotFound(err) {
		live.missing = true
		return live, nil
	}
	return live, err
}

// create creates the resource of a document. owner is its parent as findLive returned it.
func (a *applier) create(ctx context.Context, d resource.Document, owner resource.Item) (resource.Item, error) {
	kind := d.Ref.Kind
	want, err := resource.ThreeWayMerge(v1.Resource{Spec: []byte("{}")}, d)
	if err != nil {
		return resource.Item{}, err
	}
	collection := kind.Collection
	if kind.IsChild() {
		if owner.Resource.ID == "" { // a dry run would create it, so the server cannot validate its children
			return itemOf(kind, v1.Resource{
				Kind:        kind.Name,
				Name:        d.Name,
				Labels:      want.Labels,
				Annotations: want.Annotations,
				Spec:        want.Spec,
			}, d.Ref.Parent)
		}
		collection = fleetclient.Nested(kind.Parent().Collection, owner.Resource.ID, collection)
	}
	request := d.CreateRequest
	request.Spec = want.Spec
	request.Labels = want.Labels
	request.Annotations = want.Annotations
	created, err := a.o.dryRun.collection(a.client, collection).Create(ctx, request)
	if err != nil {
		return resource.Item{}, err
	}
	if a.o.dryRun {
		a.planned[d.Ref] = true
	}
	return itemOf(kind, created, owner.Resource.Name)
}

// patchIfDiffers changes the live resource to match the document, and reports whether it changed. It sends no request
// if the document changes nothing. The server, which compares numbers by value, has the last word.
func (a *applier) patchIfDiffers(
	ctx context.Context, d resource.Document, live liveResource,
) (item resource.Item, changed bool, err error) {
	want, err := resource.ThreeWayMerge(live.item, d)
	if err != nil {
		return resource.Item{}, false, err
	}
	if given := d.Metadata; given != nil && given.DisplayName != live.item.Metadata.DisplayName {
		a.printNote("warning: %s: displayName is set at creation and cannot be changed", d.Ref)
	}
	after := live.item
	if !want.Equal(resource.DesiredOf(live.item)) {
		collection := a.o.dryRun.collection(a.client, d.Ref.Kind.Collection)
		after, err = collection.PatchIf(ctx, live.item.ID, live.etag, want.PatchRequest())
		if err != nil {
			return resource.Item{}, false, err
		}
	}
	item, err = itemOf(d.Ref.Kind, after, live.owner.Resource.Name)
	changed = !after.UpdatedTime.Equal(live.item.UpdatedTime)
	return item, changed, err
}
