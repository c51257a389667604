package jsontemplate

import (
	"errors"
	"fmt"
	"math"
	"text/template" // only its escaping functions, which do not link the executor
)

// builtins returns the functions of text/template, except and and or.
func builtins() map[string]function {
	text := func(f Func) function { return function{call: f, makesText: true} }
	return map[string]function{
		"html":     text(func(args []any) (any, error) { return template.HTMLEscaper(args...), nil }),
		"js":       text(func(args []any) (any, error) { return template.JSEscaper(args...), nil }),
		"urlquery": text(func(args []any) (any, error) { return template.URLQueryEscaper(args...), nil }),
		"print":    text(func(args []any) (any, error) { return fmt.Sprint(args...), nil }),
		"println":  text(func(args []any) (any, error) { return fmt.Sprintln(args...), nil }),
		"printf":   text(builtinPrintf),

		"call":  {call: func([]any) (any, error) { return nil, errors.New("a JSON value is not a function") }},
		"index": {call: Index},
		"slice": {call: builtinSlice},
		"len":   {call: builtinLen},
		"not": {call: func(args []any) (any, error) {
			if err := CheckArgCount(args, 1, 1); err != nil {
				return nil, err
			}
			return !isTrue(args[0]), nil
		}},

		"eq": {call: isEqualToAny},
		"ne": newComparison(func(a, b operand) (bool, error) { equal, err := a.equals(b); return !equal, err }),
		"lt": newComparison(operand.less),
		"le": newComparison(operand.lessOrEqual),
		"gt": newComparison(func(a, b operand) (bool, error) { le, err := a.lessOrEqual(b); return !le, err }),
		"ge": newComparison(func(a, b operand) (bool, error) { less, err := a.less(b); return !less, err }),
	}
}

// CheckArgCount checks the number of arguments of a function. A negative maximum means no maximum.
func CheckArgCount(args []any, minimum, maximum int) error {
	if len(args) >= minimum && (maximum < 0 || len(args) <= maximum) {
		return nil
	}
	if minimum == maximum {
		return fmt.Errorf("wrong number of args: want %d got %d", minimum, len(args))
	}
	return fmt.Errorf("wrong number of args: want at least %d got %d", minimum, len(args))
}

// builtinPrintf implements printf: the first argument is the format.
func builtinPrintf(args []any) (any, error) {
	if err := CheckArgCount(args, 1, -1); err != nil {
		return nil, err
	}
	format, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("wrong type for value; expected string; got %T", args[0])
	}
	return fmt.Sprintf(format, args[1:]...), nil
}

// Index implements index: it returns the element of the first argument at the indexes that follow.
// A key that an object does not have is nil.
func Index(args []any) (any, error) {
	if err := CheckArgCount(args, 1, -1); err != nil {
		return nil, err
	}
	item := args[0]
	if item == nil {
		return nil, errors.New("index of untyped nil")
	}
	for _, key := range args[1:] {
		if item == nil {
			return nil, errors.New("index of nil pointer")
		}
		object, isObject := item.(map[string]any)
		list, isList := item.([]any)
		text, isText := textOf(item)
		name, isName := key.(string)
		switch {
		case isObject && !isName:
			return nil, fmt.Errorf("value has type %T; should be string", key)
		case isObject:
			item = object[name]
			continue
		case !isList && !isText:
			return nil, fmt.Errorf("can't index item of type %T", item)
		}
		i, err := convertIndex(key, max(len(list), len(text))-1)
		if err != nil {
			return nil, err
		}
		if isList {
			item = list[i]
		} else {
			item = text[i]
		}
	}
	return item, nil
}

// convertIndex returns an index between 0 and the maximum.
func convertIndex(v any, maximum int) (int, error) {
	o := newOperand(v)
	if o.kind != kindInt && o.kind != kindUint {
		return 0, fmt.Errorf("cannot index slice/array with type %T", v)
	}
	i := o.i
	if o.kind == kindUint {
		i = int64(min(o.u, math.MaxInt64))
	}
	if i < 0 || i > int64(maximum) {
		return 0, fmt.Errorf("index out of range: %v", v)
	}
	return int(i), nil
}

// builtinSlice implements slice: x[1:2:3] is slice x 1 2 3.
func builtinSlice(args []any) (any, error) {
	if err := CheckArgCount(args, 1, -1); err != nil {
		return nil, err
	}
	list, isList := args[0].([]any)
	text, isText := textOf(args[0])
	if !isList && !isText {
		return nil, fmt.Errorf("can't slice item of type %T", args[0])
	}
	if len(args) > 4 || isText && len(args) > 3 {
		return nil, fmt.Errorf("too many slice indexes: %d", len(args)-1)
	}
	length := max(len(list), len(text))
	bounds := [3]int{0, length, length}
	for i, arg := range args[1:] {
		var err error
		if bounds[i], err = convertIndex(arg, length); err != nil {
			return nil, err
		}
	}
	for i, bound := range bounds[1:] {
		if bounds[i] > bound {
			return nil, fmt.Errorf("invalid slice index: %d > %d", bounds[i], bound)
		}
	}
	if isText {
		return text[bounds[0]:bounds[1]], nil
	}
	return list[bounds[0]:bounds[1]:bounds[2]], nil
}

// builtinLen implements len.
func builtinLen(args []any) (any, error) {
	if err := CheckArgCount(args, 1, 1); err != nil {
		return nil, err
	}
	switch v := args[0].(type) {
	case map[string]any:
		return len(v), nil
	case []any:
		return len(v), nil
	}
	if text, ok := textOf(args[0]); ok {
		return len(text), nil
	}
	return nil, fmt.Errorf("len of type %T", args[0])
}

// textOf returns a value whose kind is string.
func textOf(v any) (text string, ok bool) {
	if text, ok = v.(string); ok {
		return text, true
	}
	o := newOperand(v)
	return o.s, o.kind == kindString
}

// isTrue reports whether a value is not the zero value or empty.
func isTrue(v any) bool {
	switch v := v.(type) {
	case nil, null:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case map[string]any:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	o := newOperand(v)
	return o.b || o.i != 0 || o.u != 0 || o.f != 0 || o.c != 0 || o.s != ""
}
