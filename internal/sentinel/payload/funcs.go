package payload

import (
	"fmt"
	"strings"

	"github.com/fleetloop/fleetloop/internal/jsontemplate"
)

// templateFuncs returns the functions of a template: reason, index without errors for missing
// values, and those that the rewriter inserts.
func (r *rendering) templateFuncs() map[string]jsontemplate.Func {
	return map[string]jsontemplate.Func{
		fnField: r.getFieldOrRecordMissing,
		fnTest:  func(args []any) (any, error) { return getField(args), nil },
		fnQuiet: getFieldOrEmpty,
		fnShow:  formatValueOrEmpty,

		"index": indexOrNil,
		"reason": func(args []any) (any, error) {
			return r.in.Reason, jsontemplate.CheckArgCount(args, 0, 0)
		},
	}
}

// getField returns the field of an object, or nil. The arguments are the object and the names that
// lead to the field.
func getField(containerAndNames []any) any {
	v := containerAndNames[0]
	for _, arg := range containerAndNames[1:] {
		m, _ := v.(map[string]any)
		name, _ := arg.(string)
		v = m[name]
	}
	return v
}

// getFieldOrRecordMissing returns a field that should exist.
func (r *rendering) getFieldOrRecordMissing(containerAndNames []any) (any, error) {
	v := getField(containerAndNames)
	if v != nil {
		return v, nil
	}
	const enough = 8
	if len(r.missing) < enough {
		var path strings.Builder
		for _, name := range containerAndNames[1:] {
			fmt.Fprintf(&path, ".%v", name)
		}
		r.missing = append(r.missing, path.String())
	}
	return "", nil
}

// getFieldOrEmpty returns a field that may be missing.
func getFieldOrEmpty(args []any) (any, error) {
	if v := getField(args); v != nil {
		return v, nil
	}
	return "", nil
}

// formatValueOrEmpty returns the output text of a value. Nil is a value that index did not find, or
// a null in a list.
func formatValueOrEmpty(args []any) (any, error) {
	switch v := args[0].(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	}
	return formatAsText(args[0]), nil
}

// indexOrNil is index of text/template, but returns nil for a missing value.
func indexOrNil(containerAndKeys []any) (any, error) {
	if err := jsontemplate.CheckArgCount(containerAndKeys, 1, -1); err != nil {
		return nil, err
	}
	container := containerAndKeys[0]
	for _, key := range containerAndKeys[1:] {
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
