package policy

import (
	"encoding/json"
	"slices"

	"github.com/fleetloop/fleetloop/internal/policy/document"
)

// InputSchema is the JSON Schema of the input of policies.
func InputSchema() json.RawMessage { return slices.Clone(document.InputSchema) }

// ExampleInput is an input of policies in which everything is filled in: a
// Deployment in production that is to be scaled, at the second evaluation.
func ExampleInput() json.RawMessage { return slices.Clone(document.Example) }

// CheckInput says what is wrong with an input of policies: a field too many or
// too few, or of another type than the schema says.
func CheckInput(input json.RawMessage) error { return checkInput(document.ForPolicies, input) }

// CheckConditionInput is CheckInput for the input of conditions.
func CheckConditionInput(input json.RawMessage) error {
	return checkInput(document.ForConditions, input)
}

func checkInput(shape func() (*document.Shape, error), input json.RawMessage) error {
	s, err := shape()
	if err != nil {
		return err
	}
	_, err = s.Read(input, nil)
	return err
}
