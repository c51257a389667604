package jsontemplate

import (
	"errors"
	"fmt"
	"reflect"
)

// A kind is a class of types that compare with each other.
type kind int

const (
	kindOther kind = iota // nil, objects and lists
	kindBool
	kindInt
	kindUint
	kindFloat
	kindComplex
	kindString
)

// An operand is a value in a comparison.
type operand struct {
	value any
	kind  kind
	b     bool
	i     int64
	u     uint64
	f     float64
	c     complex128
	s     string
}

func newOperand(v any) operand {
	o := operand{value: v}
	switch v := v.(type) {
	case nil, map[string]any, []any:
		return o
	case string:
		o.kind, o.s = kindString, v
		return o
	case int64:
		o.kind, o.i = kindInt, v
		return o
	}
	r := reflect.ValueOf(v)
	switch {
	case r.Kind() == reflect.Bool:
		o.kind, o.b = kindBool, r.Bool()
	case r.CanInt():
		o.kind, o.i = kindInt, r.Int()
	case r.CanUint():
		o.kind, o.u = kindUint, r.Uint()
	case r.CanFloat():
		o.kind, o.f = kindFloat, r.Float()
	case r.CanComplex():
		o.kind, o.c = kindComplex, r.Complex()
	case r.Kind() == reflect.String:
		o.kind, o.s = kindString, r.String()
	}
	return o
}

var errNotComparable = errors.New("invalid type for comparison")

func (o operand) equals(other operand) (bool, error) {
	a, b := o, other
	switch {
	case a.kind == kindInt && b.kind == kindUint:
		return a.i >= 0 && uint64(a.i) == b.u, nil
	case a.kind == kindUint && b.kind == kindInt:
		return b.i >= 0 && uint64(b.i) == a.u, nil
	case a.value == nil || b.value == nil:
		return a.value == nil && b.value == nil, nil
	case a.kind != b.kind:
		return false, fmt.Errorf("incompatible types for comparison: %T and %T", a.value, b.value)
	case a.kind == kindOther:
		return false, fmt.Errorf("non-comparable types %T and %T", a.value, b.value)
	}
	return a.b == b.b && a.i == b.i && a.u == b.u && a.f == b.f && a.c == b.c && a.s == b.s, nil
}

func (o operand) less(other operand) (bool, error) {
	a, b := o, other
	switch {
	case a.kind == kindInt && b.kind == kindUint:
		return a.i < 0 || uint64(a.i) < b.u, nil
	case a.kind == kindUint && b.kind == kindInt:
		return b.i >= 0 && a.u < uint64(b.i), nil
	case a.kind == kindOther || b.kind == kindOther:
		return false, errNotComparable
	case a.kind != b.kind:
		return false, fmt.Errorf("incompatible types for comparison: %T and %T", a.value, b.value)
	case a.kind == kindBool || a.kind == kindComplex:
		return false, errNotComparable
	}
	return a.i < b.i || a.u < b.u || a.f < b.f || a.s < b.s, nil
}

func (o operand) lessOrEqual(other operand) (bool, error) {
	less, err := o.less(other)
	if less || err != nil {
		return less, err
	}
	return o.equals(other)
}

// isEqualToAny implements eq: it reports whether the first argument equals one of the others.
func isEqualToAny(args []any) (any, error) {
	if err := CheckArgCount(args, 2, -1); err != nil {
		return nil, err
	}
	first := newOperand(args[0])
	for _, arg := range args[1:] {
		if equal, err := first.equals(newOperand(arg)); equal || err != nil {
			return equal, err
		}
	}
	return false, nil
}

func newComparison(compare func(a, b operand) (bool, error)) function {
	return function{call: func(args []any) (any, error) {
		if err := CheckArgCount(args, 2, 2); err != nil {
			return nil, err
		}
		return compare(newOperand(args[0]), newOperand(args[1]))
	}}
}
