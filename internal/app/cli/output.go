package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// The output formats.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatName  = "name"
)

func formats() []string {
	return []string{formatTable, formatWide, formatJSON, formatYAML, formatName}
}

// addOutputFlag adds -o with one of the given formats, the first of which is
// the default.
func addOutputFlag(cmd *cobra.Command, format *string, formats ...string) {
	cmd.Flags().StringVarP(format, "output", "o", formats[0], "output `format`: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

func checkFormat(cmd *cobra.Command, format string, formats ...string) error {
	if slices.Contains(formats, format) {
		return nil
	}
	return usagef(cmd, "there is no output format %q here; there are %s", format, strings.Join(formats, ", "))
}

// A printer writes items in one format. Close ends what begin began.
type printer interface {
	print(items []item) error
	close() error
}

// newPrinter gives the printer of a format. A single object is written as
// itself in JSON and YAML, and not as a list of one.
func (s *session) newPrinter(format string, k kind, single, headers bool) printer {
	switch format {
	case formatJSON:
		return &jsonPrinter{w: s.env.Stdout, single: single}
	case formatYAML:
		return &yamlPrinter{w: s.env.Stdout, single: single}
	case formatName:
		return namePrinter{s.env.Stdout}
	}
	p := &tablePrinter{
		table:   table{w: s.env.Stdout, colour: s.colour()},
		columns: columns(k, format == formatWide),
		now:     s.env.Now,
	}
	if headers {
		p.pending = []row{heads(p.columns)}
	}
	return p
}

type tablePrinter struct {
	table   table
	columns []column
	now     func() time.Time
	pending []row // the heads, until there is a row
}

func (p *tablePrinter) print(items []item) error {
	rows := p.pending
	for _, i := range items {
		rows = append(rows, rowOf(p.columns, i, p.now()))
	}
	if len(items) == 0 {
		return nil
	}
	p.pending = nil
	return p.table.write(rows)
}

func (p *tablePrinter) close() error { return nil }

type jsonPrinter struct {
	w      io.Writer
	single bool
	begun  bool
}

func (p *jsonPrinter) print(items []item) error {
	var b bytes.Buffer
	for _, i := range items {
		indent := "    "
		switch {
		case p.single:
			indent = ""
		case p.begun:
			b.WriteString(",\n    ")
		default:
			b.WriteString("{\n  \"items\": [\n    ")
		}
		p.begun = true
		if err := json.Indent(&b, i.raw, indent, "  "); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
	}
	_, err := p.w.Write(b.Bytes())
	return err
}

func (p *jsonPrinter) close() error {
	end := "\n  ]\n}\n"
	switch {
	case p.single:
		end = "\n"
	case !p.begun:
		end = "{\n  \"items\": []\n}\n"
	}
	_, err := io.WriteString(p.w, end)
	return err
}

type yamlPrinter struct {
	w      io.Writer
	single bool
	begun  bool
}

func (p *yamlPrinter) print(items []item) error {
	var b bytes.Buffer
	for _, i := range items {
		text, err := toYAML(i.raw)
		if err != nil {
			return err
		}
		if p.single {
			b.Write(text)
			continue
		}
		if !p.begun {
			b.WriteString("items:\n")
			p.begun = true
		}
		lead := "- "
		for line := range bytes.Lines(text) {
			if len(line) > 1 {
				b.WriteString(lead)
			}
			b.Write(line)
			lead = "  "
		}
	}
	_, err := p.w.Write(b.Bytes())
	return err
}

func (p *yamlPrinter) close() error {
	if p.single || p.begun {
		return nil
	}
	_, err := io.WriteString(p.w, "items: []\n")
	return err
}

// A namePrinter writes what can be given back to another command. The name of
// a child alone is not that: its parent's may be unknown, so it is its id.
type namePrinter struct{ w io.Writer }

func (p namePrinter) print(items []item) error {
	var b strings.Builder
	for _, i := range items {
		name := i.resource.Name
		if i.kind.isChild() {
			name = i.resource.ID
		}
		b.WriteString(i.kind.singular + "/" + name + "\n")
	}
	_, err := io.WriteString(p.w, b.String())
	return err
}

func (namePrinter) close() error { return nil }

// A change is one line of a watch in JSON.
type change struct {
	Type   string          `json:"type"` // ADDED, MODIFIED or DELETED
	Object json.RawMessage `json:"object"`
}

// gone shows an item as one that is no longer there.
func gone(i item) item {
	i.resource.Status = v1.Status{
		Phase:              phaseGone,
		ObservedGeneration: i.resource.Status.ObservedGeneration,
		LastUpdatedTime:    i.resource.Status.LastUpdatedTime,
	}
	return i
}
