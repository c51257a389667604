package search

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	end tokenKind = iota
	word
	text
	integer
	decimal
	symbol
)

// A token is a lexical element of the query. Its value is the decoded one: a text without its
// quotes, a keyword in lower case where the parser requires one.
type token struct {
	kind   tokenKind
	value  string
	column int // counted in characters from 1
}

// String returns the token in the form of error messages.
func (t token) String() string {
	switch t.kind {
	case end:
		return "the end"
	case text:
		return "'" + strings.ReplaceAll(t.value, "'", "''") + "'"
	case word, integer, decimal, symbol:
	}
	return fmt.Sprintf("%q", t.value)
}

func (t token) isKeywordOrSymbol(text string) bool {
	return t.kind == symbol && t.value == text || t.kind == word && strings.EqualFold(t.value, text)
}

// tokenize splits the query into tokens; the last one is the end.
func tokenize(query string) ([]token, error) {
	var tokens []token
	column := 1
	for query != "" {
		c := query[0]
		if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
			query, column = query[1:], column+1
			continue
		}
		t := token{column: column}
		var n int // length in bytes
		var err error
		switch {
		case c == '\'' || c == '"':
			t.kind = text
			t.value, n, err = parseQuotedText(query, column)
		case isDigit(c) || c == '-' && len(query) > 1 && isDigit(query[1]):
			t.kind, n = integer, 1+prefixLength(query[1:], isDigit)
			if fraction := query[n:]; len(fraction) > 1 && fraction[0] == '.' && isDigit(fraction[1]) {
				t.kind, n = decimal, n+1+prefixLength(fraction[1:], isDigit)
			}
			t.value = query[:n]
		case isLetter(c):
			t.kind, n = word, prefixLength(query, isWordByte)
			t.value = query[:n]
		default:
			t.kind = symbol
			t.value, err = parseSymbol(query, column)
			n = len(t.value)
		}
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
		column += utf8.RuneCountInString(query[:n])
		query = query[n:]
	}
	return append(tokens, token{kind: end, column: column}), nil
}

// parseQuotedText parses a quoted text and returns its value and its length in the query.
func parseQuotedText(query string, column int) (value string, length int, err error) {
	quote := query[:1]
	var b strings.Builder
	for i := 1; ; {
		j := strings.Index(query[i:], quote)
		if j < 0 {
			return "", 0, newErrorAt(column, "unterminated string: the closing %s is missing", quote)
		}
		b.WriteString(query[i : i+j])
		i += j + 1
		if !strings.HasPrefix(query[i:], quote) {
			return b.String(), i, nil
		}
		b.WriteString(quote)
		i++
	}
}

func parseSymbol(query string, column int) (symbol string, err error) {
	for _, s := range []string{"!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", "[", "]", ","} {
		if strings.HasPrefix(query, s) {
			return s, nil
		}
	}
	r, _ := utf8.DecodeRuneInString(query)
	return "", newErrorAt(column, "unexpected %q; put strings in single quotes", r)
}

func prefixLength(s string, accepts func(byte) bool) int {
	for i := range len(s) {
		if !accepts(s[i]) {
			return i
		}
	}
	return len(s)
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// isWordByte reports whether c may be part of an unquoted word. Words include the characters of label
// keys, because the language has no arithmetic in which a hyphen or a slash would be an operator.
func isWordByte(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '/'
}
