package policy

import (
	"encoding/json"
	"slices"
)

// InputSchema returns the JSON Schema of the input of policies.
func InputSchema() json.RawMessage { return slices.Clone(policySchema) }

// ExamplePolicyInput returns a complete input of policies: a Deployment in production that is scaled, at
// the second evaluation.
func ExamplePolicyInput() json.RawMessage { return slices.Clone(exampleInput) }

// CheckPolicyInput returns an error if an input of policies does not conform to the schema: a field is
// missing or unknown, or has the wrong type.
func CheckPolicyInput(input json.RawMessage) error {
	return checkInputAgainst(newPolicyInputShape, input)
}

// CheckConditionInput is like CheckPolicyInput, for the input of conditions.
func CheckConditionInput(input json.RawMessage) error {
	return checkInputAgainst(newConditionInputShape, input)
}

func checkInputAgainst(loadShape func() (*inputShape, error), input json.RawMessage) error {
	s, err := loadShape()
	if err != nil {
		return err
	}
	_, err = s.ParseAndCheckInput(input, nil)
	return err
}
