package terminal

import (
	"io"
	"strings"
	"unicode/utf8"
)

// The output formats of commands.
const (
	FormatTable = "table"
	FormatWide  = "wide"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
	FormatName  = "name"
)

// IsTableFormat reports whether a format is a table.
func IsTableFormat(format string) bool { return format == FormatTable || format == FormatWide }

// Cell is one text of a table.
type Cell struct {
	Text  string
	Style Style
}

// PlainRow returns cells without a style.
func PlainRow(texts ...string) []Cell {
	cells := make([]Cell, 0, len(texts))
	for _, t := range texts {
		cells = append(cells, Cell{Text: t})
	}
	return cells
}

// Table aligns rows as they arrive. Each column is as wide as its widest cell so far, so that a
// fleet of any size can be written without buffering.
type Table struct {
	// Indent stands before each line.
	Indent string

	// Colour enables the styles of cells.
	Colour bool

	widths []int
}

const columnGap = 3

// FormatRows returns a line for each row. It aligns their columns with each other and with earlier
// rows, and cleans the texts.
func (t *Table) FormatRows(rows [][]Cell) []string {
	for _, r := range rows {
		for j := range r {
			r[j].Text = ReplaceUnprintable(r[j].Text)
			if r[j].Text == "" && j < len(r)-1 {
				r[j].Text = "-" // so that scripts can count columns
			}
			if j == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[j] = max(t.widths[j], utf8.RuneCountInString(r[j].Text))
		}
	}
	lines := make([]string, 0, len(rows))
	for _, r := range rows {
		var b strings.Builder
		blank := 0 // spaces before the next cell; none at the end of a line
		for j, c := range r {
			text := c.Text
			if t.Colour {
				text = c.Style.Paint(text)
			}
			if text != "" {
				b.WriteString(strings.Repeat(" ", blank) + text)
			}
			blank = t.widths[j] - utf8.RuneCountInString(c.Text) + columnGap
		}
		lines = append(lines, t.Indent+b.String())
	}
	return lines
}

// WriteRows writes a line for each row, as FormatRows formats it.
func (t *Table) WriteRows(w io.Writer, rows [][]Cell) error {
	var b strings.Builder
	for _, line := range t.FormatRows(rows) {
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
