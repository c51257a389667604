package execcli

import (
	"cmp"
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
				return runWatchOneOrAll(s, cmd, args, o)
			}
			return runGetOnce(s, cmd, args, o)
		},
	}
	o.addFlags(cmd, listOutputFormats())
	o.sortBy.AddFlag(cmd.Flags(), ".metadata.name or .status.phase")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "watch for changes")
	return cmd
}

func runGetOnce(s *session, cmd *cobra.Command, args []string, o getOptions) error {
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
	switch {
	case terminal.IsTableFormat(o.format):
		options := s.newOutputOptions()
		options.NoHeaders = o.noHeaders
		err = NewTablePrinter(s.env.Stdout, o.format == terminal.FormatWide, options).Write(found, options)
		if len(found) == 0 && len(errs) == 0 {
			s.printToStderr("No executions found in namespace %s.", s.where.namespace)
		}
	case len(found) > 0 || len(errs) == 0: // an empty list is an answer, unless there are errors
		err = WriteExecutionObjectsOrNames(s.env.Stdout, o.format, found, len(args) == 1)
	}
	if err != nil {
		return err
	}
	return cli.JoinHostErrorsWithExitCode(errs, len(found))
}

// findExecutions returns the named executions in the order of the names or, without names, the selected ones, the
// oldest first. errs holds errors about missing ones.
func (c *cluster) findExecutions(
	ctx context.Context, names []string, s selection,
) (found []v1alpha1.KubernetesExecution, errs []error, err error) {
	if len(names) == 0 {
		list, err := c.listExecutions(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		slices.SortStableFunc(list.Items, func(a, b v1alpha1.KubernetesExecution) int {
			return cmp.Or(
				a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
				strings.Compare(a.Name, b.Name),
			)
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
			return cli.JoinHostErrorsWithExitCode(errs, len(found))
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
		RunE:              func(cmd *cobra.Command, args []string) error { return runWatchOneOrAll(s, cmd, args, o) },
	}
	o.addFlags(cmd, watchOutputFormats())
	return cmd
}

func runWatchOneOrAll(s *session, cmd *cobra.Command, args []string, o getOptions) error {
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
	ke, err = printProgressUntilEnd(cmd.Context(), s, c, ke, waitOptions{pastApproval: true})
	if err != nil {
		return err
	}
	return s.printToStdout("execution/%s %s", ke.Name, describeOutcome(ke))
}

// watcher prints executions as they change.
type watcher struct {
	*session

	o      getOptions
	lister *TablePrinter
	seen   map[types.UID]string // the printed rows, without ages
}

// watchAndPrintAll prints executions and their changes until ctx ends. It restarts a watch that has ended.
func watchAndPrintAll(ctx context.Context, s *session, c *cluster, o getOptions) error {
	options := s.newOutputOptions()
	options.NoHeaders = o.noHeaders
	w := &watcher{
		session: s,
		o:       o,
		lister:  NewTablePrinter(s.env.Stdout, o.format == terminal.FormatWide, options),
		seen:    map[types.UID]string{},
	}
	for isFirst := true; ; isFirst = false {
		err := w.printAllThenWatchOnce(ctx, c)
		// The first attempt shows an unreachable server at once. Later ones are retried.
		retry := !isFirst && isTransient(err)
		if err != nil && ctx.Err() == nil && !retry {
			return err
		}
		if err := backoff.Sleep(ctx, restartDelay); err != nil {
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
	return w.watchOnceAndPrintUpdates(ctx, c, list.ResourceVersion)
}

// watchOnceAndPrintUpdates prints changes until the watch ends. It returns errors of the output and of the
// server.
func (w *watcher) watchOnceAndPrintUpdates(ctx context.Context, c *cluster, resourceVersion string) error {
	options := w.o.listOptions(c.namespace)
	options.Raw.ResourceVersion = resourceVersion
	stream, err := c.Watch(ctx, &v1alpha1.KubernetesExecutionList{}, options)
	if err != nil {
		return explainError(err, "watch executions")
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		ke, ok := event.Object.(*v1alpha1.KubernetesExecution)
		if !ok {
			continue // an event without an execution
		}
		if event.Type == watch.Deleted {
			delete(w.seen, ke.UID)
			ke.Status.Phase = "deleted"
			err = w.writeExecutions(*ke)
		} else {
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
		row := RowTextWithoutAge(&ke, w.o.format == terminal.FormatWide)
		if w.seen[ke.UID] != row {
			w.seen[ke.UID] = row
			changed = append(changed, ke)
		}
	}
	return w.writeExecutions(changed...)
}

func (w *watcher) writeExecutions(list ...v1alpha1.KubernetesExecution) error {
	if w.o.format == terminal.FormatName {
		return WriteExecutionObjectsOrNames(w.env.Stdout, terminal.FormatName, list, false)
	}
	return w.lister.Write(list, w.newOutputOptions())
}
