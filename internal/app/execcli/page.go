package execcli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// OutputOptions configures the output of executions.
type OutputOptions struct {
	// Colour enables colours.
	Colour bool

	// Now is the clock for ages.
	Now time.Time

	// NoHeaders omits the column headers of a table.
	NoHeaders bool

	// Namespace is the default namespace of commands. Suggested commands name any other.
	Namespace string
}

// page is written line by line. The first error ends it.
type page struct {
	w   io.Writer
	o   OutputOptions
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
	p.writeStyledField(name, value, terminal.Plain)
}

func (p *page) writeStyledField(name, value string, style terminal.Style) {
	name += ":"
	for text := range strings.SplitSeq(strings.TrimRight(value, "\n"), "\n") {
		text = terminal.ReplaceUnprintable(strings.ReplaceAll(text, "\t", "  "))
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
		p.writeLine("%s", strings.TrimRight(indent+terminal.ReplaceUnprintable(strings.ReplaceAll(line, "\t", "  ")), " "))
	}
}

func (p *page) writeTable(indent string, rows [][]terminal.Cell) {
	t := terminal.Table{Indent: indent, Colour: p.o.Colour}
	for _, line := range t.FormatRows(rows) {
		p.writeLine("%s", line)
	}
}

// formatTimeAndAge returns a time and its age.
func (p *page) formatTimeAndAge(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	text := t.UTC().Format(time.RFC3339)
	if d := t.Sub(p.o.Now); d > 0 {
		return fmt.Sprintf("%s (in %s)", text, terminal.Age(d))
	}
	return fmt.Sprintf("%s (%s ago)", text, terminal.Since(p.o.Now, t))
}
