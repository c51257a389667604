package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// resourceColumn is one column of a table of resources.
type resourceColumn struct {
	head string
	wide bool // shown only in wide tables
	age  bool // changes with the clock alone
	cell func(i Item, now time.Time) string
}

func resourceColumns(k Kind, wide bool) []resourceColumn {
	list := []resourceColumn{
		{head: "NAME", cell: func(i Item, _ time.Time) string { return i.Resource.Name }},
		{head: "PHASE", cell: func(i Item, _ time.Time) string { return string(i.Resource.Status.Phase) }},
		{head: "GENERATION", cell: func(i Item, _ time.Time) string { return fmt.Sprint(i.Resource.Generation) }},
		{head: "OBSERVED", cell: func(i Item, _ time.Time) string { return fmt.Sprint(i.Resource.Status.ObservedGeneration) }},
		{head: "REPORTED", age: true, cell: func(i Item, now time.Time) string {
			return terminal.Since(now, i.Resource.Status.LastUpdatedTime)
		}},
		{head: "AGE", age: true, cell: func(i Item, now time.Time) string { return terminal.Since(now, i.Resource.CreatedTime) }},
		{head: "LABELS", wide: true, cell: func(i Item, _ time.Time) string { return formatLabels(i.Resource.Labels) }},
		{head: "ID", wide: true, cell: func(i Item, _ time.Time) string { return i.Resource.ID }},
	}
	if k.IsChild() {
		owner := resourceColumn{head: strings.ToUpper(k.Parent().Singular), cell: func(i Item, _ time.Time) string { return i.Owner }}
		list = slices.Insert(list, 1, owner)
	}
	if !wide {
		list = slices.DeleteFunc(list, func(c resourceColumn) bool { return c.wide })
	}
	return list
}

func formatLabels(labels map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ",")
}

// styledRow returns cells of which one has a style.
func styledRow(styled int, style terminal.Style, texts ...string) []terminal.Cell {
	cells := terminal.PlainRow(texts...)
	cells[styled].Style = style
	return cells
}

func headRow(columns []resourceColumn) []terminal.Cell {
	cells := make([]string, 0, len(columns))
	for _, c := range columns {
		cells = append(cells, c.head)
	}
	return terminal.PlainRow(cells...)
}

func resourceRow(columns []resourceColumn, i Item, now time.Time) []terminal.Cell {
	row := make([]terminal.Cell, 0, len(columns))
	for _, c := range columns {
		cell := terminal.Cell{Text: c.cell(i, now)}
		if c.head == "PHASE" {
			cell.Style = terminal.PhaseStyle(i.Resource.Status.Phase)
		}
		row = append(row, cell)
	}
	return row
}

// DeletedItem returns an item in the table form of a deleted resource.
func DeletedItem(i Item) Item {
	i.Resource.Status.Phase = "Gone"
	return i
}

// RowTextWithoutAges returns the content of a row without ages. A watch prints a row only if this changes.
func RowTextWithoutAges(i Item, wide bool) string {
	var b strings.Builder
	for _, c := range resourceColumns(i.Kind, wide) {
		if !c.age {
			b.WriteString(c.cell(i, time.Time{}) + "\x00")
		}
	}
	return b.String()
}
