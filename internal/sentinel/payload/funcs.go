package payload

import (
	"fmt"
	"strings"
	"text/template"
)

// templateFuncs are the functions of a template: those of text/template, bounded, and
// those that the rewriter puts in.
func (r *rendering) templateFuncs() template.FuncMap {
	return template.FuncMap{
		fnField: r.requiredField,
		fnTest:  func(of any, names ...string) any { return lookUpPath(of, names) },
		fnQuiet: optionalField,
		fnShow:  formatValue,
		fnStep:  r.countStep,

		"reason":   func() string { return r.in.Reason },
		"index":    r.indexValue,
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

// requiredField is a field that should be there.
func (r *rendering) requiredField(of any, names ...string) any {
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

// optionalField is a field that may be there.
func optionalField(of any, names ...string) any {
	if v := lookUpPath(of, names); v != nil {
		return v
	}
	return ""
}

// formatValue is what a value looks like in the output. Nil is what index did not
// find, or a null in a list.
func formatValue(v any) string {
	if v == nil {
		return ""
	}
	return textOf(v)
}

// countStep counts one turn of a loop.
func (r *rendering) countStep() (string, error) {
	if r.steps++; r.steps > maxSteps {
		return "", errTooManySteps
	}
	return "", nil
}

// callBounded calls a function that makes text and charges what it made.
func (r *rendering) callBounded(f func(...any) string, args []any) (string, error) {
	s := f(args...)
	if r.work += len(s); len(s) > maxValue || r.work > maxWork {
		return "", errTooLong
	}
	return s, nil
}

// indexValue is that of text/template, save that what is not there is nil.
func (r *rendering) indexValue(of any, keys ...any) (any, error) {
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
