package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// PrintOptions configures the output of items.
type PrintOptions struct {
	// Colour enables colours.
	Colour bool

	// Now is the clock for ages.
	Now func() time.Time

	// NoHeaders omits the column headers of a table.
	NoHeaders bool

	// Single writes a single item in JSON and YAML as an object instead of a list.
	Single bool
}

// Printer writes items as they arrive. Close writes the rest of the output.
type Printer[T any] interface {
	Write(items []T) error
	Close() error
}

// NewPrinter returns a printer for items of one kind in one of the formats. An unknown format means
// a table.
func NewPrinter(w io.Writer, format string, k Kind, o PrintOptions) Printer[Item] {
	switch format {
	case terminal.FormatJSON:
		return &jsonPrinter{w: w, single: o.Single}
	case terminal.FormatYAML:
		return &yamlPrinter{w: w, single: o.Single}
	case terminal.FormatName:
		return nameOrIDPrinter{w}
	}
	return newTablePrinter(w, format, resourceColumns(k), o)
}

// An itemPrinter writes values of another type as items.
type itemPrinter[T any] struct {
	to      Printer[Item]
	convert func(T) (Item, error)
}

func (p itemPrinter[T]) Write(values []T) error {
	items := make([]Item, len(values))
	for i, value := range values {
		var err error
		if items[i], err = p.convert(value); err != nil {
			return err
		}
	}
	return p.to.Write(items)
}

func (p itemPrinter[T]) Close() error { return p.to.Close() }

type jsonPrinter struct {
	w      io.Writer
	single bool
	begun  bool
}

func (p *jsonPrinter) Write(items []Item) error {
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
		if err := json.Indent(&b, i.Raw, indent, "  "); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
	}
	_, err := p.w.Write(b.Bytes())
	return err
}

func (p *jsonPrinter) Close() error {
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

func (p *yamlPrinter) Write(items []Item) error {
	var b bytes.Buffer
	for _, i := range items {
		text, err := JSONToYAML(i.Raw)
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

func (p *yamlPrinter) Close() error {
	if p.single || p.begun {
		return nil
	}
	_, err := io.WriteString(p.w, "items: []\n")
	return err
}

// nameOrIDPrinter writes names that other commands accept as arguments. For a child it writes the ID,
// because its name is ambiguous without its parent.
type nameOrIDPrinter struct{ w io.Writer }

func (p nameOrIDPrinter) Write(items []Item) error {
	var b strings.Builder
	for _, i := range items {
		name := i.Resource.Name
		if i.Kind.IsChild() {
			name = i.Resource.ID
		}
		b.WriteString(i.Kind.Singular + "/" + name + "\n")
	}
	_, err := io.WriteString(p.w, b.String())
	return err
}

func (nameOrIDPrinter) Close() error { return nil }
