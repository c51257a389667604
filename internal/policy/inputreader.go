package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// maxInputBytes is the maximum length of an input. Requests to the API server may be longer.
const maxInputBytes = 1 << 20

const (
	maxInputDepth    = 128
	maxInputExponent = 308
)

// Read parses an input and checks it against s. It reads the text once, because an input is checked
// and converted at every decision. The check is necessary, because a rule that denies by a field is
// silent if the field is missing or has another type. The parts in unseen, if it is not nil, are
// only checked to be JSON and left empty.
func (s *inputShape) Read(input []byte, unseen *inputShape) (ast.Value, error) {
	if len(input) > maxInputBytes {
		return nil, fmt.Errorf("read input: %d bytes, at most %d are allowed", len(input), maxInputBytes)
	}
	r := inputReader{text: string(input), dec: jsontext.NewDecoder(bytes.NewBuffer(input)), free: &inputShape{}, unseen: unseen}
	v, err := r.readValue(s)
	if err != nil {
		return nil, fmt.Errorf("read input: %w", err)
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read input: trailing data")
	}
	return v, nil
}

// An inputReader parses JSON. Strings are slices of one copy of the text, and terms come from chunks,
// because most of the cost of an input is allocation.
type inputReader struct {
	text   string
	dec    *jsontext.Decoder
	free   *inputShape // for parts of any type
	unseen *inputShape
	chunk  []ast.Term
	pairs  [][2]*ast.Term // of the objects being read
	terms  []*ast.Term    // of the lists being read
}

func (r *inputReader) newTerm(v ast.Value) *ast.Term {
	if len(r.chunk) == 0 {
		r.chunk = make([]ast.Term, 64)
	}
	t := &r.chunk[0]
	r.chunk = r.chunk[1:]
	t.Value = v
	return t
}

func (r *inputReader) readValue(s *inputShape) (ast.Value, error) {
	switch byte(r.dec.PeekKind()) {
	case '{':
		if !s.hasType("object") {
			return nil, r.mismatchError(s, "an object")
		}
		return r.readObject(s)
	case '[':
		if !s.hasType("array") {
			return nil, r.mismatchError(s, "a list")
		}
		return r.readArray(s)
	}
	raw, err := r.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	switch byte(raw.Kind()) {
	case '"':
		return r.readString(s, raw)
	case '0':
		return r.readNumber(s, raw)
	case 't', 'f':
		if !s.hasType("boolean") {
			return nil, r.mismatchError(s, "a boolean")
		}
		return ast.InternedValue(raw[0] == 't'), nil
	}
	// Go encodes nil maps and lists as null.
	switch s.Type {
	case "":
		return ast.NullValue, nil
	case "object":
		return s.checkRequiredFields(r, ast.NewObject())
	case "array":
		return ast.NewArray(), nil
	}
	return nil, r.mismatchError(s, "null")
}

func (s *inputShape) hasType(typ string) bool { return s.Type == "" || s.Type == typ }

// unquoteString returns the text of the last string.
func (r *inputReader) unquoteString(raw jsontext.Value) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		end := r.dec.InputOffset()
		return r.text[end-int64(len(raw))+1 : end-1], nil
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	return string(b), err
}

func (r *inputReader) readString(s *inputShape, raw jsontext.Value) (ast.Value, error) {
	text, err := r.unquoteString(raw)
	if err != nil {
		return nil, err
	}
	if !s.hasType("string") {
		return nil, r.mismatchError(s, "a string")
	}
	if s.Const != "" && text != s.Const {
		return nil, fmt.Errorf("%s is %q, want %q", r.currentPath(), text, s.Const)
	}
	return ast.InternedValue(text), nil
}

func (r *inputReader) readNumber(s *inputShape, raw jsontext.Value) (ast.Value, error) {
	text := string(raw)
	if !s.hasType("number") && (s.Type != "integer" || strings.ContainsAny(text, ".eE")) {
		return nil, r.mismatchError(s, "the number "+text)
	}
	if !isCalculable(text) {
		return nil, fmt.Errorf("%s is %s, which is out of range", r.currentPath(), text)
	}
	if t := ast.InternedIntNumberTermFromString(text); t != nil {
		return t.Value, nil
	}
	return ast.Number(text), nil
}

