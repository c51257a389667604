package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// templateFormats lists the formats for the help of commands.
func templateFormats() []string {
	return []string{"jsonpath=…", "custom-columns=…", "go-template=…", "go-template-file=…", "csv"}
}

// An outputTemplate prints JSON by a template, as kubectl does: jsonpath, custom-columns, go-template, or csv.
//
// It reads the JSON that a command writes with -o json, so that every such command has all formats and a
// template sees every field.
type outputTemplate struct{ printValue templatePrinter }

// A templatePrinter prints one JSON value. noHeaders omits the column headers.
type templatePrinter func(w io.Writer, raw json.RawMessage, noHeaders bool) error

// parseOutputTemplate reads the value of an output flag. It returns nil if the value is not a template.
func parseOutputTemplate(format string) (*outputTemplate, error) {
	kind, text, given := strings.Cut(format, "=")
	var t outputTemplate
	var err error
	switch kind {
	case "jsonpath":
		t.printValue, err = parseJSONPath(text)
	case "custom-columns":
		t.printValue, err = parseTemplateColumns(text)
	case "go-template":
		t.printValue, err = parseGoTemplate(text)
	case "go-template-file":
		t.printValue, err = parseGoTemplateFile(text)
	case "csv":
		if t.printValue = printCSV; given {
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

// printValues prints each JSON value of r as soon as it is complete.
func (t *outputTemplate) printValues(w io.Writer, r io.Reader, noHeaders bool) error {
	d := json.NewDecoder(r)
	for {
		var raw json.RawMessage
		err := d.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = t.printValue(w, raw, noHeaders)
		}
		if err != nil {
			return fmt.Errorf("print with a template: %w", err)
		}
		noHeaders = true // a watch prints them once
	}
}

func parseJSONPath(text string) (templatePrinter, error) {
	path, err := newJSONPath(text)
	if err != nil {
		return nil, err
	}
	return func(w io.Writer, raw json.RawMessage, _ bool) error {
		value, err := decodeTemplateValue(raw)
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

// decodeTemplateValue decodes a value. Integers stay integers, so that templates can compare and print them.
func decodeTemplateValue(raw json.RawMessage) (value any, err error) {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	return convertNumbersOrKeepText(value), nil
}

func convertNumbersOrKeepText(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = convertNumbersOrKeepText(v[key])
		}
	case []any:
		for i := range v {
			v[i] = convertNumbersOrKeepText(v[i])
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
