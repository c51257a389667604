// Package template prints JSON by templates, as kubectl does: jsonpath, custom-columns, go-template, and csv.
//
// It reads the JSON that a command writes with -o json, so that every such command has all formats and a
// template sees every field.
package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// Formats lists the formats for the help of commands.
func Formats() []string {
	return []string{"jsonpath=…", "custom-columns=…", "go-template=…", "go-template-file=…", "csv"}
}

// A Template prints JSON values.
type Template struct {
	print func(w io.Writer, raw json.RawMessage, o Options) error
}

// Options configure the output.
type Options struct {
	// NoHeaders omits the column headers.
	NoHeaders bool
}

// Parse reads the value of an output flag. It returns nil if the value is not a template.
func Parse(format string) (*Template, error) {
	kind, text, given := strings.Cut(format, "=")
	var t Template
	var err error
	switch kind {
	case "jsonpath":
		t.print, err = parseJSONPath(text)
	case "custom-columns":
		t.print, err = parseColumns(text)
	case "go-template":
		t.print, err = parseGoTemplate(text)
	case "go-template-file":
		t.print, err = parseGoTemplateFile(text)
	case "csv":
		if t.print = printCSV; given {
			err = errors.New("it takes no value")
		}
	default:
		return nil, nil
	}
	if kind != "csv" && text == "" {
		placeholder := "TEMPLATE"
		if kind == "go-template-file" {
			placeholder = "FILE"
		}
		err = fmt.Errorf("the template is missing; write %s=%s", kind, placeholder)
	}
	if err != nil {
		return nil, fmt.Errorf("read the output format %s: %w", kind, err)
	}
	return &t, nil
}

// Print prints each JSON value of r as soon as it is complete.
func (t *Template) Print(w io.Writer, r io.Reader, o Options) error {
	d := json.NewDecoder(r)
	for {
		var raw json.RawMessage
		err := d.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = t.print(w, raw, o)
		}
		if err != nil {
			return fmt.Errorf("print with a template: %w", err)
		}
		o.NoHeaders = true // a watch prints them once
	}
}

func parseJSONPath(text string) (func(io.Writer, json.RawMessage, Options) error, error) {
	path, err := newJSONPath(text)
	if err != nil {
		return nil, err
	}
	return func(w io.Writer, raw json.RawMessage, _ Options) error {
		value, err := decode(raw)
		if err != nil {
			return err
		}
		return path.Execute(w, value)
	}, nil
}

// newJSONPath accepts an expression without braces, too: .name or name instead of {.name}.
func newJSONPath(text string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(text, "{") {
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	return path, path.Parse(text)
}

// decode decodes a value. Integers stay integers, so that templates can compare and print them.
func decode(raw json.RawMessage) (value any, err error) {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	return convertNumbers(value), nil
}

func convertNumbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = convertNumbers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = convertNumbers(v[i])
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		// A number that a float64 cannot hold stays text.
		if f, err := v.Float64(); err == nil && strconv.FormatFloat(f, 'f', -1, 64) == v.String() {
			return f
		}
		return v.String()
	}
	return value
}
