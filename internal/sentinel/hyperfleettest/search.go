package hyperfleettest

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A truth is the result of a condition in SQL: null is neither true nor false.
type truth int

const (
	isFalse truth = iota
	isNull
	isTrue
)

func truthOf(b bool) truth {
	if b {
		return isTrue
	}
	return isFalse
}

type predicate func(s *Server, r *resource) truth

const maxSearch = 4096

// parseSearch parses the search language: comparisons, in, like and is null, joined by and, or, not
// and brackets. It returns nil for the empty text.
func parseSearch(text string) (predicate, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxSearch {
		return nil, fmt.Errorf("it is longer than %d characters", maxSearch)
	}
	p := &parser{}
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		token := lexeme().FindString(text)
		if token == "" {
			return nil, fmt.Errorf("unexpected %q", text[:1])
		}
		p.tokens = append(p.tokens, token)
		text = text[len(token):]
	}
	found, err := p.parseOr()
	if err == nil && len(p.tokens) > 0 {
		err = fmt.Errorf("unexpected %q", p.tokens[0])
	}
	return found, err
}

// lexeme matches one token. A name has no hyphen, and no slash.
func lexeme() *regexp.Regexp {
	return regexp.MustCompile(`^('([^']|'')*'|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*|[0-9]+(\.[0-9]+)?|!=|<=|>=|[=<>()\[\],])`)
}

type parser struct{ tokens []string }

func (p *parser) peekToken() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser) takeToken() string {
	t := p.peekToken()
	if t != "" {
		p.tokens = p.tokens[1:]
	}
	return t
}

// acceptWord consumes the next token if it is a word of the language.
func (p *parser) acceptWord(word string) (accepted bool) {
	if !strings.EqualFold(p.peekToken(), word) {
		return false
	}
	p.takeToken()
	return true
}

func (p *parser) expectToken(token string) error {
	if got := p.takeToken(); got != token {
		return fmt.Errorf("unexpected %q, want %q", got, token)
	}
	return nil
}

func (p *parser) parseOr() (predicate, error) {
	a, err := p.parseAnd()
	for err == nil && p.acceptWord("or") {
		var b predicate
		left := a
		b, err = p.parseAnd()
		a = func(s *Server, r *resource) truth { return max(left(s, r), b(s, r)) }
	}
	return a, err
}

func (p *parser) parseAnd() (predicate, error) {
	a, err := p.parseNot()
	for err == nil && p.acceptWord("and") {
		var b predicate
		left := a
		b, err = p.parseNot()
		a = func(s *Server, r *resource) truth { return min(left(s, r), b(s, r)) }
	}
	return a, err
}

func (p *parser) parseNot() (predicate, error) {
	if p.acceptWord("not") {
		for _, t := range p.tokens {
			if strings.HasPrefix(t, "labels.") || strings.HasPrefix(t, "status.conditions.") {
				return nil, errors.New("not is not supported on labels and conditions")
			}
		}
		a, err := p.parseNot()
		return func(s *Server, r *resource) truth { return isTrue - a(s, r) }, err
	}
	if p.acceptWord("(") {
		a, err := p.parseOr()
		if err == nil {
			err = p.expectToken(")")
		}
		return a, err
	}
	return p.parseComparison()
}

func (p *parser) parseComparison() (predicate, error) {
	path := p.takeToken()
	if _, _, known := (&Server{}).getColumnValue(&resource{}, path); !known {
		return nil, fmt.Errorf("%q is not a field", path)
	}
	switch op := strings.ToLower(p.takeToken()); op {
	case "is":
		wantNull := !p.acceptWord("not")
		return func(s *Server, r *resource) truth {
			_, null, _ := s.getColumnValue(r, path)
			return truthOf(null == wantNull)
		}, p.expectToken("null")
	case "in":
		return p.parseIn(path)
	case "like":
		pattern, err := parseLiteral(p.takeToken())
		if err != nil {
			return nil, err
		}
		text := strings.NewReplacer("%", ".*", "_", ".").Replace(regexp.QuoteMeta(fmt.Sprint(pattern)))
		match := regexp.MustCompile("^" + text + "$")
		return newColumnPredicate(path, func(v any) bool { return match.MatchString(fmt.Sprint(v)) }), nil
	case "=", "!=", "<", "<=", ">", ">=":
		want, err := parseLiteral(p.takeToken())
		if err != nil {
			return nil, err
		}
		return newColumnPredicate(path, func(v any) bool { return comparisonHolds(op, compareValues(v, want)) }), nil
	default:
		return nil, fmt.Errorf("unexpected %q behind %q", op, path)
	}
}

func (p *parser) parseIn(path string) (predicate, error) {
	if err := p.expectToken("["); err != nil {
		return nil, err
	}
	var wants []any
	for {
		want, err := parseLiteral(p.takeToken())
		if err != nil {
			return nil, err
		}
		wants = append(wants, want)
		if p.acceptWord("]") {
			break
		}
		if err := p.expectToken(","); err != nil {
			return nil, err
		}
	}
	return newColumnPredicate(path, func(v any) bool {
		for _, want := range wants {
			if compareValues(v, want) == 0 {
				return true
			}
		}
		return false
	}), nil
}

// newColumnPredicate returns a predicate for a column; null is neither true nor false.
func newColumnPredicate(path string, matches func(any) bool) predicate {
	return func(s *Server, r *resource) truth {
		v, null, _ := s.getColumnValue(r, path)
		if null {
			return isNull
		}
		return truthOf(matches(v))
	}
}

func parseLiteral(token string) (stringOrFloat any, err error) {
	if strings.HasPrefix(token, "'") {
		return strings.ReplaceAll(token[1:len(token)-1], "''", "'"), nil
	}
	n, err := strconv.ParseFloat(token, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not a value", token)
	}
	return n, nil
}

func compareValues(v, want any) int {
	switch v := v.(type) {
	case time.Time:
		at, err := time.Parse(time.RFC3339, fmt.Sprint(want))
		if err != nil {
			return -1
		}
		return v.Compare(at)
	case float64:
		n, err := strconv.ParseFloat(fmt.Sprint(want), 64)
		if err != nil {
			return -1
		}
		return cmp.Compare(v, n)
	}
	return strings.Compare(fmt.Sprint(v), fmt.Sprint(want))
}

func comparisonHolds(op string, comparison int) bool {
	switch op {
	case "=":
		return comparison == 0
	case "!=":
		return comparison != 0
	case "<":
		return comparison < 0
	case "<=":
		return comparison <= 0
	case ">":
		return comparison > 0
	}
	return comparison >= 0
}
