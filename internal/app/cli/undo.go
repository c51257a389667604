package cli

import (
	"errors"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
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
			"history' shows the kept ones. The command prints the differences and asks for confirmation. The result is a new\n" +
			"generation, so undo can be undone. If the resource is changed meanwhile, the command fails with exit code 3.",
		Example: "  fleetloop undo cluster eu-1 --dry-run\n" +
			"  fleetloop undo nodepool eu-1/workers --to-revision 3 --yes",
		ValidArgsFunction: s.completeKindOrNameOf(v1.CollectionClusters, v1.CollectionNodePools),
		RunE:              func(cmd *cobra.Command, args []string) error { return runUndo(s, cmd, args, o) },
	}
	o.addFlags(s, cmd, false)
	cmd.Flags().Int64Var(&o.to, "to-revision", 0, "`generation` to return to; 0 for the one before the newest")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	o.dryRun.addFlag(cmd)
	addOutputFlag(cmd, &o.format, changeFormats())
	return cmd
}

func runUndo(s *session, cmd *cobra.Command, args []string, o undoOptions) error {
	if err := CheckFormat(cmd, o.format, changeFormats()); err != nil {
		return err
	}
	if o.to < 0 {
		return usageErrorf(cmd, "--to-revision %d is negative", o.to)
	}
	item, revisions, err := readHistory(s, cmd, args, &o.scope)
	if err != nil {
		return err
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	now, tag, err := client.Collection(item.Kind.Collection).GetWithETag(cmd.Context(), item.Resource.ID)
	if err != nil {
		return err
	}
	wanted, err := selectRevision(item, revisions, now.Generation, o.to)
	if err != nil {
		return err
	}
	live := v1.Revision{Generation: now.Generation, Spec: now.Spec, Labels: now.Labels}
	changes := diffRevisions(&live, wanted)
	if len(changes) == 0 {
		s.printNote("%s already has the spec and labels of generation %d.", item.KindAndName(), wanted.Generation)
		return nil
	}
	if err := o.showAndConfirm(s, item, wanted.Generation, changes); err != nil {
		return err
	}
	labels := map[string]string{}
	maps.Copy(labels, wanted.Labels)
	r, err := o.dryRun.collection(client, item.Kind.Collection).PatchIf(cmd.Context(), now.ID, tag, v1.PatchRequest{Spec: wanted.Spec, Labels: &labels})
	if err != nil {
		return fmt.Errorf("undo %s: %w", item.KindAndName(), err)
	}
	after, err := itemOf(item.Kind, r, item.Owner)
	if err != nil {
		return err
	}
	done := fmt.Sprintf("returned to generation %d", wanted.Generation)
	out := s.newChangePrinter(o.format, true, o.dryRun.describe(done))
	return errors.Join(out.Write([]resource.Item{after}), out.Close())
}

// showAndConfirm prints the changes and asks whether to make them.
func (o *undoOptions) showAndConfirm(s *session, i resource.Item, generation int64, changes []changeevent.FieldChange) error {
	if o.yes && !bool(o.dryRun) {
		return nil
	}
	onStderr := *s
	onStderr.env.Stdout = s.env.Stderr // where the question is
	if err := printDiff(&onStderr, changes); err != nil || bool(o.dryRun) {
		return err
	}
	return s.confirm(fmt.Sprintf("Return %s to generation %d?", i.KindAndName(), generation), "not confirmed, so nothing was changed")
}

// selectRevision returns the revision of a generation. 0 means the newest before the current one.
func selectRevision(i resource.Item, revisions []v1.Revision, current, generation int64) (*v1.Revision, error) {
	for n := range revisions {
		if r := &revisions[n]; r.Generation == generation || generation == 0 && r.Generation < current {
			return r, nil
		}
	}
	err := fmt.Errorf("generation %d of %s is not kept", generation, i.KindAndName())
	if generation == 0 {
		err = fmt.Errorf("no earlier generation of %s is kept", i.KindAndName())
	}
	return nil, &failure{err: err, code: CodePrecondition, next: "run 'fleetloop history' to list the generations"}
}