// isCalculable reports whether a number can be written in decimal, as Open Policy Agent does for
// arithmetic.
func isCalculable(n string) bool {
	i := strings.IndexAny(n, "eE")
	if i < 0 {
		return true
	}
	exp, err := strconv.Atoi(n[i+1:])
	return err == nil && -maxInputExponent <= exp && exp <= maxInputExponent
}

// enterObjectOrList enters an object or a list.
func (r *inputReader) enterObjectOrList() error {
	if _, err := r.dec.ReadToken(); err != nil {
		return err
	}
	if r.dec.StackDepth() > maxInputDepth {
		return fmt.Errorf("nested deeper than %d", maxInputDepth)
	}
	return nil
}

func (r *inputReader) readObject(s *inputShape) (ast.Value, error) {
	if s == r.unseen {
		return ast.NewObject(), r.dec.SkipValue()
	}
	if err := r.enterObjectOrList(); err != nil {
		return nil, err
	}
	begin, missing := len(r.pairs), len(s.required)
	for byte(r.dec.PeekKind()) != '}' {
		raw, err := r.dec.ReadValue()
		if err != nil {
			return nil, err
		}
		name, err := r.unquoteString(raw)
		if err != nil {
			return nil, err
		}
		key, sub, err := r.fieldKeyAndShape(s, name)
		if err != nil {
			return nil, err
		}
		if s.required[name] {
			missing--
		}
		v, err := r.readValue(sub)
		if err != nil {
			return nil, err
		}
		r.pairs = append(r.pairs, [2]*ast.Term{key, r.newTerm(v)})
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, err
	}
	o := ast.NewObject(r.pairs[begin:]...)
	r.pairs = r.pairs[:begin]
	if missing > 0 {
		return s.checkRequiredFields(r, o)
	}
	return o, nil
}

// fieldKeyAndShape returns the key of a field and its shape.
func (r *inputReader) fieldKeyAndShape(s *inputShape, name string) (key *ast.Term, shape *inputShape, err error) {
	if key, ok := s.keys[name]; ok {
		return key, s.Properties[name], nil
	}
	switch {
	case s.closed:
		return nil, nil, fmt.Errorf("%s is unknown: want %s", r.currentPath(), strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
	case s.rest != nil:
		return ast.InternedTerm(name), s.rest, nil
	}
	return ast.InternedTerm(name), r.free, nil
}

// checkRequiredFields returns o, or an error that names a missing field.
func (s *inputShape) checkRequiredFields(r *inputReader, o ast.Object) (ast.Value, error) {
	for _, name := range s.Required {
		if o.Get(s.keys[name]) == nil {
			return nil, fmt.Errorf("%s lacks %q", r.currentPath(), name)
		}
	}
	return o, nil
}

func (r *inputReader) readArray(s *inputShape) (ast.Value, error) {
	if err := r.enterObjectOrList(); err != nil {
		return nil, err
	}
	items := s.Items
	if items == nil {
		items = r.free
	}
	begin := len(r.terms)
	for byte(r.dec.PeekKind()) != ']' {
		v, err := r.readValue(items)
		if err != nil {
			return nil, err
		}
		r.terms = append(r.terms, r.newTerm(v))
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, err
	}
	a := ast.NewArray(slices.Clone(r.terms[begin:])...)
	r.terms = r.terms[:begin]
	return a, nil
}

func (r *inputReader) mismatchError(s *inputShape, got string) error {
	return fmt.Errorf("%s is %s, want %s", r.currentPath(), got, s.Type)
}

// currentPath returns the current place, as policies write it.
func (r *inputReader) currentPath() string {
	var b strings.Builder
	b.WriteString("input")
	for token := range r.dec.StackPointer().Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			fmt.Fprintf(&b, "[%s]", token)
			continue
		}
		b.WriteString("." + token)
	}
	return b.String()
}
