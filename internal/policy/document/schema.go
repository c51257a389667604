// Package document parses the input of policies and conditions: JSON that conforms exactly to the
// schemas.
package document

import (
	_ "embed" // for the schemas
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// InputSchema is the JSON Schema of the input of policies.
//
//go:embed input.schema.json
var InputSchema []byte

// ConditionsSchema is the JSON Schema of the additional input of conditions.
//
//go:embed conditions.schema.json
var ConditionsSchema []byte

// Example is a complete input of policies.
//
//go:embed example.json
var Example []byte

// A Shape is a JSON Schema, limited to the keywords of the schemas here. A Shape without a type
// accepts anything.
type Shape struct {
	Type       string            `json:"type"`
	Const      string            `json:"const"`
	Properties map[string]*Shape `json:"properties"`
	Required   []string          `json:"required"`
	Items      *Shape            `json:"items"`
	Additional json.RawMessage   `json:"additionalProperties"`

	hidden   bool                 // not visible to modules
	closed   bool                 // only Properties are allowed
	rest     *Shape               // the shape of fields outside Properties
	keys     map[string]*ast.Term // of Properties
	required map[string]bool
}

// ForPolicies returns the shape of the input of policies.
func ForPolicies() (*Shape, error) { return parseShape(InputSchema) }

// forPolicies lists fields of policies' input that conditions do not receive. The requester may not
// be allowed to read them.
//
//nolint:gochecknoglobals // a table that nobody writes to
var forPolicies = map[string][]string{"target": {"annotations"}, "namespace": {"annotations"}, "plan": {"before", "diff"}}

// ForConditions returns the shape of the input of conditions. It is that of policies, without the
// fields for policies only, and with the additional fields of conditions.
func ForConditions() (*Shape, error) {
	s, err := parseShape(InputSchema)
	if err != nil {
		return nil, err
	}
	more, err := parseShape(ConditionsSchema)
	if err != nil {
		return nil, err
	}
	maps.Copy(s.Properties, more.Properties)
	maps.Copy(s.keys, more.keys)
	for part, names := range forPolicies {
		of := s.Properties[part]
		of.Required = slices.DeleteFunc(of.Required, func(name string) bool { return slices.Contains(names, name) })
		for _, name := range names {
			delete(of.required, name)
			of.Properties[name].hidden = true
		}
	}
	return s, nil
}

func parseShape(schema []byte) (*Shape, error) {
	var s Shape
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("parse schema of the input: %w", err)
	}
	return &s, s.prepareSchema()
}

// prepareSchema computes the fields that reading needs.
func (s *Shape) prepareSchema() error {
	switch string(s.Additional) {
	case "", "true":
	case "false":
		s.closed = true
	default:
		s.rest = &Shape{}
		if err := json.Unmarshal(s.Additional, s.rest); err != nil {
			return fmt.Errorf("parse schema of the input: %w", err)
		}
	}
	s.keys, s.required = map[string]*ast.Term{}, map[string]bool{}
	for _, key := range s.Required {
		s.required[key] = true
	}
	for key := range s.Properties {
		s.keys[key] = ast.InternedTerm(key)
	}
	for _, sub := range append(slices.Collect(maps.Values(s.Properties)), s.Items, s.rest) {
		if sub == nil {
			continue
		}
		if err := sub.prepareSchema(); err != nil {
			return err
		}
	}
	return nil
}

// Schemas returns the shape for the type checker of Open Policy Agent.
func (s *Shape) Schemas() *ast.SchemaSet {
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, s.plainSchema())
	return set
}

func (s *Shape) plainSchema() map[string]any {
	m := map[string]any{}
	if s.Type != "" {
		m["type"] = s.Type
	}
	if len(s.Properties) > 0 {
		props := map[string]any{}
		for key, sub := range s.Properties {
			if !sub.hidden {
				props[key] = sub.plainSchema()
			}
		}
		m["properties"] = props
	}
	if s.Items != nil {
		m["items"] = s.Items.plainSchema()
	}
	return m
}

// Unseen returns the part of an input that modules cannot see, because no reference leads there. It
// is the target object, more than half of an input, if no module refers to it. Nil means nothing.
func (s *Shape) Unseen(c *ast.Compiler) *Shape {
	path := []string{"target", "object"}
	at := s
	for _, name := range path {
		at = at.Properties[name]
	}
	var seen bool
	var visit *ast.GenericVisitor
	visit = ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case ast.Var:
			seen = seen || x.Equal(ast.InputRootDocument.Value)
		case ast.Ref:
			if !x.HasPrefix(ast.InputRootRef) {
				return false
			}
			seen = seen || !leadsPast(x[1:], path)
			for _, t := range x[1:] {
				visit.Walk(t)
			}
			return true
		}
		return false
	})
	for _, m := range c.Modules {
		visit.Walk(m)
	}
	if seen {
		return nil
	}
	return at
}

// leadsPast reports whether a reference is known to lead elsewhere: it names another field on the
// way. A reference that ends earlier, or selects any field, includes everything below.
func leadsPast(ref ast.Ref, path []string) bool {
	for i, name := range path {
		if i >= len(ref) {
			return false
		}
		s, ok := ref[i].Value.(ast.String)
		if !ok {
			return false
		}
		if string(s) != name {
			return true
		}
	}
	return false
}
