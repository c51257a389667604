// Package show writes executions for users and for programs: as tables, JSON, YAML, names and full
// descriptions.
//
// The content of an execution is untrusted. It is displayed only: tables and descriptions remove
// control sequences of a terminal.
package show

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// Options configures the output of executions.
type Options struct {
	// Colour enables colours.
	Colour bool

	// Now is the clock for ages.
	Now time.Time

	// NoHeaders omits the column headers of a table.
	NoHeaders bool

	// Namespace is the default namespace of commands. Suggested commands name any other.
	Namespace string
}

// cell is one text of a table.
type cell struct {
	text  string
	style terminal.Style
}

func plainRow(texts ...string) []cell {
	cells := make([]cell, 0, len(texts))
	for _, t := range texts {
		cells = append(cells, cell{text: t})
	}
	return cells
}

// grid tracks the widths of columns. Each is as wide as its widest cell so far.
type grid struct {
	indent string
	colour bool
	widths []int
}

const columnGap = 3

// formatLines aligns rows with each other and with earlier ones.
func (g *grid) formatLines(rows [][]cell) []string {
	for _, r := range rows {
		for j := range r {
			r[j].text = terminal.Clean(r[j].text)
			if r[j].text == "" && j < len(r)-1 {
				r[j].text = "-" // so that scripts can count columns
			}
			if j == len(g.widths) {
				g.widths = append(g.widths, 0)
			}
			g.widths[j] = max(g.widths[j], utf8.RuneCountInString(r[j].text))
		}
	}
	var out []string
	for _, r := range rows {
		var b strings.Builder
		blank := 0 // spaces before the next cell; none at the end of a line
		for j, c := range r {
			text := c.text
			if g.colour {
				text = c.style.Paint(text)
			}
			if text != "" {
				b.WriteString(strings.Repeat(" ", blank) + text)
			}
			blank = g.widths[j] - utf8.RuneCountInString(c.text) + columnGap
		}
		out = append(out, g.indent+b.String())
	}
	return out
}

// page is written line by line. The first error ends it.
type page struct {
	w   io.Writer
	o   Options
	err error
}

func (p *page) writeLine(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

const fieldWidth = 14

// writeField writes a name and its value. Further lines of the value are aligned below the first.
func (p *page) writeField(name, value string) {
	p.writeStyled(name, value, terminal.Plain)
}

func (p *page) writeStyled(name, value string, style terminal.Style) {
	name += ":"
	for text := range strings.SplitSeq(strings.TrimRight(value, "\n"), "\n") {
		text = terminal.Clean(strings.ReplaceAll(text, "\t", "  "))
		if p.o.Colour {
			text = style.Paint(text)
		}
		p.writeLine("%s", strings.TrimRight(terminal.Pad(name, fieldWidth)+text, " "))
		name = ""
	}
}

// writeBlock writes a text unchanged, with an indent.
func (p *page) writeBlock(indent, text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		p.writeLine("%s", strings.TrimRight(indent+terminal.Clean(strings.ReplaceAll(line, "\t", "  ")), " "))
	}
}

func (p *page) writeTable(indent string, rows [][]cell) {
	g := grid{indent: indent, colour: p.o.Colour}
	for _, line := range g.formatLines(rows) {
		p.writeLine("%s", line)
	}
}

// formatTime returns a time and its age.
func (p *page) formatTime(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	text := t.UTC().Format(time.RFC3339)
	if d := t.Sub(p.o.Now); d > 0 {
		return fmt.Sprintf("%s (in %s)", text, terminal.Age(d))
	}
	return fmt.Sprintf("%s (%s ago)", text, terminal.Since(p.o.Now, t))
}
