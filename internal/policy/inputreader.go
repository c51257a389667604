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

// ParseAndCheckInput parses an input and checks it against the shape. It reads the text once, because an input is checked
// and converted at every decision. The check is necessary, because a rule that denies by a field is
// silent if the field is missing or has another type. The parts in skipped, if it is not nil, are
// only checked to be JSON and left empty.
func (s *inputShape) ParseAndCheckInput(input []byte, skipped *inputShape) (ast.Value, error) {
	if len(input) > maxInputBytes {
		return nil, fmt.Errorf("read input: %d bytes, at most %d are allowed", len(input), maxInputBytes)
	}
	r := inputReader{text: string(input), dec: jsontext.NewDecoder(bytes.NewBuffer(input)), free: &inputShape{}, unseen: skipped}
	v, err := r.readAndCheckValue(s)
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

func (r *inputReader) allocateTerm(value ast.Value) *ast.Term {
	if len(r.chunk) == 0 {
		r.chunk = make([]ast.Term, 64)
	}
	t := &r.chunk[0]
	r.chunk = r.chunk[1:]
	t.Value = value
	return t
}

func (r *inputReader) readAndCheckValue(shape *inputShape) (ast.Value, error) {
	switch byte(r.dec.PeekKind()) {
	case '{':
		if !shape.hasType("object") {
			return nil, r.newTypeMismatchError(shape, "an object")
		}
		return r.readAndCheckObject(shape)
	case '[':
		if !shape.hasType("array") {
			return nil, r.newTypeMismatchError(shape, "a list")
		}
		return r.readAndCheckArray(shape)
	}
	raw, err := r.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	switch byte(raw.Kind()) {
	case '"':
		return r.parseAndCheckString(shape, raw)
	case '0':
		return r.parseAndCheckNumber(shape, raw)
	case 't', 'f':
		if !shape.hasType("boolean") {
			return nil, r.newTypeMismatchError(shape, "a boolean")
		}
		return ast.InternedValue(raw[0] == 't'), nil
	}
	// Go encodes nil maps and lists as null.
	switch shape.Type {
	case "":
		return ast.NullValue, nil
	case "object":
		return shape.requireFieldsIn(r, ast.NewObject())
	case "array":
		return ast.NewArray(), nil
	}
	return nil, r.newTypeMismatchError(shape, "null")
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

func (r *inputReader) parseAndCheckString(shape *inputShape, raw jsontext.Value) (ast.Value, error) {
	text, err := r.unquoteString(raw)
	if err != nil {
		return nil, err
	}
	if !shape.hasType("string") {
		return nil, r.newTypeMismatchError(shape, "a string")
	}
	if shape.Const != "" && text != shape.Const {
		return nil, fmt.Errorf("%s is %q, want %q", r.formatCurrentPath(), text, shape.Const)
	}
	return ast.InternedValue(text), nil
}

func (r *inputReader) parseAndCheckNumber(shape *inputShape, raw jsontext.Value) (ast.Value, error) {
	text := string(raw)
	if !shape.hasType("number") && (shape.Type != "integer" || strings.ContainsAny(text, ".eE")) {
		return nil, r.newTypeMismatchError(shape, "the number "+text)
	}
	if !isExponentInRange(text) {
		return nil, fmt.Errorf("%s is %s, which is out of range", r.formatCurrentPath(), text)
	}
	if t := ast.InternedIntNumberTermFromString(text); t != nil {
		return t.Value, nil
	}
	return ast.Number(text), nil
}

// isExponentInRange reports whether a number can be written in decimal, as Open Policy Agent does for
// arithmetic.
func isExponentInRange(number string) bool {
	i := strings.IndexAny(number, "eE")
	if i < 0 {
		return true
	}
	exp, err := strconv.Atoi(number[i+1:])
	return err == nil && -maxInputExponent <= exp && exp <= maxInputExponent
}

// enterNestedValue enters an object or a list.
func (r *inputReader) enterNestedValue() error {
	if _, err := r.dec.ReadToken(); err != nil {
		return err
	}
	if r.dec.StackDepth() > maxInputDepth {
		return fmt.Errorf("nested deeper than %d", maxInputDepth)
	}
	return nil
}

func (r *inputReader) readAndCheckObject(shape *inputShape) (ast.Value, error) {
	if shape == r.unseen {
		return ast.NewObject(), r.dec.SkipValue()
	}
	if err := r.enterNestedValue(); err != nil {
		return nil, err
	}
	begin, missing := len(r.pairs), len(shape.required)
	for byte(r.dec.PeekKind()) != '}' {
		raw, err := r.dec.ReadValue()
		if err != nil {
			return nil, err
		}
		name, err := r.unquoteString(raw)
		if err != nil {
			return nil, err
		}
		key, sub, err := r.findFieldShape(shape, name)
		if err != nil {
			return nil, err
		}
		if shape.required[name] {
			missing--
		}
		v, err := r.readAndCheckValue(sub)
		if err != nil {
			return nil, err
		}
		r.pairs = append(r.pairs, [2]*ast.Term{key, r.allocateTerm(v)})
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, err
	}
	o := ast.NewObject(r.pairs[begin:]...)
	r.pairs = r.pairs[:begin]
	if missing > 0 {
		return shape.requireFieldsIn(r, o)
	}
	return o, nil
}

// findFieldShape returns the key of a field and its shape.
func (r *inputReader) findFieldShape(parent *inputShape, name string) (key *ast.Term, shape *inputShape, err error) {
	if key, ok := parent.keys[name]; ok {
		return key, parent.Properties[name], nil
	}
	switch {
	case parent.closed:
		return nil, nil, fmt.Errorf(
			"%s is unknown: want %s",
			r.formatCurrentPath(),
			strings.Join(slices.Sorted(maps.Keys(parent.Properties)), ", "),
		)
	case parent.rest != nil:
		return ast.InternedTerm(name), parent.rest, nil
	}
	return ast.InternedTerm(name), r.free, nil
}

// requireFieldsIn returns o, or an error that names a missing field.
func (s *inputShape) requireFieldsIn(reader *inputReader, object ast.Object) (ast.Value, error) {
	for _, name := range s.Required {
		if object.Get(s.keys[name]) == nil {
			return nil, fmt.Errorf("%s lacks %q", reader.formatCurrentPath(), name)
		}
	}
	return object, nil
}

func (r *inputReader) readAndCheckArray(shape *inputShape) (ast.Value, error) {
	if err := r.enterNestedValue(); err != nil {
		return nil, err
	}
	items := shape.Items
	if items == nil {
		items = r.free
	}
	begin := len(r.terms)
	for byte(r.dec.PeekKind()) != ']' {
		v, err := r.readAndCheckValue(items)
		if err != nil {
			return nil, err
		}
		r.terms = append(r.terms, r.allocateTerm(v))
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, err
	}
	a := ast.NewArray(slices.Clone(r.terms[begin:])...)
	r.terms = r.terms[:begin]
	return a, nil
}

func (r *inputReader) newTypeMismatchError(shape *inputShape, got string) error {
	return fmt.Errorf("%s is %s, want %s", r.formatCurrentPath(), got, shape.Type)
}

// formatCurrentPath returns the current place, as policies write it.
func (r *inputReader) formatCurrentPath() string {
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
