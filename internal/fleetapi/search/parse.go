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
	// MaxLength is the maximum length in characters.
	MaxLength = 4096
	// MaxDepth is the maximum nesting depth of parentheses and negations.
	MaxDepth = 32
	// MaxSpecColumns limits the spec columns in a query. Each is read from the text of every row
	// that passes the rest of the query.
	MaxSpecColumns = 8
)

// An Error is a syntax or type error at a place in the query.
type Error struct {
	// Column counts characters from 1.
	Column  int
	Message string
}

// Error returns the message with its column.
func (e *Error) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Message) }

func errorAt(column int, format string, args ...any) error {
	return &Error{Column: column, Message: fmt.Sprintf(format, args...)}
}

// Parse parses a query. A query of blanks selects everything and gives nil. Every error is an
// *Error.
func Parse(query string) (Expr, error) {
	if n := utf8.RuneCountInString(query); n > MaxLength {
		return nil, errorAt(MaxLength+1, "a query can have at most %d characters; this one has %d", MaxLength, n)
	}
	for i, r := range query {
		if r == 0 || r == utf8.RuneError {
			return nil, errorAt(utf8.RuneCountInString(query[:i])+1, "invalid character")
		}
	}
	tokens, err := tokenize(query)
	if err != nil {
		return nil, err
	}
	if tokens[0].kind == end {
		return nil, nil
	}
	p := parser{tokens: tokens}
	x, err := p.parseOr(0)
	if err != nil {
		return nil, err
	}
	if t := p.peekToken(); t.kind != end {
		return nil, errorAt(t.column, "expected and, or, or the end of the query, found %s", t)
	}
	return x, nil
}

type parser struct {
	tokens      []token
	specColumns int
}

func (p *parser) peekToken() token { return p.tokens[0] }

func (p *parser) nextToken() token {
	t := p.tokens[0]
	if t.kind != end {
		p.tokens = p.tokens[1:]
	}
	return t
}

// acceptToken consumes the next token if it is s.
func (p *parser) acceptToken(s string) bool {
	if p.peekToken().matches(s) {
		p.nextToken()
		return true
	}
	return false
}

func (p *parser) expectToken(s string) error {
	if t := p.peekToken(); !p.acceptToken(s) {
		return errorAt(t.column, "expected %q, found %s", s, t)
	}
	return nil
}

func (p *parser) parseOr(depth int) (Expr, error) {
	x, err := p.parseAnd(depth)
	for err == nil && p.acceptToken("or") {
		var right Expr
		right, err = p.parseAnd(depth)
		x = Or{x, right}
	}
	return x, err
}

func (p *parser) parseAnd(depth int) (Expr, error) {
	x, err := p.parseNot(depth)
	for err == nil && p.acceptToken("and") {
		var right Expr
		right, err = p.parseNot(depth)
		x = And{x, right}
	}
	return x, err
}

func (p *parser) parseNot(depth int) (Expr, error) {
	t := p.peekToken()
	if depth > MaxDepth {
		return nil, errorAt(t.column, "nested deeper than %d", MaxDepth)
	}
	switch {
	case p.acceptToken("not"):
		x, err := p.parseNot(depth + 1)
		return Not{x}, err
	case p.acceptToken("("):
		x, err := p.parseOr(depth + 1)
		if err != nil {
			return nil, err
		}
		return x, p.expectToken(")")
	}
	return p.parseComparison()
}

func (p *parser) parseComparison() (Expr, error) {
	c, err := p.parseColumn()
	if err != nil {
		return nil, err
	}
	if p.acceptToken("is") {
		negated := p.acceptToken("not")
		return negateIf(!negated, Present{c}), p.expectToken("null")
	}
	t := p.nextToken()
	if negated := t.matches("not"); negated {
		t = p.nextToken()
		x, ok, err := p.parseSetOperator(c, t)
		if err == nil && !ok {
			err = errorAt(t.column, "expected in, like or between after not, found %s", t)
		}
		return Not{x}, err
	}
	if x, ok, err := p.parseSetOperator(c, t); ok || err != nil {
		return x, err
	}
	op, negated, ok := comparisonOperator(t)
	if !ok {
		return nil, errorAt(t.column, "expected a comparison (=, !=, <, <=, >, >=, in, like, between or is null), found %s", t)
	}
	v, err := p.parseLiteral(c)
	return negateIf(negated, Compare{Column: c, Op: op, Value: v}), err
}

