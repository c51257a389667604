package policy

import (
	"encoding/json"
	"slices"
)

// InputSchema returns the JSON Schema of the input of policies.
func InputSchema() json.RawMessage { return slices.Clone(policySchema) }

// ExampleInput returns a complete input of policies: a Deployment in production that is scaled, at
// the second evaluation.
func ExampleInput() json.RawMessage { return slices.Clone(exampleInput) }

// CheckInput returns an error if an input of policies does not conform to the schema: a field is
// missing or unknown, or has the wrong type.
func CheckInput(input json.RawMessage) error { return checkInput(policyShape, input) }

// CheckConditionInput is like CheckInput, for the input of conditions.
func CheckConditionInput(input json.RawMessage) error {
	return checkInput(conditionShape, input)
}

func checkInput(shape func() (*inputShape, error), input json.RawMessage) error {
	s, err := shape()
	if err != nil {
		return err
	}
	_, err = s.Read(input, nil)
	return err
}
