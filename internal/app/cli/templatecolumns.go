package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// itemsOf returns the items of a list, or the value itself.
func itemsOf(raw json.RawMessage) []json.RawMessage {
	var list struct {
		Items *[]json.RawMessage `json:"items"`
	}
	if json.Unmarshal(raw, &list) == nil && list.Items != nil {
		return *list.Items
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) == nil {
		return items
	}
	return []json.RawMessage{raw}
}

type templateColumn struct {
	head string
	path *jsonpath.JSONPath
}

// parseTemplateColumns reads HEADER:path,HEADER:path.
func parseTemplateColumns(text string) (templatePrinter, error) {
	var columns []templateColumn
	for part := range strings.SplitSeq(text, ",") {
		head, expression, ok := strings.Cut(part, ":")
		if !ok || head == "" || expression == "" {
			return nil, fmt.Errorf("%q is not HEADER:PATH, such as NAME:.name", part)
		}
		path, err := newJSONPath(expression)
		if err != nil {
			return nil, err
		}
		columns = append(columns, templateColumn{head, path})
	}
	return func(w io.Writer, raw json.RawMessage, noHeaders bool) error {
		return printTemplateColumns(w, columns, raw, noHeaders)
	}, nil
}

func printTemplateColumns(w io.Writer, columns []templateColumn, raw json.RawMessage, noHeaders bool) error {
	var rows [][]terminal.Cell
	if !noHeaders {
		var heads []string
		for _, c := range columns {
			heads = append(heads, c.head)
		}
		rows = append(rows, terminal.PlainRow(heads...))
	}
	for _, item := range itemsOf(raw) {
		value, err := decodeTemplateValue(item)
		if err != nil {
			return err
		}
		var cells []string
		for _, c := range columns {
			text, err := c.formatCell(value)
			if err != nil {
				return err
			}
			cells = append(cells, text)
		}
		rows = append(rows, terminal.PlainRow(cells...))
	}
	table := terminal.Table{}
	return table.WriteRows(w, rows)
}

// formatCell returns the results of a path, separated by commas.
func (c templateColumn) formatCell(value any) (string, error) {
	results, err := c.path.FindResults(value)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, result := range results {
		for _, v := range result {
			var b bytes.Buffer
			if err := c.path.PrintResults(&b, append(result[:0:0], v)); err != nil {
				return "", err
			}
			texts = append(texts, b.String())
		}
	}
	if len(texts) == 0 {
		return "<none>", nil
	}
	return strings.Join(texts, ","), nil
}

// printCSV prints one row for each item and one column for each field of any item: its path, with dots. Lists
// are one field, in JSON.
func printCSV(w io.Writer, raw json.RawMessage, noHeaders bool) error {
	var heads []string
	columns := map[string]int{} // by path
	var rows []map[int]string   // the values by column
	for _, item := range itemsOf(raw) {
		fields, err := listLeafFields("", item)
		if err != nil {
			return err
		}
		row := map[int]string{}
		for _, f := range fields {
			if _, known := columns[f.path]; !known {
				columns[f.path] = len(heads)
				heads = append(heads, f.path)
			}
			row[columns[f.path]] = f.value
		}
		rows = append(rows, row)
	}
	out := csv.NewWriter(w)
	if !noHeaders && len(heads) > 0 {
		if err := out.Write(heads); err != nil {
			return err
		}
	}
	for _, row := range rows {
		cells := make([]string, len(heads))
		for n, value := range row {
			cells[n] = value
		}
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// A leafField is a field that is not an object, or an empty one.
type leafField struct{ path, value string }

// listLeafFields returns the fields of an object, and of the objects in it, in their order.
func listLeafFields(path string, raw json.RawMessage) ([]leafField, error) {
	raw = bytes.TrimSpace(raw)
	isEmptyObject := len(bytes.Trim(raw, "{} \t\r\n")) == 0
	if raw[0] != '{' || isEmptyObject {
		var text string
		if json.Unmarshal(raw, &text) != nil { // not a string, nor null
			var b bytes.Buffer
			if err := json.Compact(&b, raw); err != nil {
				return nil, err
			}
			text = b.String()
		}
		return []leafField{{path, text}}, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil { // the opening brace
		return nil, err
	}
	var fields []leafField
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		below, err := listLeafFields(strings.TrimPrefix(fmt.Sprintf("%s.%s", path, key), "."), value)
		if err != nil {
			return nil, err
		}
		fields = append(fields, below...)
	}
	return fields, nil
}
