package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// A column is one column of a table of resources.
type column struct {
	head string
	wide bool // shown only in wide tables
	age  bool // moves with the clock alone
	cell func(i item, now time.Time) string
}

func columns(k kind, wide bool) []column {
	list := []column{
		{head: "NAME", cell: func(i item, _ time.Time) string { return i.resource.Name }},
		{head: "PHASE", cell: func(i item, _ time.Time) string { return string(i.resource.Status.Phase) }},
		{head: "GENERATION", cell: func(i item, _ time.Time) string { return fmt.Sprint(i.resource.Generation) }},
		{head: "OBSERVED", cell: func(i item, _ time.Time) string { return fmt.Sprint(i.resource.Status.ObservedGeneration) }},
		{head: "REPORTED", age: true, cell: func(i item, now time.Time) string {
			return terminal.Since(now, i.resource.Status.LastUpdatedTime)
		}},
		{head: "AGE", age: true, cell: func(i item, now time.Time) string { return terminal.Since(now, i.resource.CreatedTime) }},
		{head: "LABELS", wide: true, cell: func(i item, _ time.Time) string { return labelText(i.resource.Labels) }},
		{head: "ID", wide: true, cell: func(i item, _ time.Time) string { return i.resource.ID }},
	}
	if k.isChild() {
		owner := column{head: strings.ToUpper(kindOf(k.parent).singular), cell: func(i item, _ time.Time) string { return i.owner }}
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

// A table writes rows as they come. Columns are as wide as their widest cell
// so far, so that a fleet of any size can be written without being held.
type table struct {
	w      io.Writer
	colour bool
	widths []int
}

// A row is the cells of one line, and the style of one of them.
type row struct {
	cells  []string
	styled int // the place of the cell with a style
	style  terminal.Style
}

const columnGap = 3

// write adds rows whose columns are made to fit each other and what was
// written before.
func (t *table) write(rows []row) error {
	for i := range rows {
		for j, text := range rows[i].cells {
			text = terminal.Clean(text)
			if text == "" && j < len(rows[i].cells)-1 {
				text = "-" // so that a column can be counted on by scripts
			}
			rows[i].cells[j] = text
			if j == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[j] = max(t.widths[j], utf8.RuneCountInString(text))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		blank := 0 // owed before the next cell; none at the end of a line
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

// plain is a row without a style.
func plain(cells ...string) row { return row{cells: cells, styled: -1} }

func heads(columns []column) row {
	cells := make([]string, 0, len(columns))
	for _, c := range columns {
		cells = append(cells, c.head)
	}
	return plain(cells...)
}

func rowOf(columns []column, i item, now time.Time) row {
	r := row{styled: -1}
	for j, c := range columns {
		if c.head == "PHASE" {
			r.styled, r.style = j, terminal.PhaseStyle(i.resource.Status.Phase)
		}
		r.cells = append(r.cells, c.cell(i, now))
	}
	return r
}

// phaseGone is what a watch shows in the place of the phase of a resource that
// is no longer there.
const phaseGone v1.Phase = "Gone"

// state is what a row shows apart from ages: while it stays, there is nothing
// to tell.
func state(columns []column, i item) string {
	var b strings.Builder
	for _, c := range columns {
		if !c.age {
			b.WriteString(c.cell(i, time.Time{}) + "\x00")
		}
	}
	return b.String()
}
