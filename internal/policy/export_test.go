package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/fleetloop/fleetloop/internal/policy/document"
)

// NewOracle checks inputs with the schema as Open Policy Agent understands it.
// It gives what is wrong, or nothing.
func NewOracle() (func(context.Context, json.RawMessage) (string, error), error) {
	var schema any
	if err := json.Unmarshal(document.InputSchema, &schema); err != nil {
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

// Canaries are the names of the requests that no set may allow.
func Canaries() []string {
	var names []string
	for _, c := range canaryInputs() {
		names = append(names, c.name)
	}
	return names
}

// ConditionsSchema is the schema of what only conditions are told.
func ConditionsSchema() json.RawMessage { return document.ConditionsSchema }

// ConditionBuiltins are the functions that conditions have.
func ConditionBuiltins() []string { return conditionBuiltins() }

// SetTrialCPUTime bounds the CPU time that a store tries a set with.
func SetTrialCPUTime(st *Store, d time.Duration) { st.trial = d }
