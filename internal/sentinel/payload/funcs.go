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
		fnField: r.getFieldOrRecordMissing,
		fnTest:  func(of any, names ...string) any { return lookUpPathOrNil(of, names) },
		fnQuiet: getFieldOrEmpty,
		fnShow:  formatValueOrEmpty,
		fnStep:  r.countLoopIteration,

		"reason":   func() string { return r.in.Reason },
		"index":    r.indexOrNil,
		"html":     func(args ...any) (string, error) { return r.callWithOutputLimit(template.HTMLEscaper, args) },
		"js":       func(args ...any) (string, error) { return r.callWithOutputLimit(template.JSEscaper, args) },
		"urlquery": func(args ...any) (string, error) { return r.callWithOutputLimit(template.URLQueryEscaper, args) },
		"print":    func(args ...any) (string, error) { return r.callWithOutputLimit(fmt.Sprint, args) },
		"println":  func(args ...any) (string, error) { return r.callWithOutputLimit(fmt.Sprintln, args) },
		"printf": func(format string, args ...any) (string, error) {
			return r.callWithOutputLimit(func(args ...any) string { return fmt.Sprintf(format, args...) }, args)
		},
	}
}

// getFieldOrRecordMissing returns a field that should exist.
func (r *rendering) getFieldOrRecordMissing(object any, names ...string) any {
	v := lookUpPathOrNil(object, names)
	if v == nil {
		const enough = 8
		if len(r.missing) < enough {
			r.missing = append(r.missing, "."+strings.Join(names, "."))
		}
		return ""
	}
	return v
}

// getFieldOrEmpty returns a field that may be missing.
func getFieldOrEmpty(object any, names ...string) any {
	if v := lookUpPathOrNil(object, names); v != nil {
		return v
	}
	return ""
}

// formatValueOrEmpty returns the output text of a value. Nil is a value that index did not find, or
// a null in a list.
func formatValueOrEmpty(v any) string {
	if v == nil {
		return ""
	}
	return formatAsText(v)
}

// countLoopIteration counts one iteration of a loop.
func (r *rendering) countLoopIteration() (string, error) {
	if r.steps++; r.steps > maxSteps {
		return "", errTooManySteps
	}
	return "", nil
}

// callWithOutputLimit calls a function that returns text, and charges the size of the text.
func (r *rendering) callWithOutputLimit(f func(...any) string, args []any) (text string, err error) {
	s := f(args...)
	if r.work += len(s); len(s) > maxValue || r.work > maxWork {
		return "", errTooLong
	}
	return s, nil
}

// indexOrNil is index of text/template, but returns nil for a missing value.
func (r *rendering) indexOrNil(container any, keys ...any) (value any, err error) {
	for _, key := range keys {
		switch v := container.(type) {
		case map[string]any:
			name, ok := key.(string)
			if !ok {
				return nil, fmt.Errorf("index an object with %v: the key must be a string", key)
			}
			container = v[name]
		case []any:
			i, err := convertIndex(key)
			if err != nil {
				return nil, err
			}
			if i < 0 || i >= int64(len(v)) {
				return nil, nil
			}
			container = v[i]
		default:
			return nil, nil
		}
	}
	return container, nil
}

func convertIndex(key any) (index int64, err error) {
	switch n := key.(type) {
	case int:
		return int64(n), nil
	case int64:
		return n, nil
	}
	return 0, fmt.Errorf("index a list with %v: the index must be an integer", key)
}
