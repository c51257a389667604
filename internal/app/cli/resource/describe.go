package resource

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// MaxChildren limits the children of one kind in a description.
const MaxChildren = 20

// Description holds the content of a description.
type Description struct {
	Item    Item
	Reports []v1.AdapterStatus

	// Sync is the sync of a cluster to Gardener, or nil without one.
	Sync *v1.ClusterSync

	// Children holds the children by kind. A description shows at most MaxChildren of each.
	Children []Children
}

// Children are the children of one kind.
type Children struct {
	Kind  Kind
	Items []Item
}

// WriteDescription writes a full description of one resource.
func WriteDescription(w io.Writer, details Description, o PrintOptions) error {
	d := descriptionWriter{w: w, now: o.Now(), colour: o.Colour}
	d.writeHead(details.Item)
	d.writeTimes(details.Item.Resource)
	d.writeSpec(details.Item.Resource)
	d.writeConditions(details.Item.Resource)
	d.writeReports(details.Reports, details.Item.Resource.Generation)
	d.writeSync(details.Sync)
	for _, c := range details.Children {
		d.writeChildren(c.Kind, c.Items)
	}
	return d.err
}

// descriptionWriter is written section by section. The first error ends it.
type descriptionWriter struct {
	w      io.Writer
	now    time.Time
	colour bool
	err    error
}

func (d *descriptionWriter) writeLine(format string, args ...any) {
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.w, format+"\n", args...)
	}
}

// writeField writes a name and its value. Further lines of the value are aligned below the first.
func (d *descriptionWriter) writeField(name string, values ...string) {
	name += ":"
	for _, v := range values {
		d.writeLine("%-14s%s", name, terminal.ReplaceUnprintable(v))
		name = ""
	}
}

func (d *descriptionWriter) writeTable(indent string, rows [][]terminal.Cell) {
	if d.err != nil {
		return
	}
	for n := range rows {
		rows[n][0].Text = indent + rows[n][0].Text
	}
	t := terminal.Table{Colour: d.colour}
	d.err = t.WriteRows(d.w, rows)
}

func (d *descriptionWriter) writeHead(i Item) {
	r := i.Resource
	d.writeField("Name", r.Name)
	if r.Metadata.DisplayName != "" {
		d.writeField("Display name", r.Metadata.DisplayName)
	}
	d.writeField("Kind", r.Kind)
	d.writeField("ID", r.ID)
	if i.Kind.IsChild() {
		d.writeField(i.Kind.Parent().Name, i.Owner)
	}
	labels := []string{}
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		labels = append(labels, key+"="+r.Labels[key])
	}
	if len(labels) == 0 {
		labels = []string{"none"}
	}
	d.writeField("Labels", labels...)
	if d.err == nil {
		phase := terminal.ReplaceUnprintable(string(r.Status.Phase))
		if d.colour {
			phase = terminal.PhaseStyle(r.Status.Phase).Paint(phase)
		}
		d.writeLine("%-14s%s", "Phase:", phase)
	}
	d.writeField("Generation", fmt.Sprintf("%d (%s)", r.Generation, formatObserved(r)))
}

// formatObserved returns the progress of the adapters with the generation of a resource.
func formatObserved(r v1.Resource) string {
	switch observed := r.Status.ObservedGeneration; {
	case observed == 0:
		return "not all adapters have reported yet"
	case observed < r.Generation:
		return fmt.Sprintf("adapters have observed %d", observed)
	}
	return "observed by all adapters"
}

func (d *descriptionWriter) writeTimes(r v1.Resource) {
	d.writeField("Created", d.formatTime(r.CreatedTime, r.CreatedBy))
	d.writeField("Updated", d.formatTime(r.UpdatedTime, r.UpdatedBy))
	if r.DeletedTime != nil {
		d.writeField("Deleted", d.formatTime(*r.DeletedTime, r.DeletedBy))
	}
	d.writeField("Phase since", d.formatTime(r.Status.LastTransitionTime, ""))
	d.writeField("Last report", d.formatTime(r.Status.LastUpdatedTime, ""))
}

