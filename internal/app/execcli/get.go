package execcli

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

func listOutputFormats() []string {
	return []string{terminal.FormatTable, terminal.FormatWide, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName}
}

func watchOutputFormats() []string {
	return []string{terminal.FormatTable, terminal.FormatWide, terminal.FormatName}
}

type getOptions struct {
	selection

	format    string
	noHeaders bool
	sortBy    cli.SortFlag
	watch     bool
}

func (o *getOptions) addFlags(cmd *cobra.Command, formats []string) {
	cmd.Flags().StringVarP(&o.labels, "selector", "l", "", "label `selector`, for example team=shop,tier!=test")
	cmd.Flags().StringVar(&o.action, "action", "", "only executions of this `action`")
	cmd.Flags().StringVar(&o.phase, "phase", "", "only executions in this `phase`, for example waiting_approval")
	phases := []string{
		string(v1alpha1.PhaseValidating), string(v1alpha1.PhaseValidated), string(v1alpha1.PhaseWaitingApproval),
		string(v1alpha1.PhaseExecuting), string(v1alpha1.PhaseRollbackReady), string(v1alpha1.PhaseCompleted), string(v1alpha1.PhaseFailed),
	}
	_ = cmd.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions(phases, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "do not print column headers")
	addOutputFlag(cmd, &o.format, formats)
}

func newGetCommand(s *session) *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:     "get [NAME ...]",
		Aliases: []string{"list", "ls"},
		Short:   "List executions",
		Example: "  fleetloop exec get --phase=waiting_approval\n" +
			"  fleetloop exec get scale-deployment-x7kq2 -o yaml",
		ValidArgsFunction: s.completeExecutionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.watch && o.sortBy != "" {
				return usageErrorf(cmd, "--sort-by cannot be combined with --watch")
			}
			if o.watch {
				return runWatch(s, cmd, args, o)
			}
			return runGet(s, cmd, args, o)
		},
	}
	o.addFlags(cmd, listOutputFormats())
	o.sortBy.AddFlag(cmd.Flags(), ".metadata.name or .status.phase")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "watch for changes")
	return cmd
}

func runGet(s *session, cmd *cobra.Command, args []string, o getOptions) error {
	if err := cli.CheckFormat(cmd, o.format, listOutputFormats()); err != nil {
		return err
	}
	if len(args) > 0 && o.selection != (selection{}) {
		return usageErrorf(cmd, "names cannot be combined with -l, --action or --phase")
	}
	c, err := s.newClusterClient()
	if err != nil {
		return err
	}
	found, errs, err := c.findExecutions(cmd.Context(), args, o.selection)
	if err != nil {
		return err
	}
	if err := cli.SortItems(cmd, o.sortBy, found, func(ke v1alpha1.KubernetesExecution) any { return ke }); err != nil {
		return err
	}
	look := s.newOutputOptions()
	look.NoHeaders = o.noHeaders
	if o.format == terminal.FormatTable || o.format == terminal.FormatWide {
		err = NewListPrinter(s.env.Stdout, o.format == terminal.FormatWide, look).Write(found, look)
		if len(found) == 0 && len(errs) == 0 {
			s.printToStderr("No executions found in namespace %s.", s.where.namespace)
		}
	} else if len(found) > 0 || len(errs) == 0 {
		err = WriteExecutions(s.env.Stdout, o.format, found, len(args) == 1)
	}
	if err != nil {
		return err
	}
	return cli.JoinHostErrors(errs, len(found))
}

// findExecutions returns the named or selected executions, by name. Errs holds errors about missing
// ones.
func (c *cluster) findExecutions(ctx context.Context, names []string, s selection) (found []v1alpha1.KubernetesExecution, errs []error, err error) {
	if len(names) == 0 {
		list, err := c.listExecutions(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		slices.SortStableFunc(list.Items, func(a, b v1alpha1.KubernetesExecution) int {
			if d := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); d != 0 {
				return d
			}
			return strings.Compare(a.Name, b.Name)
		})
		return list.Items, nil, nil
	}
	for _, name := range names {
		ke, err := c.getExecution(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, *ke)
	}
	return found, errs, nil
}

func newDescribeCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "describe NAME ...",
		Short: "Show the details of executions and the next steps",
		Long: "Show the details of executions: status, what they wait for, next steps, plan, policy decision,\n" +
			"checks, approvals, result and rollback.",
		Example:           "  fleetloop exec describe scale-deployment-x7kq2",
		Args:              requireNames,
		ValidArgsFunction: s.completeExecutionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.newClusterClient()
			if err != nil {
				return err
			}
			found, errs, err := c.findExecutions(cmd.Context(), args, selection{})
			if err != nil {
				return err
			}
			for i := range found {
				if i > 0 {
					if _, err := io.WriteString(s.env.Stdout, "\n\n"); err != nil {
						return err
					}
				}
				if err := WriteDescription(s.env.Stdout, &found[i], s.newOutputOptions()); err != nil {
					return err
				}
			}
			return cli.JoinHostErrors(errs, len(found))
		},
	}
}

