package search

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Bounds of a query.
const (
	// MaxLength is the number of characters.
	MaxLength = 4096
	// MaxDepth is how deep parentheses and negations nest.
	MaxDepth = 32
	// MaxSpecColumns is how often a query may name a column of the spec. Each
	// is read from the text of every row that the rest of the query leaves.
	MaxSpecColumns = 8
)

// An Error says what is wrong with a query, and where.
type Error struct {
	// Column counts characters from 1.
	Column  int
	Message string
}

// Error names the column and what was expected there.
func (e *Error) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Message) }

func errorAt(column int, format string, args ...any) error {
	return &Error{Column: column, Message: fmt.Sprintf(format, args...)}
}

// Parse reads a query. One that holds nothing but blanks selects everything
// and is nil. Every error is an *Error.
func Parse(query string) (Expr, error) {
	if n := utf8.RuneCountInString(query); n > MaxLength {
		return nil, errorAt(MaxLength+1, "a query can have at most %d characters; this one has %d", MaxLength, n)
	}
	for i, r := range query {
		if r == 0 || r == utf8.RuneError {
			return nil, errorAt(utf8.RuneCountInString(query[:i])+1, "invalid character")
		}
	}
	tokens, err := lex(query)
	if err != nil {
		return nil, err
	}
	if tokens[0].kind == end {
		return nil, nil
	}
	p := parser{tokens: tokens}
	x, err := p.or(0)
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != end {
		return nil, errorAt(t.column, "expected and, or, or the end of the query, found %s", t)
	}
	return x, nil
}

type parser struct {
	tokens      []token
	specColumns int
}

func (p *parser) peek() token { return p.tokens[0] }

func (p *parser) next() token {
	t := p.tokens[0]
	if t.kind != end {
		p.tokens = p.tokens[1:]
	}
	return t
}

// take consumes the next token if it is s.
func (p *parser) take(s string) bool {
	if p.peek().is(s) {
		p.next()
		return true
	}
	return false
}

func (p *parser) want(s string) error {
	if t := p.peek(); !p.take(s) {
		return errorAt(t.column, "expected %q, found %s", s, t)
	}
	return nil
}

func (p *parser) or(depth int) (Expr, error) {
	x, err := p.and(depth)
	for err == nil && p.take("or") {
		var right Expr
		right, err = p.and(depth)
		x = Or{x, right}
	}
	return x, err
}

func (p *parser) and(depth int) (Expr, error) {
	x, err := p.not(depth)
	for err == nil && p.take("and") {
		var right Expr
		right, err = p.not(depth)
		x = And{x, right}
	}
	return x, err
}

func (p *parser) not(depth int) (Expr, error) {
	t := p.peek()
	if depth > MaxDepth {
		return nil, errorAt(t.column, "nested deeper than %d", MaxDepth)
	}
	switch {
	case p.take("not"):
		x, err := p.not(depth + 1)
		return Not{x}, err
	case p.take("("):
		x, err := p.or(depth + 1)
		if err != nil {
			return nil, err
		}
		return x, p.want(")")
	}
	return p.comparison()
}

func (p *parser) comparison() (Expr, error) {
	c, err := p.column()
	if err != nil {
		return nil, err
	}
	if p.take("is") {
		negated := p.take("not")
		return negate(!negated, Present{c}), p.want("null")
	}
	t := p.next()
	if negated := t.is("not"); negated {
		t = p.next()
		x, ok, err := p.set(c, t)
		if err == nil && !ok {
			err = errorAt(t.column, "expected in, like or between after not, found %s", t)
		}
		return Not{x}, err
	}
	if x, ok, err := p.set(c, t); ok || err != nil {
		return x, err
	}
	op, negated, ok := operator(t)
	if !ok {
		return nil, errorAt(t.column, "expected a comparison (=, !=, <, <=, >, >=, in, like, between or is null), found %s", t)
	}
	v, err := p.literal(c)
	return negate(negated, Compare{Column: c, Op: op, Value: v}), err
}

// set reads the rest of in, like and between, which t may be.
func (p *parser) set(c Column, t token) (Expr, bool, error) {
	switch {
	case t.is("in"):
		values, err := p.list(c)
		return In{Column: c, Values: values}, true, err
	case t.is("like"):
		pattern, err := p.pattern(c)
		return Like{Column: c, Pattern: pattern}, true, err
	case t.is("between"):
		low, err := p.literal(c)
		if err != nil {
			return nil, true, err
		}
		if err := p.want("and"); err != nil {
			return nil, true, err
		}
		high, err := p.literal(c)
		return And{Compare{c, GreaterOrEqual, low}, Compare{c, LessOrEqual, high}}, true, err
	}
	return nil, false, nil
}

