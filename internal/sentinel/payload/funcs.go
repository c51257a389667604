package payload

import (
	"fmt"
	"strings"
	"text/template"
)

// funcs are the functions of a template: those of text/template, bounded, and
// those that the rewriter puts in.
func (r *rendering) funcs() template.FuncMap {
	return template.FuncMap{
		fnField: r.field,
		fnTest:  func(of any, names ...string) any { return lookup(of, names) },
		fnQuiet: quiet,
		fnShow:  show,
		fnStep:  r.step,

		"reason":   func() string { return r.in.Reason },
		"index":    r.index,
		"html":     func(args ...any) (string, error) { return r.bounded(template.HTMLEscaper, args) },
		"js":       func(args ...any) (string, error) { return r.bounded(template.JSEscaper, args) },
		"urlquery": func(args ...any) (string, error) { return r.bounded(template.URLQueryEscaper, args) },
		"print":    func(args ...any) (string, error) { return r.bounded(fmt.Sprint, args) },
		"println":  func(args ...any) (string, error) { return r.bounded(fmt.Sprintln, args) },
		"printf": func(format string, args ...any) (string, error) {
			return r.bounded(func(args ...any) string { return fmt.Sprintf(format, args...) }, args)
		},
	}
}

// field is a field that should be there.
func (r *rendering) field(of any, names ...string) any {
	v := lookup(of, names)
	if v == nil {
		const enough = 8
		if len(r.missing) < enough {
			r.missing = append(r.missing, "."+strings.Join(names, "."))
		}
		return ""
	}
	return v
}

// quiet is a field that may be there.
func quiet(of any, names ...string) any {
	if v := lookup(of, names); v != nil {
		return v
	}
	return ""
}

// show is what a value looks like in the output. Nil is what index did not
// find, or a null in a list.
func show(v any) string {
	if v == nil {
		return ""
	}
	return text(v)
}

// step counts one turn of a loop.
func (r *rendering) step() (string, error) {
	if r.steps++; r.steps > maxSteps {
		return "", errTooManySteps
	}
	return "", nil
}

// bounded calls a function that makes text and charges what it made.
func (r *rendering) bounded(f func(...any) string, args []any) (string, error) {
	s := f(args...)
	if r.work += len(s); len(s) > maxValue || r.work > maxWork {
		return "", errTooLong
	}
	return s, nil
}

// index is that of text/template, save that what is not there is nil.
func (r *rendering) index(of any, keys ...any) (any, error) {
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
