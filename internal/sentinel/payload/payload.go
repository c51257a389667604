// Package payload builds the data of a cloud event from a resource, as the
// setting message_data defines it.
//
// A value of message_data is one of
//
//	.metadata.labels.region       a field of the resource, short for {{.metadata.labels.region}}
//	{{if .a}}{{.a}}{{else}}-{{end}}  a Go template over the resource
//	cel:resource.generation + 1   a CEL expression, whose value keeps its type
//	cluster                       a literal text
//
// or a mapping of such values. Fields and templates always produce a text;
// FindConversionsToText returns where this drops the type of a number or a boolean. A
// missing field of a resource produces the empty text and a Problem, never an
// error: the event is published. Errors that can be detected at compile time
// fail New, with the key (KeyError), the line and the column.
//
// Templates are bounded: they cannot call each other, and the output and the
// loop iterations of a rendering are limited.
package payload

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// maxValue is the maximum length of one value, in bytes of JSON.
const maxValue = 64 << 10

// An Input is the input of a payload.
type Input struct {
	// Raw is the resource as served.
	Raw []byte

	ID     string
	Type   string // the collection, such as "clusters"
	Reason string
	Now    time.Time
}

// A Problem is a value that could not be rendered; the payload has the empty text instead.
type Problem struct {
	// Key is the path of the value in message_data.
	Key string
	Err error
}

// A KeyError is an error in one value of message_data.
type KeyError struct {
	// Key is the path of the setting.
	Key string
	Err error
}

// Error returns the key and the error.
func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap returns the error without the key.
func (e *KeyError) Unwrap() error { return e.Err }

// A Builder builds payloads. It is safe for concurrent use.
type Builder struct {
	fields []field
	camel  bool
	needs  neededFields
}

// A field is one key with a value or, if value is nil, with nested fields.
type field struct {
	path   string // for problems
	key    []byte // as JSON, with the colon
	value  value
	names  []string // path of the resource field that is the whole value, or nil
	fields []field
}

// A value appends itself to dst as JSON.
type value interface {
	// addNeededFields adds the top-level fields of the resource that the value uses.
	addNeededFields(*neededFields)
	appendJSON(dst []byte, in Input, resource map[string]any) ([]byte, error)
}

// Keys is the spelling of the payload's keys if message_data is empty.
type Keys string

// The spellings.
const (
	SnakeCase Keys = "snake" // resource_type, resource_id, reason
	CamelCase Keys = "camel" // resourceType, resourceId, reason
)

// New compiles message_data. If that is empty, payloads contain the resource's type and id, and the
// reason.
func New(data settings.OrderedMap, keys Keys) (*Builder, error) {
	fields, err := compileFields("message_data", data)
	if err != nil {
		return nil, err
	}
	b := &Builder{fields: fields, camel: keys == CamelCase, needs: neededFields{names: map[string]bool{}}}
	b.needs.addFieldsOf(fields)
	return b, nil
}

// neededFields holds the parts of the resource that must be parsed.
type neededFields struct {
	names map[string]bool
	all   bool
}

func (n *neededFields) addFieldsOf(fields []field) {
	for _, f := range fields {
		if f.value != nil {
			f.value.addNeededFields(n)
		}
		n.addFieldsOf(f.fields)
	}
}

// namesOrNilForAll returns the argument for decision.ParseObject.
func (n *neededFields) namesOrNilForAll() map[string]bool {
	if n.all {
		return nil
	}
	return n.names
}

func compileFields(path string, data settings.OrderedMap) ([]field, error) {
	var fields []field
	var errs []error
	for _, entry := range data {
		f, err := compileField(path+"."+entry.Key, entry)
		errs = append(errs, err)
		fields = append(fields, f)
	}
	return fields, errors.Join(errs...)
}

