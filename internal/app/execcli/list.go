package execcli

import (
	"cmp"
	"io"
	"strings"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

// TablePrinter writes rows of a table as they arrive.
type TablePrinter struct {
	w     io.Writer
	o     OutputOptions
	wide  bool
	table terminal.Table
	head  bool // the headers are still to be written
}

// NewTablePrinter returns a TablePrinter. A wide one has more columns.
func NewTablePrinter(w io.Writer, wide bool, o OutputOptions) *TablePrinter {
	return &TablePrinter{w: w, o: o, wide: wide, table: terminal.Table{Colour: o.Colour}, head: !o.NoHeaders}
}

// Write writes a row for each execution.
func (l *TablePrinter) Write(list []v1alpha1.KubernetesExecution, o OutputOptions) error {
	if len(list) == 0 {
		return nil
	}
	var rows [][]terminal.Cell
	if l.head {
		l.head = false
		heads := terminal.PlainRow("NAME", "PHASE", "ACTION", "TARGET", "APPROVAL", "OUTCOME", "AGE")
		if l.wide {
			heads = append(heads, terminal.PlainRow("REASON", "REQUESTED BY", "MESSAGE")...)
		}
		rows = append(rows, heads)
	}
	for i := range list {
		rows = append(rows, executionRow(&list[i], l.wide, o))
	}
	return l.table.WriteRows(l.w, rows)
}

func executionRow(ke *v1alpha1.KubernetesExecution, wide bool, o OutputOptions) []terminal.Cell {
	s := &ke.Status
	approval := ""
	if s.Approval != nil && !endedUndecided(ke) {
		approval = s.Approval.State
	}
	cells := []terminal.Cell{
		{Text: ke.Name},
		{Text: string(s.Phase), Style: PhaseStyle(ke)},
		{Text: ke.Spec.Action},
		{Text: executions.FormatTarget(ke)},
		{Text: approval},
		{Text: string(s.Outcome)},
		{Text: terminal.Since(o.Now, ke.CreationTimestamp.Time)},
	}
	if wide {
		message, _, _ := strings.Cut(s.Message, "\n")
		cells = append(cells, terminal.PlainRow(string(cmp.Or(s.ReasonDetail, v1alpha1.Detail(s.Reason))), ke.Spec.RequestedBy, message)...)
	}
	return cells
}

// RowTextWithoutAge returns the content of a row without its age. A watch prints a row only if this changes.
func RowTextWithoutAge(ke *v1alpha1.KubernetesExecution, wide bool) string {
	cells := executionRow(ke, wide, OutputOptions{Now: ke.CreationTimestamp.Time})
	var b strings.Builder
	for _, c := range cells {
		b.WriteString(c.Text + "\x00")
	}
	return b.String()
}

// PhaseStyle returns the style of a phase.
func PhaseStyle(ke *v1alpha1.KubernetesExecution) terminal.Style {
	switch ke.Status.Phase {
	case v1alpha1.PhaseFailed:
		return terminal.Bad
	case v1alpha1.PhaseRollbackReady:
		if ke.Status.Outcome == v1alpha1.OutcomeFailed {
			return terminal.Bad
		}
		return terminal.Good
	case v1alpha1.PhaseCompleted:
		return terminal.Good
	case v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseExecuting, v1alpha1.PhaseWaitingApproval:
		return terminal.Busy
	case v1alpha1.PhaseNew:
	}
	return terminal.Faint
}

// KubectlName returns the name of an execution in the form of kubectl.
func KubectlName(ke *v1alpha1.KubernetesExecution) string {
	return strings.ToLower(v1alpha1.Kind) + "." + v1alpha1.GroupVersion.Group + "/" + ke.Name
}

// WriteExecutionObjectsOrNames writes executions in JSON, YAML or by name, as kubectl does. Single writes one
// execution as an object instead of a list.
func WriteExecutionObjectsOrNames(w io.Writer, format string, list []v1alpha1.KubernetesExecution, single bool) error {
	for i := range list {
		list[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
		list[i].ManagedFields = nil
	}
	if format == terminal.FormatName {
		var b strings.Builder
		for i := range list {
			b.WriteString(KubectlName(&list[i]) + "\n")
		}
		_, err := io.WriteString(w, b.String())
		return err
	}
	if single && len(list) == 1 {
		return cli.WriteYAMLOrJSON(w, format, list[0])
	}
	if list == nil {
		list = []v1alpha1.KubernetesExecution{} // the items are a list in JSON, never null
	}
	return cli.WriteYAMLOrJSON(w, format, map[string]any{"apiVersion": "v1", "kind": "List", "items": list})
}