func newWatchCommand(s *session) *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Watch one execution until it ends, or watch all",
		Long: "Watch one execution until it ends, including the wait for approval, or watch all executions\n" +
			"until interrupted. The exit codes for one execution are those of --wait:\n" +
			"see fleetloop exec --help.",
		Example:           "  fleetloop exec watch scale-deployment-x7kq2\n  fleetloop exec watch --phase=waiting_approval",
		ValidArgsFunction: s.completeExecutionNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return runWatch(s, cmd, args, o) },
	}
	o.addFlags(cmd, watchOutputFormats())
	return cmd
}

func runWatch(s *session, cmd *cobra.Command, args []string, o getOptions) error {
	if err := cli.CheckFormat(cmd, o.format, watchOutputFormats()); err != nil {
		return err
	}
	if len(args) > 1 {
		return usageErrorf(cmd, "want one execution name, or none to watch all")
	}
	c, err := s.newClusterClient()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return watchAndPrintAll(cmd.Context(), s, c, o)
	}
	ke, err := c.getExecution(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	if ke, err = printProgressUntilEnd(cmd.Context(), s, c, ke, waitOptions{through: true}); err != nil {
		return err
	}
	return s.printToStdout("execution/%s %s", ke.Name, describeOutcome(ke))
}

// watcher prints executions as they change.
type watcher struct {
	*session

	o      getOptions
	lister *ListPrinter
	seen   map[types.UID]string
}

func watchAndPrintAll(ctx context.Context, s *session, c *cluster, o getOptions) error {
	look := s.newOutputOptions()
	look.NoHeaders = o.noHeaders
	w := &watcher{s, o, NewListPrinter(s.env.Stdout, o.format == terminal.FormatWide, look), map[types.UID]string{}}
	for begun := false; ; begun = true {
		err := w.printAllThenWatchOnce(ctx, c)
		if ctx.Err() == nil && err != nil && (!begun || !isTransient(err)) {
			return err
		}
		if err := backoff.Sleep(ctx, again); err != nil {
			return nil //nolint:nilerr // to be interrupted is how it ends
		}
	}
}

// printAllThenWatchOnce prints all executions, then changes until the watch ends.
func (w *watcher) printAllThenWatchOnce(ctx context.Context, c *cluster) error {
	list, err := c.listExecutions(ctx, w.o.selection)
	if err != nil {
		return err
	}
	if err := w.printChanged(list.Items...); err != nil {
		return err
	}
	return w.watchAndPrintUpdates(ctx, c, list.ResourceVersion)
}

// watchAndPrintUpdates prints changes until the watch ends. It returns errors of the output and of the
// server.
func (w *watcher) watchAndPrintUpdates(ctx context.Context, c *cluster, resourceVersion string) error {
	options := w.o.listOptions(c.namespace)
	options.Raw.ResourceVersion = resourceVersion
	stream, err := c.Watch(ctx, &v1alpha1.KubernetesExecutionList{}, options)
	if err != nil {
		return explainError(err, "watch executions")
	}
	defer stream.Stop()
	for e := range stream.ResultChan() {
		ke, ok := e.Object.(*v1alpha1.KubernetesExecution)
		switch {
		case e.Type == watch.Error:
			return apierrors.FromObject(e.Object)
		case !ok:
		case e.Type == watch.Deleted:
			delete(w.seen, ke.UID)
			ke.Status.Phase = "deleted"
			err = w.writeExecutions(*ke)
		default:
			err = w.printChanged(*ke)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printChanged prints executions whose row has changed.
func (w *watcher) printChanged(list ...v1alpha1.KubernetesExecution) error {
	var changed []v1alpha1.KubernetesExecution
	for _, ke := range list {
		if state := RowTextWithoutAge(&ke, w.o.format == terminal.FormatWide); w.seen[ke.UID] != state {
			w.seen[ke.UID] = state
			changed = append(changed, ke)
		}
	}
	return w.writeExecutions(changed...)
}

func (w *watcher) writeExecutions(list ...v1alpha1.KubernetesExecution) (err error) {
	if w.o.format == terminal.FormatName {
		err = WriteExecutions(w.env.Stdout, terminal.FormatName, list, false)
	} else {
		err = w.lister.Write(list, w.newOutputOptions())
	}
	return err
}
