package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"
)

// NewOracle returns a check of inputs with Open Policy Agent's interpretation of the schema. The
// check returns the error text, or nothing.
func NewOracle() (func(context.Context, json.RawMessage) (string, error), error) {
	var schema any
	if err := json.Unmarshal(policySchema, &schema); err != nil {
		return nil, err
	}
	q, err := rego.New(rego.Query(`json.match_schema(input.document, input.schema, output)`)).PrepareForEval(context.Background())
	return func(ctx context.Context, input json.RawMessage) (string, error) {
		var doc any
		if err := json.Unmarshal(input, &doc); err != nil {
			return "", err
		}
		rs, err := q.Eval(ctx, rego.EvalInput(map[string]any{"document": doc, "schema": schema}))
		if err != nil || len(rs) != 1 {
			return "", fmt.Errorf("%d results: %w", len(rs), err)
		}
		out, _ := rs[0].Bindings["output"].([]any)
		if len(out) == 2 && out[0] == true {
			return "", nil
		}
		return fmt.Sprint(out), nil
	}, err
}

// Canaries returns the names of the requests that every set must deny.
func Canaries() []string {
	var names []string
	for _, c := range listCanaries() {
		names = append(names, c.name)
	}
	return names
}

// ConditionsSchema returns the schema of the additional input of conditions.
func ConditionsSchema() json.RawMessage { return conditionSchema }

// ConditionBuiltins returns the functions of conditions.
func ConditionBuiltins() []string { return listConditionBuiltins() }

// SetTrialCPUTime sets the CPU time of a store's trials.
func SetTrialCPUTime(st *Store, d time.Duration) { st.trial = d }