func (d *descriptionWriter) formatTime(t time.Time, by string) string {
	if t.IsZero() {
		return "never"
	}
	text := fmt.Sprintf("%s (%s ago", t.UTC().Format(time.RFC3339), terminal.Since(d.now, t))
	if by != "" {
		text += ", by " + by
	}
	return text + ")"
}

func (d *descriptionWriter) writeSpec(r v1.Resource) {
	d.writeLine("Spec:")
	if len(r.Spec) == 0 {
		return
	}
	text, err := JSONToYAML(r.Spec)
	if err != nil {
		d.err = errors.Join(d.err, err)
		return
	}
	for line := range strings.Lines(string(text)) {
		d.writeLine("  %s", terminal.ReplaceUnprintable(strings.TrimSuffix(line, "\n")))
	}
}

func (d *descriptionWriter) writeConditions(r v1.Resource) {
	d.writeLine("Conditions:")
	if len(r.Status.Conditions) == 0 {
		d.writeLine("  none")
		return
	}
	rows := [][]terminal.Cell{terminal.PlainRow("TYPE", "STATUS", "GENERATION", "SINCE", "REASON", "MESSAGE")}
	for _, c := range r.Status.Conditions {
		rows = append(rows, styledRow(1, statusStyle(c.Status),
			c.Type, string(c.Status), fmt.Sprint(c.ObservedGeneration), terminal.Since(d.now, c.LastTransitionTime), c.Reason, c.Message,
		))
	}
	d.writeTable("  ", rows)
}

func (d *descriptionWriter) writeReports(reports []v1.AdapterStatus, generation int64) {
	d.writeLine("Adapter reports:")
	if len(reports) == 0 {
		d.writeLine("  none")
		return
	}
	rows := [][]terminal.Cell{terminal.PlainRow("ADAPTER", "AVAILABLE", "APPLIED", "HEALTH", "GENERATION", "REPORTED", "REASON", "MESSAGE")}
	slices.SortFunc(reports, func(a, b v1.AdapterStatus) int { return strings.Compare(a.Adapter, b.Adapter) })
	for _, r := range reports {
		rows = append(rows, d.reportRow(r, generation))
	}
	d.writeTable("  ", rows)
}

func (d *descriptionWriter) reportRow(r v1.AdapterStatus, generation int64) []terminal.Cell {
	conditions := map[string]v1.AdapterCondition{}
	for _, c := range r.Conditions {
		conditions[c.Type] = c
	}
	available := conditions[v1.ConditionAvailable]
	explained := available // the condition of which the row has the reason
	if finalized := conditions[v1.ConditionFinalized]; finalized.Status == v1.ConditionTrue {
		explained = finalized
	}
	observed := fmt.Sprint(r.ObservedGeneration)
	if r.ObservedGeneration != generation {
		observed += " (old)"
	}
	const statusColumn = 1
	return styledRow(statusColumn, statusStyle(available.Status),
		r.Adapter,
		string(available.Status),
		string(conditions[v1.ConditionApplied].Status),
		string(conditions[v1.ConditionHealth].Status),
		observed,
		terminal.Since(d.now, r.LastReportTime),
		explained.Reason,
		explained.Message,
	)
}

func (d *descriptionWriter) writeChildren(k Kind, list []Item) {
	d.writeLine("%s:", k.Name+"s")
	rows := [][]terminal.Cell{terminal.PlainRow("NAME", "PHASE", "AGE")}
	for _, i := range list[:min(len(list), MaxChildren)] {
		rows = append(rows, styledRow(1, terminal.PhaseStyle(i.Resource.Status.Phase),
			i.Resource.Name, string(i.Resource.Status.Phase), terminal.Since(d.now, i.Resource.CreatedTime),
		))
	}
	d.writeTable("  ", rows)
	if len(list) > MaxChildren {
		d.writeLine("  … and more")
	}
}

func statusStyle(s v1.ConditionStatus) terminal.Style {
	switch s {
	case v1.ConditionTrue:
		return terminal.Good
	case v1.ConditionFalse, v1.ConditionUnknown:
		return terminal.Busy
	}
	return terminal.Plain
}
