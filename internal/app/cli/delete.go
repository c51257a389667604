package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

type deleteOptions struct {
	waitOptions
	fileOptions

	wait   bool
	yes    bool
	format string
	dryRun dryRun
}

func deleteFormats() []string { return []string{formatText, terminal.FormatName} }

func newDeleteCommand(s *session) *cobra.Command {
	var o deleteOptions
	cmd := &cobra.Command{
		Use:   "delete KIND NAME|ID ... | KIND -l SELECTOR | -f FILE",
		Short: "Delete resources",
		Long: "Request the deletion of resources. Each stays in phase Deleting until its adapters have cleaned up.\n" +
			"--wait waits until they are deleted.\n\n" +
			"A deletion by selector, --all or --cluster asks for confirmation. --yes skips the question. Scripts, which have no\n" +
			"terminal, must give it.",
		Example: "  fleetloop delete cluster eu-1 --wait\n" +
			"  fleetloop delete nodepool eu-1/workers\n" +
			"  fleetloop delete clusters -l env=test --yes\n" +
			"  fleetloop delete -f fleet/ -R",
		ValidArgsFunction: s.completeKindOrName,
		RunE:              func(cmd *cobra.Command, args []string) error { return runDelete(s, cmd, args, o) },
	}
	o.addFlags(s, cmd, true)
	o.addFileFlags(cmd)
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "delete without asking for confirmation")
	AddOutputFlag(cmd, &o.format, deleteFormats())
	o.dryRun.addFlag(cmd)
	cmd.Flags().BoolVar(&o.all, "all", false, "delete all resources of the kind")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until the resources are deleted")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "timeout of --wait as a `duration`")
	o.addWatchFlags(cmd)
	return cmd
}

func runDelete(s *session, cmd *cobra.Command, args []string, o deleteOptions) error {
	if err := CheckFormat(cmd, o.format, deleteFormats()); err != nil {
		return err
	}
	what, err := o.parseDeleteTarget(s, cmd, args)
	if err != nil {
		return err
	}
	needsConfirmation := len(what.refs) == 0 && !o.yes && !bool(o.dryRun)
	if needsConfirmation {
		if err := s.env.RequireTerminal("--dry-run shows what would be deleted; --yes deletes it without a prompt"); err != nil {
			return err
		}
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
	if needsConfirmation {
		if err := s.confirmDeletion(items, "deleted"); err != nil {
			return err
		}
	}

	// Request all deletions before the wait for the first.
	out := s.newChangedResourcePrinter(o.format, len(items) == 1, o.dryRun.describe("deletion requested"))
	var deleting []resource.Item
	var errs []error
	for _, item := range items {
		collection := o.dryRun.collection(client, item.Kind.Collection)
		_, err := collection.Delete(cmd.Context(), item.Resource.ID)
		if err != nil && !fleetclient.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete %s: %w", item.KindAndName(), err))
			continue
		}
		deleting = append(deleting, item)
		if err := out.Write([]resource.Item{item}); err != nil {
			return err
		}
	}
	if err := joinErrorsWithExitCode(errs, len(deleting)); err != nil || !o.wait {
		return err
	}
	return s.waitForGoal(cmd.Context(), client, deleting, goal{deleted: true}, o.waitOptions)
}

// parseDeleteTarget reads the resources to delete from the arguments or from files.
func (o *deleteOptions) parseDeleteTarget(s *session, cmd *cobra.Command, args []string) (target, error) {
	switch {
	case o.timeout <= 0 || o.interval <= 0:
		return target{}, usageErrorf(cmd, "--timeout and --interval must be positive")
	case o.wait && bool(o.dryRun):
		return target{}, usageErrorf(cmd, "--wait cannot be combined with --dry-run")
	case o.file != "" && (len(args) > 0 || o.labels != "" || o.search != ""):
		return target{}, usageErrorf(cmd, "-f cannot be combined with names or selectors")
	case o.file != "":
		return o.parseDeleteFiles(s, cmd)
	}
	what, err := o.parseTarget(cmd, args)
	if err == nil && what.isUnrestricted() && !o.all {
		err = usageErrorf(cmd, "give the %s to delete by name, with -l, or with --all", what.kind.Collection)
	}
	return what, err
}

// parseDeleteFiles reads the resources to delete from files. Children come first.
func (o *deleteOptions) parseDeleteFiles(s *session, cmd *cobra.Command) (target, error) {
	docs, err := o.readUniqueDocumentsParentsFirst(s, cmd)
	if err != nil {
		return target{}, err
	}
	var what target
	for _, doc := range slices.Backward(docs) {
		what.refs = append(what.refs, doc.Ref)
	}
	return what, nil
}
