package fleetapi

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// maxSpecErrors is the maximum number of violations reported for one spec.
const maxSpecErrors = 32

// A SpecSchema is a compiled JSON Schema that operators register, and which checks specs. It is
// safe for concurrent use.
//
// A schema is one document: references lead to places within it and to the drafts of JSON Schema,
// and nothing is fetched. The draft is 2020-12 unless "$schema" names another. As in that draft,
// "format" is an annotation and is not checked.
type SpecSchema struct{ schema *jsonschema.Schema }

// noSchemaLoader refuses to fetch documents.
type noSchemaLoader struct{}

// Load implements jsonschema.URLLoader.
func (noSchemaLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s refers to another document; only references inside the schema are supported", url)
}

// CompileSpecSchema compiles a schema, which is a JSON object. The error explains the mistake to
// the author of the schema.
func CompileSpecSchema(raw []byte) (*SpecSchema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if _, ok := document.(map[string]any); !ok {
		return nil, errors.New("it is not a JSON object")
	}
	const location = "schema:///spec"
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noSchemaLoader{})
	if err := compiler.AddResource(location, document); err != nil {
		return nil, err
	}
	schema, err := compiler.Compile(location)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), location, ""))
	}
	return &SpecSchema{schema}, nil
}

// ValidateSpec returns the violations of a spec, nil if it conforms.
func (s *SpecSchema) ValidateSpec(spec []byte) []v1.FieldError {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(spec))
	if err != nil {
		return []v1.FieldError{newSpecViolation("", "format", "must be valid JSON")}
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](s.schema.Validate(value))
	if !ok {
		return nil
	}
	var list []v1.FieldError
	for _, unit := range invalid.BasicOutput().Errors {
		if unit.Error == nil || len(unit.Errors) > 0 {
			continue
		}
		if len(list) == maxSpecErrors {
			break
		}
		keyword := unit.KeywordLocation[strings.LastIndexByte(unit.KeywordLocation, '/')+1:]
		list = append(
			list,
			newSpecViolation(unit.InstanceLocation, constraintForKeyword(keyword), "does not meet the schema: "+unit.Error.String()),
		)
	}
	if len(list) == 0 {
		list = append(list, newSpecViolation("", "format", "does not meet the schema"))
	}
	return list
}

// newSpecViolation returns a field error that names a place of the spec by its field path and its JSON pointer.
func newSpecViolation(pointer, constraint, message string) v1.FieldError {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	field := "spec" + unescape.Replace(strings.ReplaceAll(pointer, "/", "."))
	return v1.FieldError{Field: field, Pointer: "/spec" + pointer, Constraint: constraint, Message: message}
}

// constraintForKeyword maps a schema keyword to the constraint name in the API's errors.
func constraintForKeyword(keyword string) string {
	switch keyword {
	case "required", "dependentRequired":
		return "required"
	case "minimum", "exclusiveMinimum", "minItems", "minProperties", "minContains":
		return "min"
	case "maximum", "exclusiveMaximum", "maxItems", "maxProperties", "maxContains":
		return "max"
	case "minLength":
		return "min_length"
	case "maxLength":
		return "max_length"
	case "pattern":
		return "pattern"
	case "enum", "const":
		return "enum"
	case "uniqueItems":
		return "unique"
	}
	return "format"
}
