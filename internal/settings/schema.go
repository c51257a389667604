package settings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// durationPattern matches the durations that time.ParseDuration parses.
const durationPattern = `^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// Schema returns the JSON Schema (draft 2020-12) of the configuration file for cfg, a pointer to a
// struct. It accepts only keys and types that Load accepts. Load has further rules, and accepts an
// unquoted number if the schema requires a string.
func Schema(cfg any, title string) ([]byte, error) {
	root := mustDereferenceStruct(cfg)
	setDefaults(readShape(root.Type()), root)
	s := newSchema(readShape(root.Type()), root)
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = title
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema of %T: %w", cfg, err)
	}
	return append(out, '\n'), nil
}

// newSchema describes a shape; defaults are its defaults.
func newSchema(s *shape, defaults reflect.Value) *jsonschema.Schema {
	switch s.kind {
	case section:
		return newSectionSchema(s, defaults)
	case list:
		return &jsonschema.Schema{Type: "array", Items: newSchema(s.elem, reflect.Zero(s.elem.typ))}
	case mapping:
		return &jsonschema.Schema{Type: "object", AdditionalProperties: newSchema(s.elem, reflect.Zero(s.elem.typ))}
	case ordered:
		return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Types: []string{"string", "number", "boolean", "object"}}}
	case tree:
		return &jsonschema.Schema{}
	case scalar:
	}
	out := &jsonschema.Schema{Type: s.documentedTypeName(), WriteOnly: s.secret}
	switch s.documentedTypeName() {
	case "secret":
		out.Type = "string"
	case "duration":
		out.Type, out.Pattern = "string", durationPattern
	}
	return out
}

func newSectionSchema(s *shape, defaults reflect.Value) *jsonschema.Schema {
	out := &jsonschema.Schema{
		Type:                 "object",
		Properties:           map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	put := func(key string, p *jsonschema.Schema) {
		out.Properties[key] = p
		out.PropertyOrder = append(out.PropertyOrder, key)
	}
	for _, f := range s.fields {
		fv := defaults.FieldByIndex(f.index)
		p := newSchema(f.shape, fv)
		p.Description = f.doc
		p.Default = f.shape.encodeDefaultUnlessSecretOrZero(fv)
		addRuleKeywords(p, strings.Split(f.rules, ","))
		put(f.key, p)
		for _, alias := range f.aliases {
			other := *p
			other.Description, other.Default = fmt.Sprintf("Alias of %s.", f.key), nil
			put(alias, &other)
		}
		if f.fileKey != "" {
			put(f.fileKey, &jsonschema.Schema{Type: "string", Description: fmt.Sprintf("File with the value of %s.", f.key)})
		}
		if mustBeInFile(f) {
			out.Required = append(out.Required, f.key)
		}
	}
	return out
}

// mustBeInFile reports whether the file must contain the key, because no other source can set it.
func mustBeInFile(f *field) bool {
	required := strings.HasPrefix(f.rules+",", "required,")
	return required && len(f.env) == 0 && f.flag == "" && !f.hasDefault && len(f.keyNames()) == 1
}

// encodeDefaultUnlessSecretOrZero returns a default as JSON; nil if it is not worth showing.
func (s *shape) encodeDefaultUnlessSecretOrZero(v reflect.Value) json.RawMessage {
	if s.kind != scalar || s.secret || v.IsZero() {
		return nil
	}
	text := formatTextHidingSecret(s, v)
	switch s.documentedTypeName() {
	case "boolean", "integer", "number":
		return json.RawMessage(text)
	}
	out, err := json.Marshal(text)
	if err != nil {
		return nil
	}
	return out
}

// addRuleKeywords adds the rules that JSON Schema can express.
func addRuleKeywords(p *jsonschema.Schema, rules []string) {
	for i, r := range rules {
		name, param, _ := strings.Cut(r, "=")
		switch name {
		case "omitempty":
			return // a zero value passes the following rules
		case "dive":
			if elem := cmp.Or(p.Items, p.AdditionalProperties); elem != nil {
				addRuleKeywords(elem, rules[i+1:])
			}
			return
		case "oneof":
			for value := range strings.FieldsSeq(param) {
				p.Enum = append(p.Enum, encodeEnumMember(p, value))
			}
		case "gt", "gte", "min", "lt", "lte", "max":
			if n, err := strconv.Atoi(param); err == nil {
				addLimitKeyword(p, name, n)
			}
		}
	}
}

// encodeEnumMember returns a member of a closed set in the type of the setting.
func encodeEnumMember(p *jsonschema.Schema, text string) any {
	if p.Type == "string" {
		return text
	}
	return json.RawMessage(text)
}

// addLimitKeyword adds a limit for the value or for its length.
func addLimitKeyword(p *jsonschema.Schema, name string, n int) {
	switch name {
	case "gt":
		if p.Type == "integer" || p.Type == "number" {
			p.ExclusiveMinimum = new(float64(n))
			return
		}
		n++
	case "lt":
		if p.Type == "integer" || p.Type == "number" {
			p.ExclusiveMaximum = new(float64(n))
			return
		}
		n--
	}
	low := name == "gt" || name == "gte" || name == "min"
	high := name == "lt" || name == "lte" || name == "max"
	switch {
	case p.Pattern != "": // a duration; a schema cannot limit it
	case p.Type == "integer" || p.Type == "number":
		setPointerIf(&p.Minimum, float64(n), low)
		setPointerIf(&p.Maximum, float64(n), high)
	case p.Type == "string":
		setPointerIf(&p.MinLength, n, low)
		setPointerIf(&p.MaxLength, n, high)
	case p.Type == "array":
		setPointerIf(&p.MinItems, n, low)
		setPointerIf(&p.MaxItems, n, high)
	case p.Type == "object":
		setPointerIf(&p.MinProperties, n, low)
		setPointerIf(&p.MaxProperties, n, high)
	}
}

func setPointerIf[T any](p **T, v T, condition bool) {
	if condition {
		*p = &v
	}
}
