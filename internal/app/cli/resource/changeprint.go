package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// ChangePrinter writes change events as they arrive. Close writes the rest of the output.
type ChangePrinter interface {
	Write(events []v1.ChangeEvent) error
	Close() error
}

// NewChangePrinter returns a printer in one of the formats. An unknown format means a table. A
// streaming printer writes each event as a separate document.
func NewChangePrinter(w io.Writer, format string, streaming bool, o PrintOptions) ChangePrinter {
	switch {
	case streaming && format == terminal.FormatJSON:
		return changeLines{w}
	case streaming && format == terminal.FormatYAML:
		return changeDocuments{w}
	case format == terminal.FormatJSON || format == terminal.FormatYAML:
		return changeItems{NewPrinter(w, format, Kind{}, o)}
	}
	p := &changeTable{w: w, table: terminal.Table{Colour: o.Colour}, columns: changeColumns(format == terminal.FormatWide), now: o.Now}
	if !o.NoHeaders {
		cells := make([]string, len(p.columns))
		for j, c := range p.columns {
			cells[j] = c.head
		}
		p.pending = [][]terminal.Cell{terminal.PlainRow(cells...)}
	}
	return p
}

func changeJSON(e *v1.ChangeEvent) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return b.Bytes(), nil
}

// changeItems writes events as the items of one document.
type changeItems struct{ to Printer }

func (p changeItems) Write(events []v1.ChangeEvent) error {
	items := make([]Item, len(events))
	for i := range events {
		raw, err := changeJSON(&events[i])
		if err != nil {
			return err
		}
		items[i].Raw = bytes.TrimSpace(raw)
	}
	return p.to.Write(items)
}

func (p changeItems) Close() error { return p.to.Close() }

// changeLines writes one JSON object per line.
type changeLines struct{ w io.Writer }

func (p changeLines) Write(events []v1.ChangeEvent) error {
	for i := range events {
		line, err := changeJSON(&events[i])
		if err != nil {
			return err
		}
		if _, err := p.w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

func (changeLines) Close() error { return nil }

// changeDocuments writes one YAML document per event.
type changeDocuments struct{ w io.Writer }

func (p changeDocuments) Write(events []v1.ChangeEvent) error {
	for i := range events {
		raw, err := changeJSON(&events[i])
		if err != nil {
			return err
		}
		text, err := JSONToYAML(raw)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(p.w, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

func (changeDocuments) Close() error { return nil }

// changeColumn is one column of a table of change events.
type changeColumn struct {
	head string
	wide bool // shown only in wide tables
	cell func(e *v1.ChangeEvent, now time.Time) string
}

func changeColumns(wide bool) []changeColumn {
	list := []changeColumn{
		{head: "TIME", cell: func(e *v1.ChangeEvent, now time.Time) string {
			return e.Timestamp.In(now.Location()).Format(time.DateTime)
		}},
		{head: "AGE", cell: func(e *v1.ChangeEvent, now time.Time) string { return terminal.Since(now, e.Timestamp) }},
		{head: "CLUSTER", cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.Cluster }},
		{head: "OBJECT", cell: func(e *v1.ChangeEvent, _ time.Time) string { return describeTarget(e) }},
		{head: "ACTION", cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.Action }},
		{head: "ACTOR", cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.Actor }},
		{head: "OUTCOME", wide: true, cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.Outcome }},
		{head: "SESSION", wide: true, cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.Session }},
		{head: "SUMMARY", cell: func(e *v1.ChangeEvent, _ time.Time) string { return strings.Join(strings.Fields(e.Summary), " ") }},
		{head: "ID", wide: true, cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.ID }},
	}
	if !wide {
		list = slices.DeleteFunc(list, func(c changeColumn) bool { return c.wide })
	}
	return list
}

// describeTarget returns the object of a change.
func describeTarget(e *v1.ChangeEvent) string {
	if e.Node != "" {
		return "nodes/" + e.Node
	}
	return e.Subject
}

type changeTable struct {
	w       io.Writer
	table   terminal.Table
	columns []changeColumn
	now     func() time.Time
	pending [][]terminal.Cell // the column headers, until the first row
}

// actionColumn is the index of the column with a style.
const actionColumn = 4

func (p *changeTable) Write(events []v1.ChangeEvent) error {
	if len(events) == 0 {
		return nil
	}
	rows := p.pending
	for i := range events {
		e := &events[i]
		var cells []string
		for _, c := range p.columns {
			cells = append(cells, c.cell(e, p.now()))
		}
		rows = append(rows, styledRow(actionColumn, changeStyle(e), cells...))
	}
	p.pending = nil
	return p.table.WriteRows(p.w, rows)
}

func (p *changeTable) Close() error { return nil }

func changeStyle(e *v1.ChangeEvent) terminal.Style {
	switch {
	case e.Outcome == "failed":
		return terminal.Bad
	case e.DryRun:
		return terminal.Faint
	}
	return terminal.Plain
}
