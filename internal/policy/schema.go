package policy

import (
	_ "embed" // for the schemas
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

//go:embed input.schema.json
var inputSchema []byte

//go:embed conditions.schema.json
var conditionsSchema []byte

//go:embed example.json
var exampleInput []byte

// InputSchema is the JSON Schema of the input of policies.
func InputSchema() json.RawMessage { return slices.Clone(inputSchema) }

// ExampleInput is an input of policies in which everything is filled in: a
// Deployment in production that is to be scaled, at the second evaluation.
func ExampleInput() json.RawMessage { return slices.Clone(exampleInput) }

// CheckInput says what is wrong with an input of policies: a field too many or
// too few, or of another type than the schema says.
func CheckInput(input json.RawMessage) error {
	s, err := policyShape()
	if err != nil {
		return err
	}
	_, err = s.read(input, nil)
	return err
}

// CheckConditionInput is CheckInput for the input of conditions.
func CheckConditionInput(input json.RawMessage) error {
	s, err := conditionShape()
	if err != nil {
		return err
	}
	_, err = s.read(input, nil)
	return err
}

// A shape is a JSON Schema, of which it knows what ours need. One without a
// type is anything.
type shape struct {
	Type       string            `json:"type"`
	Const      string            `json:"const"`
	Properties map[string]*shape `json:"properties"`
	Required   []string          `json:"required"`
	Items      *shape            `json:"items"`
	Additional json.RawMessage   `json:"additionalProperties"`

	closed   bool                 // nothing beside Properties
	rest     *shape               // what is beside Properties
	keys     map[string]*ast.Term // of Properties
	required map[string]bool
}

func policyShape() (*shape, error) { return parseShape(inputSchema) }

// conditionShape is that of policies and what only conditions are told.
func conditionShape() (*shape, error) {
	s, err := parseShape(inputSchema)
	if err != nil {
		return nil, err
	}
	more, err := parseShape(conditionsSchema)
	if err != nil {
		return nil, err
	}
	maps.Copy(s.Properties, more.Properties)
	maps.Copy(s.keys, more.keys)
	return s, nil
}

func parseShape(schema []byte) (*shape, error) {
	var s shape
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("parse schema of the input: %w", err)
	}
	return &s, s.prepare()
}

// prepare makes of a schema what reading needs.
func (s *shape) prepare() error {
	switch string(s.Additional) {
	case "", "true":
	case "false":
		s.closed = true
	default:
		s.rest = &shape{}
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
		if err := sub.prepare(); err != nil {
			return err
		}
	}
	return nil
}

// schemaSet is the same for the type checker of Open Policy Agent.
func (s *shape) schemaSet() *ast.SchemaSet {
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, s.plain())
	return set
}

func (s *shape) plain() map[string]any {
	m := map[string]any{}
	if s.Type != "" {
		m["type"] = s.Type
	}
	if len(s.Properties) > 0 {
		props := map[string]any{}
		for key, sub := range s.Properties {
			props[key] = sub.plain()
		}
		m["properties"] = props
	}
	if s.Items != nil {
		m["items"] = s.Items.plain()
	}
	return m
}

// unseen is the part of an input that modules can not see, because nothing in
// them leads there: the object that is acted on, which is more than half of an
// input, if nobody asks for it. Nil is nothing.
func (s *shape) unseen(c *ast.Compiler) *shape {
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

// leadsPast says whether a reference is known to lead elsewhere: it names
// another field on its way. One that ends before, or asks for any field, has all
// that is below it.
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
