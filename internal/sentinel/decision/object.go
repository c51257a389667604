package decision

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A Float is a number that is not an int64. It prints without an exponent.
type Float float64

// String returns the number in plain digits.
func (f Float) String() string { return strconv.FormatFloat(float64(f), 'f', -1, 64) }

// Digits is a number that neither int64 nor float64 can hold, as it was written.
type Digits string

// ParseObject parses a complete resource, for templates and expressions that use fields unknown to
// the sentinel. Values are nil, bool, string, int64, Float, Digits, []any and map[string]any. If
// onlyNames is not nil, ParseObject parses just the values under these names and omits the others.
//
// Numbers keep their digits: one that fits is an int64, any other is a Float or, where that would
// lose digits, a Digits. If an object has a duplicate name, the last value counts, as in the rest
// of the sentinel. Invalid Unicode in a text becomes U+FFFD.
func ParseObject(raw []byte, onlyNames map[string]bool) (map[string]any, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	p := objectParser{dec: dec}
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, fmt.Errorf("parse resource: %w", err)
	}
	if tok.Kind() != '{' {
		return nil, errors.New("parse resource: not a JSON object")
	}
	object, err := p.parseObjectFields(onlyNames)
	if err != nil {
		return nil, fmt.Errorf("parse resource: %w", err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("parse resource: trailing data after the JSON object")
	}
	return object, nil
}

type objectParser struct{ dec *jsontext.Decoder }

func (p objectParser) parseValue() (any, error) {
	tok, err := p.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	kind := tok.Kind()
	if kind == '{' {
		return p.parseObjectFields(nil)
	}
	if kind == '[' {
		return p.parseArrayElements()
	}
	return convertScalar(tok), nil
}

func convertScalar(tok jsontext.Token) any {
	kind := tok.Kind()
	if kind == '"' {
		return tok.String()
	}
	if kind == '0' {
		return parseNumber(tok.String())
	}
	if kind == 'n' {
		return nil
	}
	return tok.Bool()
}

func (p objectParser) parseObjectFields(onlyNames map[string]bool) (map[string]any, error) {
	m := map[string]any{}
	for {
		name, err := p.dec.ReadToken()
		if err != nil {
			return nil, err
		}
		if name.Kind() == '}' {
			return m, nil
		}
		key := name.String() // before the next read, which reuses the token
		if onlyNames != nil && !onlyNames[key] {
			if _, err := p.dec.ReadValue(); err != nil { // cheaper than SkipValue
				return nil, err
			}
			continue
		}
		if m[key], err = p.parseValue(); err != nil {
			return nil, err
		}
	}
}

func (p objectParser) parseArrayElements() (any, error) {
	list := []any{}
	for p.dec.PeekKind() != ']' {
		v, err := p.parseValue()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := p.dec.ReadToken()
	return list, err
}

// parseNumber returns the value of a JSON number, in the first of the types that keeps its digits.
func parseNumber(text string) (int64FloatOrDigits any) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Digits(text)
	}
	// Below 2^53 a float64 holds every integer exactly.
	isExact := math.Abs(f) < 1<<53
	if isExact && f == math.Trunc(f) {
		return int64(f) // 2.0 and 1e3 are whole
	}
	hasExponent := strings.ContainsAny(text, "eE")
	if !isExact && !hasExponent && Float(f).String() != text {
		return Digits(text)
	}
	return Float(f)
}

// AppendJSON appends a value of ParseObject to dst, as JSON with sorted object keys.
func AppendJSON(dst []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		dst, _ = jsontext.AppendQuote(dst, v) // bytes that are not UTF-8 become U+FFFD
		return dst
	case map[string]any:
		return appendObjectJSON(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendJSON(dst, e)
		}
		return append(dst, ']')
	case nil:
		return append(dst, "null"...)
	}
	return fmt.Append(dst, v) // numbers and bool print as they are in JSON
}

func appendObjectJSON(dst []byte, m map[string]any) []byte {
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendJSON(dst, name), ':')
		dst = AppendJSON(dst, m[name])
	}
	return append(dst, '}')
}
