package faultcli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

type getOptions struct {
	format         string
	all, noHeaders bool
	sortBy         cli.SortFlag
}

func (s *session) newGetCommand() *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:     "get [NODE ...]",
		Aliases: []string{"list", "ls"},
		Short:   "Show faulty nodes",
		Long: "Show faulty nodes: the fault, the remedy, and what the controller waits for.\n" +
			"Healthy and deleted nodes are shown with --all, or if they are named.",
		Example:           "  fleetloop faults get\n  fleetloop faults get --all -o wide --sort-by .status.phaseChangedAt",
		ValidArgsFunction: s.completeFaultyNodeNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return s.runGet(cmd, args, o) },
	}
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "also show healthy and deleted nodes")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "do not print column headers")
	o.sortBy.AddFlag(cmd.Flags(), ".metadata.name or .status.phaseChangedAt")
	addValidatedOutputFlag(
		cmd,
		&o.format,
		terminal.FormatTable,
		terminal.FormatWide,
		terminal.FormatJSON,
		terminal.FormatYAML,
		terminal.FormatName,
	)
	return cmd
}

func (s *session) runGet(cmd *cobra.Command, args []string, o getOptions) error {
	c, err := s.newClusterClient()
	if err != nil {
		return err
	}
	found, errs, err := c.listFaults(cmd.Context(), args)
	if err != nil {
		return err
	}
	var shown []v1alpha1.NodeFault
	for i := range found {
		if o.all || len(args) > 0 || !isHealthyOrGone(&found[i]) {
			shown = append(shown, found[i])
		}
	}
	if err := cli.SortItems(cmd, o.sortBy, shown, func(f v1alpha1.NodeFault) any { return f }); err != nil {
		return err
	}
	switch {
	case isJSONOrYAML(o.format):
		err = writeFaultsAsJSONOrYAML(s.env.Stdout, o.format, shown, len(args) == 1)
	case o.format == terminal.FormatName:
		for i := range shown {
			if err := s.printLineToStdout("%s", kubectlName(&shown[i])); err != nil {
				return err
			}
		}
	case len(shown) > 0:
		err = s.writeNodeTable(shown, o)
	case len(errs) == 0:
		s.printLineToStderr("No faulty nodes.")
	}
	if err != nil {
		return err
	}
	return cli.JoinHostErrorsWithExitCode(errs, len(shown))
}

// isHealthyOrGone reports whether nothing remains to do for a node.
func isHealthyOrGone(f *v1alpha1.NodeFault) bool {
	return f.Status.Phase == v1alpha1.PhaseHealthy || f.Status.Phase == v1alpha1.PhaseGone
}

// kubectlName returns the name of a NodeFault in the form of kubectl.
func kubectlName(f *v1alpha1.NodeFault) string {
	return strings.ToLower(v1alpha1.Kind) + "." + v1alpha1.GroupVersion.Group + "/" + f.Name
}

func (s *session) writeNodeTable(list []v1alpha1.NodeFault, o getOptions) error {
	wide := o.format == terminal.FormatWide
	heads := []string{"NODE", "PHASE", "FAULT", "REMEDY", "PODS LEFT", "PHASE AGE"}
	if wide {
		heads = append(heads, "SESSION", "UNDELIVERED EVENTS")
	}
	heads = append(heads, "MESSAGE")
	var rows [][]string
	if !o.noHeaders {
		rows = append(rows, heads)
	}
	for i := range list {
		status := &list[i].Status
		row := []string{
			list[i].Name,
			string(status.Phase),
			faultCodeOrFirstFault(&list[i]),
			formatRemedy(status.Remediation),
			formatPodsLeft(status.Drain),
			formatAgeOrEmpty(s.env.Now(), status.PhaseChangedAt),
		}
		if wide {
			row = append(row, status.Session, fmt.Sprint(status.UndeliveredChangeEvents))
		}
		rows = append(rows, append(row, status.Message))
	}
	return writeColumns(s.env.Stdout, "", rows)
}

// faultCodeOrFirstFault returns the fault in one word, even before the controller has processed it.
func faultCodeOrFirstFault(f *v1alpha1.NodeFault) string {
	if f.Status.FaultCode != "" || len(f.Spec.Faults) == 0 {
		return f.Status.FaultCode
	}
	first := f.Spec.Faults[0]
	return cmp.Or(strings.Join(first.ErrorCodes, ","), first.Check)
}

func formatRemedy(r *v1alpha1.RemediationStatus) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%s #%d %s", r.Action, r.Attempt, strings.ToLower(string(r.State)))
}

func formatPodsLeft(d *v1alpha1.DrainStatus) string {
	if d == nil {
		return ""
	}
	return fmt.Sprint(d.Remaining)
}

func formatAgeOrEmpty(now time.Time, t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return terminal.Since(now, t.Time)
}

// writeColumns writes rows in columns. An empty cell other than the last becomes a dash, so that
// scripts can count columns.
func writeColumns(w io.Writer, indent string, rows [][]string) error {
	table := terminal.Table{Indent: indent}
	cells := make([][]terminal.Cell, 0, len(rows))
	for _, row := range rows {
		for i := range row {
			row[i] = strings.ReplaceAll(row[i], "\t", " ")
		}
		cells = append(cells, terminal.PlainRow(row...))
	}
	for _, line := range table.FormatRows(cells) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// writeFaultsAsJSONOrYAML writes NodeFaults in JSON or YAML, as kubectl does. Single writes one NodeFault as an
// object instead of a list.
func writeFaultsAsJSONOrYAML(w io.Writer, format string, list []v1alpha1.NodeFault, single bool) error {
	items := make([]any, 0, len(list))
	for i := range list {
		list[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
		list[i].ManagedFields = nil
		items = append(items, list[i])
	}
	if single && len(items) == 1 {
		return cli.WriteYAMLOrJSON(w, format, items[0])
	}
	return cli.WriteYAMLOrJSON(w, format, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}