// compileField compiles one entry of message_data: a value, or nested entries.
func compileField(path string, entry settings.MapEntry) (field, error) {
	f := field{path: path, key: append(appendQuoted(nil, entry.Key), ':')}
	var err error
	if entry.Map != nil {
		f.fields, err = compileFields(path, entry.Map)
		return f, err
	}
	f.value, err = compileValue(entry.Value)
	if err != nil {
		return f, &KeyError{Key: path, Err: err}
	}
	f.names = parseLoneFieldPath(entry.Value)
	return f, nil
}

func compileValue(text string) (value, error) {
	if expr, ok := strings.CutPrefix(text, "cel:"); ok {
		return compileCEL(expr)
	}
	if strings.Contains(text, "{{") {
		return compileTemplate(text)
	}
	if strings.HasPrefix(text, ".") {
		return compileFieldPath(text)
	}
	return literal(appendQuoted(nil, text)), nil
}

// AppendPayload appends the payload to dst, as one JSON object with its keys in the order of
// message_data. It returns the values that could not be rendered as problems.
func (b *Builder) AppendPayload(dst []byte, in Input) (payload []byte, problems []Problem, err error) {
	if len(b.fields) == 0 {
		return b.appendDefaultPayload(dst, in), nil, nil
	}
	resource, err := decision.ParseObject(in.Raw, b.needs.namesOrNilForAll())
	if err != nil {
		return dst, nil, err
	}
	dst, problems = appendFieldsJSON(dst, b.fields, in, resource)
	return dst, problems, nil
}

func (b *Builder) appendDefaultPayload(dst []byte, in Input) []byte {
	names := [...]string{`{"resource_type":`, `,"resource_id":`, `,"reason":`}
	if b.camel {
		names = [...]string{`{"resourceType":`, `,"resourceId":`, `,"reason":`}
	}
	for i, text := range []string{in.Type, in.ID, in.Reason} {
		dst = appendQuoted(append(dst, names[i]...), text)
	}
	return append(dst, '}')
}

// appendFieldsJSON appends fields as a JSON object. A value that could not be rendered is the empty text.
func appendFieldsJSON(
	dst []byte, fields []field, in Input, resource map[string]any,
) (data []byte, problems []Problem) {
	dst = append(dst, '{')
	for i, f := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, f.key...)
		if f.value == nil {
			var nested []Problem
			dst, nested = appendFieldsJSON(dst, f.fields, in, resource)
			problems = append(problems, nested...)
			continue
		}
		begin := len(dst)
		var err error
		dst, err = f.value.appendJSON(dst, in, resource)
		if len(dst)-begin > maxValue {
			err = errTooLong
		}
		// A template may have written output and still have a problem.
		if err != nil && !errors.Is(err, errMissing) {
			dst = append(dst[:begin], `""`...)
		}
		if err != nil {
			problems = append(problems, Problem{Key: f.path, Err: err})
		}
	}
	return append(dst, '}'), problems
}

var (
	errMissing = errors.New("the resource has no such field")
	errTooLong = fmt.Errorf("longer than %d bytes", maxValue)
)

// literal is a literal text, as JSON.
type literal []byte

func (l literal) appendJSON(dst []byte, _ Input, _ map[string]any) ([]byte, error) {
	return append(dst, l...), nil
}

func (l literal) addNeededFields(*neededFields) {}

// celValue is the value of an expression.
type celValue struct{ expression *decision.Expression }

func compileCEL(expr string) (value, error) {
	expression, err := decision.CompileExpression(expr)
	if err != nil {
		return nil, fmt.Errorf("expression after %q: %w", "cel:", err)
	}
	return celValue{expression: expression}, nil
}

func (c celValue) appendJSON(dst []byte, in Input, resource map[string]any) ([]byte, error) {
	input := decision.ExpressionInput{Resource: resource, Now: in.Now, Reason: in.Reason}
	return c.expression.AppendResultJSON(dst, input, maxValue)
}

func (c celValue) addNeededFields(n *neededFields) { n.all = true }

// appendQuoted appends a text as JSON. Bytes that are not UTF-8 become U+FFFD.
func appendQuoted(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
