package resource

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// A column is one column of a table of items of one type.
type column[T any] struct {
	head  string
	wide  bool // shown only in wide tables
	age   bool // changes with the clock alone
	style func(item *T) terminal.Style
	cell  func(item *T, now time.Time) string
}

func resourceColumns(k Kind) []column[Item] {
	list := []column[Item]{
		{head: "NAME", cell: func(i *Item, _ time.Time) string { return i.Resource.Name }},
		{
			head:  "PHASE",
			style: func(i *Item) terminal.Style { return terminal.PhaseStyle(i.Resource.Status.Phase) },
			cell:  func(i *Item, _ time.Time) string { return string(i.Resource.Status.Phase) },
		},
		{head: "GENERATION", cell: func(i *Item, _ time.Time) string { return fmt.Sprint(i.Resource.Generation) }},
		{head: "OBSERVED", cell: func(i *Item, _ time.Time) string { return fmt.Sprint(i.Resource.Status.ObservedGeneration) }},
		{head: "REPORTED", age: true, cell: func(i *Item, now time.Time) string {
			return terminal.Since(now, i.Resource.Status.LastUpdatedTime)
		}},
		{head: "AGE", age: true, cell: func(i *Item, now time.Time) string { return terminal.Since(now, i.Resource.CreatedTime) }},
		{head: "LABELS", wide: true, cell: func(i *Item, _ time.Time) string { return formatLabels(i.Resource.Labels) }},
		{head: "ID", wide: true, cell: func(i *Item, _ time.Time) string { return i.Resource.ID }},
	}
	if k.IsChild() {
		owner := column[Item]{head: strings.ToUpper(k.Parent().Singular), cell: func(i *Item, _ time.Time) string { return i.Owner }}
		list = slices.Insert(list, 1, owner)
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

func styledRow(styled int, style terminal.Style, texts ...string) []terminal.Cell {
	cells := terminal.PlainRow(texts...)
	cells[styled].Style = style
	return cells
}

// A tablePrinter writes items as they arrive, each in a row.
type tablePrinter[T any] struct {
	w       io.Writer
	table   terminal.Table
	columns []column[T]
	now     func() time.Time
	pending [][]terminal.Cell // the column headers, until the first row
}

func newTablePrinter[T any](w io.Writer, format string, columns []column[T], o PrintOptions) *tablePrinter[T] {
	if format != terminal.FormatWide {
		columns = slices.DeleteFunc(columns, func(c column[T]) bool { return c.wide })
	}
	p := &tablePrinter[T]{w: w, table: terminal.Table{Colour: o.Colour}, columns: columns, now: o.Now}
	if !o.NoHeaders {
		var heads []string
		for _, c := range columns {
			heads = append(heads, c.head)
		}
		p.pending = [][]terminal.Cell{terminal.PlainRow(heads...)}
	}
	return p
}

func (p *tablePrinter[T]) Write(items []T) error {
	if len(items) == 0 {
		return nil
	}
	rows := p.pending
	for i := range items {
		row := make([]terminal.Cell, len(p.columns))
		for j, c := range p.columns {
			row[j].Text = c.cell(&items[i], p.now())
			if c.style != nil {
				row[j].Style = c.style(&items[i])
			}
		}
		rows = append(rows, row)
	}
	p.pending = nil
	return p.table.WriteRows(p.w, rows)
}

func (p *tablePrinter[T]) Close() error { return nil }

// DeletedItem returns an item in the table form of a deleted resource.
func DeletedItem(i Item) Item {
	i.Resource.Status.Phase = "Gone"
	return i
}

// RowTextWithoutAges returns the content of a row without ages. A watch prints a row only if this changes.
func RowTextWithoutAges(i Item, wide bool) string {
	var b strings.Builder
	for _, c := range resourceColumns(i.Kind) {
		isShown := wide || !c.wide
		if isShown && !c.age {
			b.WriteString(c.cell(&i, time.Time{}) + "\x00")
		}
	}
	return b.String()
}
