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

func newErrorAt(column int, format string, args ...any) error {
	return &Error{Column: column, Message: fmt.Sprintf(format, args...)}
}

// ParseQuery parses a query. A query of blanks selects everything and gives nil. Every error is an
// *Error.
func ParseQuery(query string) (Expr, error) {
	if n := utf8.RuneCountInString(query); n > MaxLength {
		return nil, newErrorAt(MaxLength+1, "a query can have at most %d characters; this one has %d", MaxLength, n)
	}
	for i, r := range query {
		if r == 0 || r == utf8.RuneError {
			return nil, newErrorAt(utf8.RuneCountInString(query[:i])+1, "invalid character")
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
	x, err := p.parseOrExpr(0)
	if err != nil {
		return nil, err
	}
	if t := p.peekToken(); t.kind != end {
		return nil, newErrorAt(t.column, "expected and, or, or the end of the query, found %s", t)
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

func (p *parser) acceptToken(keywordOrSymbol string) (accepted bool) {
	if p.peekToken().isKeywordOrSymbol(keywordOrSymbol) {
		p.nextToken()
		return true
	}
	return false
}

func (p *parser) expectToken(keywordOrSymbol string) error {
	if t := p.peekToken(); !p.acceptToken(keywordOrSymbol) {
		return newErrorAt(t.column, "expected %q, found %s", keywordOrSymbol, t)
	}
	return nil
}

func (p *parser) parseOrExpr(depth int) (Expr, error) {
	x, err := p.parseAndExpr(depth)
	for err == nil && p.acceptToken("or") {
		var right Expr
		right, err = p.parseAndExpr(depth)
		x = Or{x, right}
	}
	return x, err
}

func (p *parser) parseAndExpr(depth int) (Expr, error) {
	x, err := p.parseNotExpr(depth)
	for err == nil && p.acceptToken("and") {
		var right Expr
		right, err = p.parseNotExpr(depth)
		x = And{x, right}
	}
	return x, err
}

func (p *parser) parseNotExpr(depth int) (Expr, error) {
	t := p.peekToken()
	if depth > MaxDepth {
		return nil, newErrorAt(t.column, "nested deeper than %d", MaxDepth)
	}
	switch {
	case p.acceptToken("not"):
		x, err := p.parseNotExpr(depth + 1)
		return Not{x}, err
	case p.acceptToken("("):
		x, err := p.parseOrExpr(depth + 1)
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
	if negated := t.isKeywordOrSymbol("not"); negated {
		t = p.nextToken()
		x, ok, err := p.parseInLikeOrBetween(c, t)
		if err == nil && !ok {
			err = newErrorAt(t.column, "expected in, like or between after not, found %s", t)
		}
		return Not{x}, err
	}
	if x, ok, err := p.parseInLikeOrBetween(c, t); ok || err != nil {
		return x, err
	}
	op, negated, ok := parseComparisonOperator(t)
	if !ok {
		return nil, newErrorAt(t.column, "expected a comparison (=, !=, <, <=, >, >=, in, like, between or is null), found %s", t)
	}
	v, err := p.parseLiteral(c)
	return negateIf(negated, Compare{Column: c, Op: op, Value: v}), err
}

// parseInLikeOrBetween parses the rest of in, like and between, if t is one of them.
func (p *parser) parseInLikeOrBetween(column Column, operator token) (x Expr, isSetOperator bool, err error) {
	switch {
	case operator.isKeywordOrSymbol("in"):
		values, err := p.parseLiteralList(column)
		return In{Column: column, Values: values}, true, err
	case operator.isKeywordOrSymbol("like"):
		pattern, err := p.parseLikePattern(column)
		return Like{Column: column, Pattern: pattern}, true, err
	case operator.isKeywordOrSymbol("between"):
		low, err := p.parseLiteral(column)
		if err != nil {
			return nil, true, err
		}
		if err := p.expectToken("and"); err != nil {
			return nil, true, err
		}
		high, err := p.parseLiteral(column)
		return And{Compare{column, GreaterOrEqual, low}, Compare{column, LessOrEqual, high}}, true, err
	}
	return nil, false, nil
}

func negateIf(negated bool, expr Expr) Expr {
	if negated {
		return Not{expr}
	}
	return expr
}

func parseComparisonOperator(t token) (op Op, negated, ok bool) {
	switch {
	case t.isKeywordOrSymbol("="):
		return Equal, false, true
	case t.isKeywordOrSymbol("!="), t.isKeywordOrSymbol("<>"):
		return Equal, true, true
	case t.isKeywordOrSymbol("<"):
		return Less, false, true
	case t.isKeywordOrSymbol("<="):
		return LessOrEqual, false, true
	case t.isKeywordOrSymbol(">"):
		return Greater, false, true
	case t.isKeywordOrSymbol(">="):
		return GreaterOrEqual, false, true
	}
	return 0, false, false
}

func (p *parser) parseLiteralList(column Column) ([]Value, error) {
	closing := "]"
	switch t := p.nextToken(); {
	case t.isKeywordOrSymbol("["):
	case t.isKeywordOrSymbol("("):
		closing = ")"
	default:
		return nil, newErrorAt(t.column, `expected "[" or "(", found %s`, t)
	}
	var values []Value
	for {
		v, err := p.parseLiteral(column)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
		if t := p.nextToken(); t.isKeywordOrSymbol(closing) {
			return values, nil
		} else if !t.isKeywordOrSymbol(",") {
			return nil, newErrorAt(t.column, "expected \",\" or %q, found %s", closing, t)
		}
	}
}

func (p *parser) parseLikePattern(column Column) (string, error) {
	t := p.nextToken()
	if column.Field.ValueType() != Text {
		return "", newErrorAt(t.column, "like is not supported for %s; compare it with a value", column)
	}
	if t.kind != text {
		return "", newErrorAt(t.column, "expected a pattern in quotes, found %s", t)
	}
	if slashes := len(t.value) - len(strings.TrimRight(t.value, `\`)); slashes%2 == 1 {
		return "", newErrorAt(t.column, `the pattern ends in a backslash; to match a backslash, write \\`)
	}
	return t.value, nil
}

func (p *parser) parseLiteral(column Column) (Value, error) {
	t := p.nextToken()
	switch column.Field.ValueType() {
	case Integer:
		return parseIntegerLiteral(column, t)
	case Time:
		return parseTimeLiteral(column, t)
	case Text, Number, Absent:
	}
	if column.Field == Spec {
		return parseSpecLiteral(column, t)
	}
	if t.kind != text {
		return Value{}, newErrorAt(t.column, "%s must be compared with a quoted string, found %s", column, t)
	}
	switch column.Field { //nolint:exhaustive // the other texts take any value
	case ID, OwnerID:
		if id, err := uuid.Parse(t.value); err == nil && len(t.value) == len(id.String()) {
			return Value{Type: Text, Text: id.String()}, nil
		}
	case ConditionStatus:
		if t.value != "True" && t.value != "False" && t.value != "Unknown" {
			return Value{}, newErrorAt(t.column, "a condition status is 'True', 'False' or 'Unknown', not %s", t)
		}
	}
	return Value{Type: Text, Text: t.value}, nil
}

// parseSpecLiteral parses a value of the spec, which may be of any type.
func parseSpecLiteral(column Column, t token) (Value, error) {
	switch {
	case t.kind == text:
		return Value{Type: Text, Text: t.value}, nil
	case t.kind == integer, t.kind == decimal:
		return Value{Type: Number, Text: t.value}, nil
	case t.isKeywordOrSymbol("true"), t.isKeywordOrSymbol("false"):
		return Value{Type: Text, Text: strings.ToLower(t.value)}, nil
	}
	return Value{}, newErrorAt(t.column, "%s must be compared with a quoted string, a number, true or false, found %s", column, t)
}

func parseIntegerLiteral(column Column, t token) (Value, error) {
	if t.kind != integer {
		return Value{}, newErrorAt(t.column, "%s must be compared with an integer, found %s", column, t)
	}
	n, err := strconv.ParseInt(t.value, 10, 64)
	if err != nil {
		return Value{}, newErrorAt(t.column, "%s does not fit into 64 bits", t.value)
	}
	return Value{Type: Integer, Int: n}, nil
}

func parseTimeLiteral(column Column, t token) (Value, error) {
	if t.kind == text {
		for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
			if at, err := time.Parse(layout, t.value); err == nil {
				return Value{Type: Time, Time: at.UTC()}, nil
			}
		}
	}
	return Value{}, newErrorAt(t.column, "%s must be compared with a time such as '2026-01-31T12:00:00Z', found %s", column, t)
}
