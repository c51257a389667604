package payload

import (
	"fmt"
	"strings"
	"text/template"
)

// templateFuncs returns the functions of a template: those of text/template, bounded, and those
// that the rewriter inserts.
func (r *rendering) templateFuncs() template.FuncMap {
	return template.FuncMap{
		fnField: r.fieldOrNoteMissing,
		fnTest:  func(of any, names ...string) any { return lookUpPath(of, names) },
		fnQuiet: optionalField,
		fnShow:  formatValue,
		fnStep:  r.countStep,

		"reason":   func() string { return r.in.Reason },
		"index":    r.indexOrNil,
		"html":     func(args ...any) (string, error) { return r.callBounded(template.HTMLEscaper, args) },
		"js":       func(args ...any) (string, error) { return r.callBounded(template.JSEscaper, args) },
		"urlquery": func(args ...any) (string, error) { return r.callBounded(template.URLQueryEscaper, args) },
		"print":    func(args ...any) (string, error) { return r.callBounded(fmt.Sprint, args) },
		"println":  func(args ...any) (string, error) { return r.callBounded(fmt.Sprintln, args) },
		"printf": func(format string, args ...any) (string, error) {
			return r.callBounded(func(args ...any) string { return fmt.Sprintf(format, args...) }, args)
		},
	}
}

// fieldOrNoteMissing returns a field that should exist.
func (r *rendering) fieldOrNoteMissing(of any, names ...string) any {
	v := lookUpPath(of, names)
	if v == nil {
		const enough = 8
		if len(r.missing) < enough {
			r.missing = append(r.missing, "."+strings.Join(names, "."))
		}
		return ""
	}
	return v
}

// optionalField returns a field that may be missing.
func optionalField(of any, names ...string) any {
	if v := lookUpPath(of, names); v != nil {
		return v
	}
	return ""
}

// formatValue returns the output text of a value. Nil is a value that index did not find, or a null
// in a list.
func formatValue(v any) string {
	if v == nil {
		return ""
	}
	return textOf(v)
}

// countStep counts one iteration of a loop.
func (r *rendering) countStep() (string, error) {
	if r.steps++; r.steps > maxSteps {
		return "", errTooManySteps
	}
	return "", nil
}

// callBounded calls a function that returns text, and charges the size of the text.
func (r *rendering) callBounded(f func(...any) string, args []any) (string, error) {
	s := f(args...)
	if r.work += len(s); len(s) > maxValue || r.work > maxWork {
		return "", errTooLong
	}
	return s, nil
}

// indexOrNil is index of text/template, but returns nil for a missing value.
func (r *rendering) indexOrNil(of any, keys ...any) (any, error) {
	for _, key := range keys {
		switch v := of.(type) {
		case map[string]any:
			name, ok := key.(string)
			if !ok {
				return nil, fmt.Errorf("index an object with %v: the key must be a string", key)
			}
			of = v[name]
		case []any:
			i, err := wholeNumber(key)
			if err != nil {
				return nil, err
			}
			if i < 0 || i >= int64(len(v)) {
				return nil, nil
			}
			of = v[i]
		default:
			return nil, nil
		}
	}
	return of, nil
}

func wholeNumber(key any) (int64, error) {
	switch n := key.(type) {
	case int:
		return int64(n), nil
	case int64:
		return n, nil
	}
	return 0, fmt.Errorf("index a list with %v: the index must be an integer", key)
}