func negate(negated bool, x Expr) Expr {
	if negated {
		return Not{x}
	}
	return x
}

func operator(t token) (op Op, negated, ok bool) {
	switch {
	case t.is("="):
		return Equal, false, true
	case t.is("!="), t.is("<>"):
		return Equal, true, true
	case t.is("<"):
		return Less, false, true
	case t.is("<="):
		return LessOrEqual, false, true
	case t.is(">"):
		return Greater, false, true
	case t.is(">="):
		return GreaterOrEqual, false, true
	}
	return 0, false, false
}

func (p *parser) list(c Column) ([]Value, error) {
	closing := "]"
	switch t := p.next(); {
	case t.is("["):
	case t.is("("):
		closing = ")"
	default:
		return nil, errorAt(t.column, `expected "[" or "(", found %s`, t)
	}
	var values []Value
	for {
		v, err := p.literal(c)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
		if t := p.next(); t.is(closing) {
			return values, nil
		} else if !t.is(",") {
			return nil, errorAt(t.column, "expected \",\" or %q, found %s", closing, t)
		}
	}
}

func (p *parser) pattern(c Column) (string, error) {
	t := p.next()
	if c.Field.Type() != Text {
		return "", errorAt(t.column, "like is not supported for %s; compare it with a value", c)
	}
	if t.kind != text {
		return "", errorAt(t.column, "expected a pattern in quotes, found %s", t)
	}
	if slashes := len(t.value) - len(strings.TrimRight(t.value, `\`)); slashes%2 == 1 {
		return "", errorAt(t.column, `the pattern ends in a backslash; to match a backslash, write \\`)
	}
	return t.value, nil
}

// literal reads a value for c.
func (p *parser) literal(c Column) (Value, error) {
	t := p.next()
	switch c.Field.Type() {
	case Integer:
		return integerOf(c, t)
	case Time:
		return timeOf(c, t)
	case Text, Number, Absent:
	}
	if c.Field == Spec {
		return specValue(c, t)
	}
	if t.kind != text {
		return Value{}, errorAt(t.column, "%s must be compared with a quoted string, found %s", c, t)
	}
	switch c.Field { //nolint:exhaustive // the other texts take any value
	case ID, OwnerID:
		if id, err := uuid.Parse(t.value); err == nil && len(t.value) == len(id.String()) {
			return Value{Type: Text, Text: id.String()}, nil
		}
	case ConditionStatus:
		if t.value != "True" && t.value != "False" && t.value != "Unknown" {
			return Value{}, errorAt(t.column, "a condition status is 'True', 'False' or 'Unknown', not %s", t)
		}
	}
	return Value{Type: Text, Text: t.value}, nil
}

// specValue reads a value of the spec, which may be of any type.
func specValue(c Column, t token) (Value, error) {
	switch {
	case t.kind == text:
		return Value{Type: Text, Text: t.value}, nil
	case t.kind == integer, t.kind == decimal:
		return Value{Type: Number, Text: t.value}, nil
	case t.is("true"), t.is("false"):
		return Value{Type: Text, Text: strings.ToLower(t.value)}, nil
	}
	return Value{}, errorAt(t.column, "%s must be compared with a quoted string, a number, true or false, found %s", c, t)
}

func integerOf(c Column, t token) (Value, error) {
	if t.kind != integer {
		return Value{}, errorAt(t.column, "%s must be compared with an integer, found %s", c, t)
	}
	n, err := strconv.ParseInt(t.value, 10, 64)
	if err != nil {
		return Value{}, errorAt(t.column, "%s does not fit into 64 bits", t.value)
	}
	return Value{Type: Integer, Int: n}, nil
}

func timeOf(c Column, t token) (Value, error) {
	if t.kind == text {
		for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
			if at, err := time.Parse(layout, t.value); err == nil {
				return Value{Type: Time, Time: at.UTC()}, nil
			}
		}
	}
	return Value{}, errorAt(t.column, "%s must be compared with a time such as '2026-01-31T12:00:00Z', found %s", c, t)
}
