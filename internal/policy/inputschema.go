package policy

import (
	_ "embed" // for the schemas
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// policySchema is the JSON Schema of the input of policies.
//
//go:embed input.schema.json
var policySchema []byte

// conditionSchema is the JSON Schema of the additional input of conditions.
//
//go:embed conditions.schema.json
var conditionSchema []byte

// exampleInput is a complete input of policies.
//
//go:embed example.json
var exampleInput []byte

// An inputShape is a JSON Schema, limited to the keywords of the schemas here. A shape without a
// type accepts anything. The input of policies and conditions is JSON that conforms exactly to it.
type inputShape struct {
	Type       string                 `json:"type"`
	Const      string                 `json:"const"`
	Properties map[string]*inputShape `json:"properties"`
	Required   []string               `json:"required"`
	Items      *inputShape            `json:"items"`
	Additional json.RawMessage        `json:"additionalProperties"`

	hidden   bool                 // not visible to modules
	closed   bool                 // only Properties are allowed
	rest     *inputShape          // the shape of fields outside Properties
	keys     map[string]*ast.Term // of Properties
	required map[string]bool
}

// newPolicyInputShape returns the shape of the input of policies.
func newPolicyInputShape() (*inputShape, error) { return parseInputShape(policySchema) }

// policyOnlyFields lists fields of policies' input that conditions do not receive. The requester may
// not be allowed to read them.
//
//nolint:gochecknoglobals // a table that nobody writes to
var policyOnlyFields = map[string][]string{"target": {"annotations"}, "namespace": {"annotations"}, "plan": {"before", "diff"}}

// newConditionInputShape returns the shape of the input of conditions. It is that of policies, without the
// fields for policies only, and with the additional fields of conditions.
func newConditionInputShape() (*inputShape, error) {
	s, err := parseInputShape(policySchema)
	if err != nil {
		return nil, err
	}
	more, err := parseInputShape(conditionSchema)
	if err != nil {
		return nil, err
	}
	maps.Copy(s.Properties, more.Properties)
	maps.Copy(s.keys, more.keys)
	for part, names := range policyOnlyFields {
		of := s.Properties[part]
		of.Required = slices.DeleteFunc(of.Required, func(name string) bool { return slices.Contains(names, name) })
		for _, name := range names {
			delete(of.required, name)
			of.Properties[name].hidden = true
		}
	}
	return s, nil
}

func parseInputShape(schema []byte) (*inputShape, error) {
	var s inputShape
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("parse schema of the input: %w", err)
	}
	return &s, s.computeLookupFields()
}

// computeLookupFields computes the fields that reading needs.
func (s *inputShape) computeLookupFields() error {
	switch string(s.Additional) {
	case "", "true":
	case "false":
		s.closed = true
	default:
		s.rest = &inputShape{}
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
		if err := sub.computeLookupFields(); err != nil {
			return err
		}
	}
	return nil
}

// ToSchemaSet returns the shape for the type checker of Open Policy Agent.
func (s *inputShape) ToSchemaSet() *ast.SchemaSet {
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, s.buildVisibleSchema())
	return set
}

func (s *inputShape) buildVisibleSchema() map[string]any {
	m := map[string]any{}
	if s.Type != "" {
		m["type"] = s.Type
	}
	if len(s.Properties) > 0 {
		props := map[string]any{}
		for key, sub := range s.Properties {
			if !sub.hidden {
				props[key] = sub.buildVisibleSchema()
			}
		}
		m["properties"] = props
	}
	if s.Items != nil {
		m["items"] = s.Items.buildVisibleSchema()
	}
	return m
}

// FindTargetObjectIfUnreferenced returns the part of an input that modules cannot see, because no reference leads there. It
// is the target object, more than half of an input, if no module refers to it. Nil means nothing.
func (s *inputShape) FindTargetObjectIfUnreferenced(compiler *ast.Compiler) *inputShape {
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
			seen = seen || !divergesFromPath(x[1:], path)
			for _, t := range x[1:] {
				visit.Walk(t)
			}
			return true
		}
		return false
	})
	for _, m := range compiler.Modules {
		visit.Walk(m)
	}
	if seen {
		return nil
	}
	return at
}

// divergesFromPath reports whether a reference is known to lead elsewhere: it names another field on the
// way. A reference that ends earlier, or selects any field, includes everything below.
func divergesFromPath(ref ast.Ref, path []string) bool {
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
