package payload

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

// A path is a field of the resource, as the names that lead to it.
type path struct {
	text  string
	names []string
}

// compileFieldPath parses ".a.b". Unlike in a template, a name may contain a hyphen, as label keys
// often do.
func compileFieldPath(text string) (value, error) {
	names := strings.Split(text[1:], ".")
	column := 2
	for _, name := range names {
		if name == "" {
			return nil, fmt.Errorf("line 1, column %d: a field name is missing after the dot", column)
		}
		for i, c := range name {
			if !isNameRune(c) {
				return nil, fmt.Errorf(
					"line 1, column %d: %q is not allowed in a field name; use a template in {{ }} for anything but a path",
					column+i,
					c,
				)
			}
		}
		column += len(name) + 1
	}
	return path{text: text, names: names}, nil
}

func isNameRune(c rune) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (p path) appendJSON(dst []byte, _ Input, resource map[string]any) ([]byte, error) {
	v := lookUpPathOrNil(resource, p.names)
	if v == nil {
		return append(dst, `""`...), fmt.Errorf("%w: %s", errMissing, p.text)
	}
	return appendQuoted(dst, formatAsText(v)), nil
}

func (p path) addNeededFields(n *neededFields) { n.names[p.names[0]] = true }

// lookUpPathOrNil follows names from v. Missing and null values are nil.
func lookUpPathOrNil(v any, names []string) any {
	for _, name := range names {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// formatAsText returns a value of a resource as text; objects and lists are JSON.
func formatAsText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case map[string]any, []any:
		return string(decision.AppendJSON(nil, v))
	}
	return fmt.Sprint(v)
}
