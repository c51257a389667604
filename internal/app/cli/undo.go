package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

type undoOptions struct {
	scope
	to     int64
	yes    bool
	format string
	dryRun dryRun
}

func newUndoCommand(s *session) *cobra.Command {
	var o undoOptions
	cmd := &cobra.Command{
		Use:   "undo KIND NAME|ID [--to-revision GENERATION]",
		Short: "Return a cluster or node pool to an earlier generation",
		Long: "Replace the spec and labels of a cluster or node pool by those of an earlier generation, of which 'fleetloop\n" +
			"history' shows the kept ones. The command prints the changes on standard error and asks for confirmation; --yes\n" +
			"skips the question. The result is a new generation, so undo can be undone. If somebody else changes the resource\n" +
			"in the meantime, the command changes nothing and fails with exit code 3.",
		Example: "  fleetloop undo cluster eu-1 --dry-run\n" +
			"  fleetloop undo nodepool eu-1/workers --to-revision 3 --yes",
		ValidArgsFunction: s.completeKindOrNameOf(v1.CollectionClusters, v1.CollectionNodePools),
		RunE:              func(cmd *cobra.Command, args []string) error { return runUndo(s, cmd, args, o) },
	}
	o.addFlags(s, cmd, false)
	cmd.Flags().Int64Var(&o.to, "to-revision", 0, "`generation` to return to; 0 for the one before the newest")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	o.dryRun.addFlag(cmd)
	AddOutputFlag(cmd, &o.format, changeFormats())
	return cmd
}

func runUndo(s *session, cmd *cobra.Command, args []string, o undoOptions) error {
	if err := CheckFormat(cmd, o.format, changeFormats()); err != nil {
		return err
	}
	if o.to < 0 {
		return usageErrorf(cmd, "--to-revision %d is negative", o.to)
	}
	if !o.yes && !bool(o.dryRun) {
		if err := s.env.RequireTerminal("--dry-run shows what would be changed; --yes changes it without a prompt"); err != nil {
			return err
		}
	}

	// The live resource, and the generation to return to.
	item, revisions, err := fetchItemAndRevisions(s, cmd, args, &o.scope)
	if err != nil {
		return err
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	live, etag, err := getAndCheckUndoable(cmd.Context(), client, item, revisions)
	if err != nil {
		return err
	}
	wanted, err := selectRevision(item, revisions, live.Generation, o.to)
	if err != nil {
		return err
	}

	// The change.
	liveRevision := v1.Revision{Generation: live.Generation, Spec: live.Spec, Labels: live.Labels}
	changes := diffRevisions(&liveRevision, wanted)
	if len(changes) == 0 {
		s.printNote("%s already has the spec and labels of generation %d.", item.KindAndName(), wanted.Generation)
		return nil
	}
	if err := o.showAndConfirm(s, item, wanted.Generation, changes); err != nil {
		return err
	}
	after, err := o.patchToRevision(cmd.Context(), client, item, etag, wanted)
	if err != nil {
		return err
	}
	done := fmt.Sprintf("returned to generation %d", wanted.Generation)
	out := s.newChangedResourcePrinter(o.format, true, o.dryRun.describe(done))
	return errors.Join(out.Write([]resource.Item{after}), out.Close())
}

// getAndCheckUndoable reads the resource that an undo changes, with its ETag. revisions are those that were read
// before, the newest first.
func getAndCheckUndoable(
	ctx context.Context, client *fleetclient.Client, i resource.Item, revisions []v1.Revision,
) (live v1.Resource, etag string, err error) {
	live, etag, err = client.Collection(i.Kind.Collection).GetWithETag(ctx, i.Resource.ID)
	switch {
	case err != nil:
		err = fmt.Errorf("get %s: %w", i.KindAndName(), err)
	case live.DeletedTime != nil:
		err = &failure{err: fmt.Errorf("%s is being deleted, and a deletion cannot be undone", i.KindAndName()), code: CodePrecondition}
	case len(revisions) > 0 && revisions[0].Generation != live.Generation: // the one before may be unknown
		err = changedMeanwhileError(i, errors.New("its generation has changed since the history was read"))
	}
	return live, etag, err
}

// patchToRevision replaces the spec and labels of the version with an ETag by those of a revision.
func (o *undoOptions) patchToRevision(
	ctx context.Context, client *fleetclient.Client, i resource.Item, etag string, wanted *v1.Revision,
) (resource.Item, error) {
	labels := map[string]string{} // never nil, so that the request has an object
	maps.Copy(labels, wanted.Labels)
	request := v1.PatchRequest{Spec: wanted.Spec, Labels: &labels}
	patched, err := o.dryRun.collection(client, i.Kind.Collection).PatchIf(ctx, i.Resource.ID, etag, request)
	switch {
	case fleetclient.IsChanged(err):
		return i, changedMeanwhileError(i, err)
	case err != nil:
		return i, fmt.Errorf("undo the changes of %s: %w", i.KindAndName(), err)
	}
	return itemOf(i.Kind, patched, i.Owner)
}

func changedMeanwhileError(i resource.Item, err error) error {
	return &failure{
		err:  fmt.Errorf("%s was changed in the meantime, so nothing was undone: %w", i.KindAndName(), err),
		code: CodePrecondition,
		next: "run the command again to see what it would change now",
	}
}

// showAndConfirm prints the changes and asks whether to make them. It returns an error if the answer is no.
func (o *undoOptions) showAndConfirm(s *session, i resource.Item, generation int64, changes []changeevent.FieldChange) error {
	onStderr := *s
	onStderr.env.Stdout = s.env.Stderr // where the question is
	if err := printDiff(&onStderr, changes); err != nil {
		return err
	}
	if o.yes || bool(o.dryRun) {
		return nil
	}
	question := fmt.Sprintf("Return %s to generation %d?", i.KindAndName(), generation)
	return s.confirm(question, "not confirmed, so nothing was changed")
}

// selectRevision returns the revision of a generation. 0 means the newest before the current one.
func selectRevision(i resource.Item, revisions []v1.Revision, current, generationOrZero int64) (*v1.Revision, error) {
	for n := range revisions {
		revision := &revisions[n]
		isNewestBefore := generationOrZero == 0 && revision.Generation < current
		if isNewestBefore || revision.Generation == generationOrZero {
			return revision, nil
		}
	}
	err := fmt.Errorf("generation %d of %s is not kept", generationOrZero, i.KindAndName())
	if generationOrZero == 0 {
		err = fmt.Errorf("no earlier generation of %s is kept", i.KindAndName())
	}
	next := fmt.Sprintf("run 'fleetloop history %s' to list the generations", i.KindAndName())
	return nil, &failure{err: err, code: CodePrecondition, next: next}
}
