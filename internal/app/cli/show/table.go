// Package show writes resources for users and for programs: as tables, JSON, YAML, names and full
// descriptions.
//
// Data from a server is displayed only: tables and descriptions remove control sequences of a
// terminal.
package show

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fleetloop/fleetloop/internal/app/cli/lookup"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// column is one column of a table of resources.
type column struct {
	head string
	wide bool // shown only in wide tables
	age  bool // changes with the clock alone
	cell func(i lookup.Item, now time.Time) string
}

func columnsOf(k lookup.Kind, wide bool) []column {
	list := []column{
		{head: "NAME", cell: func(i lookup.Item, _ time.Time) string { return i.Resource.Name }},
		{head: "PHASE", cell: func(i lookup.Item, _ time.Time) string { return string(i.Resource.Status.Phase) }},
		{head: "GENERATION", cell: func(i lookup.Item, _ time.Time) string { return fmt.Sprint(i.Resource.Generation) }},
		{head: "OBSERVED", cell: func(i lookup.Item, _ time.Time) string { return fmt.Sprint(i.Resource.Status.ObservedGeneration) }},
		{head: "REPORTED", age: true, cell: func(i lookup.Item, now time.Time) string {
			return terminal.Since(now, i.Resource.Status.LastUpdatedTime)
		}},
		{head: "AGE", age: true, cell: func(i lookup.Item, now time.Time) string { return terminal.Since(now, i.Resource.CreatedTime) }},
		{head: "LABELS", wide: true, cell: func(i lookup.Item, _ time.Time) string { return labelText(i.Resource.Labels) }},
		{head: "ID", wide: true, cell: func(i lookup.Item, _ time.Time) string { return i.Resource.ID }},
	}
	if k.IsChild() {
		owner := column{head: strings.ToUpper(k.Parent().Singular), cell: func(i lookup.Item, _ time.Time) string { return i.Owner }}
		list = slices.Insert(list, 1, owner)
	}
	if !wide {
		list = slices.DeleteFunc(list, func(c column) bool { return c.wide })
	}
	return list
}

func labelText(labels map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ",")
}

// table writes rows as they arrive. Each column is as wide as its widest cell so far, so that a
// fleet of any size can be written without buffering.
type table struct {
	w      io.Writer
	colour bool
	widths []int
}

// row holds the cells of one line and the style of one of them.
type row struct {
	cells  []string
	styled int // index of the cell with a style
	style  terminal.Style
}

const columnGap = 3

// writeRows writes rows and aligns their columns with each other and with earlier rows.
func (t *table) writeRows(rows []row) error {
	for _, r := range rows {
		for j, text := range r.cells {
			text = terminal.Clean(text)
			if text == "" && j < len(r.cells)-1 {
				text = "-" // so that scripts can count columns
			}
			r.cells[j] = text
			if j == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[j] = max(t.widths[j], utf8.RuneCountInString(text))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		blank := 0 // spaces before the next cell; none at the end of a line
		for j, text := range r.cells {
			width := utf8.RuneCountInString(text)
			if t.colour && j == r.styled {
				text = r.style.Paint(text)
			}
			if text != "" {
				b.WriteString(strings.Repeat(" ", blank) + text)
			}
			blank = t.widths[j] - width + columnGap
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

// plainRow returns a row without a style.
func plainRow(cells ...string) row { return row{cells: cells, styled: -1} }

func headRow(columns []column) row {
	cells := make([]string, 0, len(columns))
	for _, c := range columns {
		cells = append(cells, c.head)
	}
	return plainRow(cells...)
}

func rowOf(columns []column, i lookup.Item, now time.Time) row {
	r := row{styled: -1}
	for j, c := range columns {
		if c.head == "PHASE" {
			r.styled, r.style = j, terminal.PhaseStyle(i.Resource.Status.Phase)
		}
		r.cells = append(r.cells, c.cell(i, now))
	}
	return r
}

// DeletedItem returns an item in the table form of a deleted resource.
func DeletedItem(i lookup.Item) lookup.Item {
	i.Resource.Status.Phase = "Gone"
	return i
}

// State returns the content of a row without ages. A watch prints a row only if this changes.
func State(i lookup.Item, wide bool) string {
	var b strings.Builder
	for _, c := range columnsOf(i.Kind, wide) {
		if !c.age {
			b.WriteString(c.cell(i, time.Time{}) + "\x00")
		}
	}
	return b.String()
}