// parseSetOperator parses the rest of in, like and between, if t is one of them.
func (p *parser) parseSetOperator(c Column, t token) (x Expr, isSetOperator bool, err error) {
	switch {
	case t.matches("in"):
		values, err := p.parseList(c)
		return In{Column: c, Values: values}, true, err
	case t.matches("like"):
		pattern, err := p.parsePattern(c)
		return Like{Column: c, Pattern: pattern}, true, err
	case t.matches("between"):
		low, err := p.parseLiteral(c)
		if err != nil {
			return nil, true, err
		}
		if err := p.expectToken("and"); err != nil {
			return nil, true, err
		}
		high, err := p.parseLiteral(c)
		return And{Compare{c, GreaterOrEqual, low}, Compare{c, LessOrEqual, high}}, true, err
	}
	return nil, false, nil
}

func negateIf(negated bool, x Expr) Expr {
	if negated {
		return Not{x}
	}
	return x
}

func comparisonOperator(t token) (op Op, negated, ok bool) {
	switch {
	case t.matches("="):
		return Equal, false, true
	case t.matches("!="), t.matches("<>"):
		return Equal, true, true
	case t.matches("<"):
		return Less, false, true
	case t.matches("<="):
		return LessOrEqual, false, true
	case t.matches(">"):
		return Greater, false, true
	case t.matches(">="):
		return GreaterOrEqual, false, true
	}
	return 0, false, false
}

func (p *parser) parseList(c Column) ([]Value, error) {
	closing := "]"
	switch t := p.nextToken(); {
	case t.matches("["):
	case t.matches("("):
		closing = ")"
	default:
		return nil, errorAt(t.column, `expected "[" or "(", found %s`, t)
	}
	var values []Value
	for {
		v, err := p.parseLiteral(c)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
		if t := p.nextToken(); t.matches(closing) {
			return values, nil
		} else if !t.matches(",") {
			return nil, errorAt(t.column, "expected \",\" or %q, found %s", closing, t)
		}
	}
}

func (p *parser) parsePattern(c Column) (string, error) {
	t := p.nextToken()
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

// parseLiteral parses a literal for c.
func (p *parser) parseLiteral(c Column) (Value, error) {
	t := p.nextToken()
	switch c.Field.Type() {
	case Integer:
		return parseInteger(c, t)
	case Time:
		return parseTime(c, t)
	case Text, Number, Absent:
	}
	if c.Field == Spec {
		return parseSpecValue(c, t)
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

// parseSpecValue parses a value of the spec, which may be of any type.
func parseSpecValue(c Column, t token) (Value, error) {
	switch {
	case t.kind == text:
		return Value{Type: Text, Text: t.value}, nil
	case t.kind == integer, t.kind == decimal:
		return Value{Type: Number, Text: t.value}, nil
	case t.matches("true"), t.matches("false"):
		return Value{Type: Text, Text: strings.ToLower(t.value)}, nil
	}
	return Value{}, errorAt(t.column, "%s must be compared with a quoted string, a number, true or false, found %s", c, t)
}

func parseInteger(c Column, t token) (Value, error) {
	if t.kind != integer {
		return Value{}, errorAt(t.column, "%s must be compared with an integer, found %s", c, t)
	}
	n, err := strconv.ParseInt(t.value, 10, 64)
	if err != nil {
		return Value{}, errorAt(t.column, "%s does not fit into 64 bits", t.value)
	}
	return Value{Type: Integer, Int: n}, nil
}

func parseTime(c Column, t token) (Value, error) {
	if t.kind == text {
		for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
			if at, err := time.Parse(layout, t.value); err == nil {
				return Value{Type: Time, Time: at.UTC()}, nil
			}
		}
	}
	return Value{}, errorAt(t.column, "%s must be compared with a time such as '2026-01-31T12:00:00Z', found %s", c, t)
}
