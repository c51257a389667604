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
	s := newSchema(readShapeAndSetDefaults(cfg))
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
		return &jsonschema.Schema{
			Type:                 "object",
			AdditionalProperties: &jsonschema.Schema{Types: []string{"string", "number", "boolean", "object"}},
		}
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
func addLimitKeyword(p *jsonschema.Schema, rule string, limit int) {
	switch {
	case p.Type == "integer" || p.Type == "number":
		addNumberLimit(p, rule, float64(limit))
	case p.Pattern != "":
		// The only texts with a pattern are durations, which a schema cannot compare.
	case rule == "gt":
		setMinLength(p, limit+1)
	case rule == "gte" || rule == "min":
		setMinLength(p, limit)
	case rule == "lt":
		setMaxLength(p, limit-1)
	default:
		setMaxLength(p, limit)
	}
}

func addNumberLimit(p *jsonschema.Schema, rule string, limit float64) {
	switch rule {
	case "gt":
		p.ExclusiveMinimum = &limit
	case "gte", "min":
		p.Minimum = &limit
	case "lt":
		p.ExclusiveMaximum = &limit
	default:
		p.Maximum = &limit
	}
}

func setMinLength(p *jsonschema.Schema, length int) {
	switch p.Type {
	case "string":
		p.MinLength = &length
	case "array":
		p.MinItems = &length
	case "object":
		p.MinProperties = &length
	}
}

func setMaxLength(p *jsonschema.Schema, length int) {
	switch p.Type {
	case "string":
		p.MaxLength = &length
	case "array":
		p.MaxItems = &length
	case "object":
		p.MaxProperties = &length
	}
}
