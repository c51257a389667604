package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

type deleteOptions struct {
	waitOptions
	wait   bool
	file   string
	dryRun dryRun
}

func newDeleteCommand(s *session) *cobra.Command {
	var o deleteOptions
	cmd := &cobra.Command{
		Use:   "delete KIND NAME|ID ... | KIND -l SELECTOR | -f FILE",
		Short: "Delete resources",
		Long: "Request the deletion of resources. Each stays in phase Deleting until its adapters have cleaned up.\n" +
			"--wait waits until they are deleted.",
		Example: "  fleetloop delete cluster eu-1 --wait\n" +
			"  fleetloop delete nodepool eu-1/workers\n" +
			"  fleetloop delete clusters -l env=test",
		ValidArgsFunction: s.completeKindOrName,
		RunE:              func(cmd *cobra.Command, args []string) error { return runDelete(s, cmd, args, o) },
	}
	o.addFlags(s, cmd, true)
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "delete the resources in a `file`, the files of a folder, or - (standard input)")
	o.dryRun.addFlag(cmd)
	cmd.Flags().BoolVar(&o.all, "all", false, "delete all resources of the kind")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until the resources are deleted")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "timeout of --wait as a `duration`")
	o.addWatchFlags(cmd)
	return cmd
}

func runDelete(s *session, cmd *cobra.Command, args []string, o deleteOptions) error {
	what, err := o.targetToDelete(s, cmd, args)
	if err != nil {
		return err
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
	var asked []resource.Item
	var errs []error
	for _, i := range items {
		if _, err := o.dryRun.collection(client, i.Kind.Collection).Delete(cmd.Context(), i.Resource.ID); err != nil && !fleetclient.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete %s: %w", i.KindAndName(), err))
			continue
		}
		asked = append(asked, i)
		if _, err := fmt.Fprintf(s.env.Stdout, "%s %s\n", i.KindAndName(), o.dryRun.describe("deletion requested")); err != nil {
			return err
		}
	}
	if err := joinErrorsWithExitCode(errs, len(asked)); err != nil || !o.wait {
		return err
	}
	return s.waitForGoal(cmd.Context(), client, asked, goal{deleted: true}, o.waitOptions)
}

// targetToDelete reads the resources to delete from the arguments or from files.
func (o *deleteOptions) targetToDelete(s *session, cmd *cobra.Command, args []string) (target, error) {
	switch {
	case o.timeout <= 0 || o.interval <= 0:
		return target{}, usageErrorf(cmd, "--timeout and --interval must be positive")
	case o.wait && bool(o.dryRun):
		return target{}, usageErrorf(cmd, "--wait cannot be combined with --dry-run")
	case o.file != "" && (len(args) > 0 || o.labels != "" || o.search != ""):
		return target{}, usageErrorf(cmd, "-f cannot be combined with names or selectors")
	case o.file != "":
		docs, err := resource.ReadDocuments(o.file, s.env.Stdin)
		if err != nil {
			return target{}, usageError(cmd, err)
		}
		var what target
		for _, d := range slices.Backward(docs) { // children follow their parents in files and are deleted first
			what.refs = append(what.refs, d.Ref)
		}
		return what, nil
	}
	what, err := o.parseTarget(cmd, args)
	if err == nil && what.isUnrestricted() && !o.all {
		err = usageErrorf(cmd, "give the %s to delete by name, with -l, or with --all", what.kind.Collection)
	}
	return what, err
}
