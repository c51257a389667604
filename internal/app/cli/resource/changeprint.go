package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// NewChangePrinter returns a printer in one of the formats. An unknown format means a table. A
// streaming printer writes each event as a separate document.
func NewChangePrinter(w io.Writer, format string, streaming bool, o PrintOptions) Printer[v1.ChangeEvent] {
	switch {
	case streaming && format == terminal.FormatJSON:
		return changeJSONLines{w}
	case streaming && format == terminal.FormatYAML:
		return changeYAMLDocuments{w}
	case format == terminal.FormatJSON || format == terminal.FormatYAML:
		return itemPrinter[v1.ChangeEvent]{NewPrinter(w, format, Kind{}, o), changeItem}
	}
	return newTablePrinter(w, format, changeColumns(), o)
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

func changeItem(e v1.ChangeEvent) (Item, error) {
	raw, err := changeJSON(&e)
	return Item{Raw: bytes.TrimSpace(raw)}, err
}

// changeJSONLines writes one JSON object per line.
type changeJSONLines struct{ w io.Writer }

func (p changeJSONLines) Write(events []v1.ChangeEvent) error {
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

func (changeJSONLines) Close() error { return nil }

// changeYAMLDocuments writes one YAML document per event.
type changeYAMLDocuments struct{ w io.Writer }

func (p changeYAMLDocuments) Write(events []v1.ChangeEvent) error {
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

func (changeYAMLDocuments) Close() error { return nil }

func changeColumns() []column[v1.ChangeEvent] {
	return []column[v1.ChangeEvent]{
		{head: "TIME", cell: func(e *v1.ChangeEvent, now time.Time) string {
			return e.Timestamp.In(now.Location()).Format(time.DateTime)
		}},
		{head: "AGE", cell: func(e *v1.ChangeEvent, now time.Time) string { return terminal.Since(now, e.Timestamp) }},
		{head: "CLUSTER", cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.Cluster }},
		{head: "OBJECT", cell: func(e *v1.ChangeEvent, _ time.Time) string { return describeTarget(e) }},
		{head: "ACTION", style: changeOutcomeStyle, cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.Action }},
		{head: "ACTOR", cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.Actor }},
		{head: "OUTCOME", wide: true, cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.Outcome }},
		{head: "SESSION", wide: true, cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.Session }},
		{head: "SUMMARY", cell: func(e *v1.ChangeEvent, _ time.Time) string { return strings.Join(strings.Fields(e.Summary), " ") }},
		{head: "ID", wide: true, cell: func(e *v1.ChangeEvent, _ time.Time) string { return e.ID }},
	}
}

// describeTarget returns the object of a change.
func describeTarget(e *v1.ChangeEvent) string {
	if e.Node != "" {
		return "nodes/" + e.Node
	}
	return e.Subject
}

func changeOutcomeStyle(e *v1.ChangeEvent) terminal.Style {
	switch {
	case e.Outcome == "failed":
		return terminal.Bad
	case e.DryRun:
		return terminal.Faint
	}
	return terminal.Plain
}
