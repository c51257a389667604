package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/internal/policy"
)

const (
	decisions     = 5000
	decisionsWarm = 200
)

// decisionBench compares a decision of the default policies with a prepared query of Open Policy Agent over the same
// modules. Both begin with the bytes of a complete input. They take turns, so that both see the same machine.
func decisionBench() bench {
	const name = "policy.decision_vs_opa"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		files, err := deploy.PolicyFiles()
		if err != nil {
			return nil, err
		}
		set, err := policy.CompileAndTest(ctx, files, policy.Options{})
		if err != nil {
			return nil, err
		}
		bare, err := prepareBareQuery(ctx, files)
		if err != nil {
			return nil, err
		}
		input := policy.ExamplePolicyInput()
		var ours, theirs []float64
		for i := range decisions {
			began := time.Now()
			if err := decideWithSet(ctx, set, input); err != nil {
				return nil, err
			}
			decided := time.Now()
			if err := decideWithBareQuery(ctx, bare, input); err != nil {
				return nil, err
			}
			if i >= decisionsWarm {
				ours = append(ours, toMicroseconds(decided.Sub(began)))
				theirs = append(theirs, toMicroseconds(time.Since(decided)))
			}
		}
		our, their := computeMedian(ours), computeMedian(theirs)
		_, _ = fmt.Fprintf(progress, "%d decisions: median %.0f us, of a bare query %.0f us\n", len(ours), our, their)
		return []line{{kind: "ratio", name: name, value: our / their, op: "<=", want: 1.3}}, nil
	}}
}

func decideWithSet(ctx context.Context, set *policy.Set, input json.RawMessage) error {
	d, err := set.Decide(ctx, input, time.Now())
	if err != nil {
		return err
	}
	if d.PolicyName == "" || !d.RequireApproval { // the example is a change in production
		return fmt.Errorf("the policies decided %+v", d)
	}
	return nil
}

// prepareBareQuery prepares the query of a decision as the documentation of Open Policy Agent does.
func prepareBareQuery(ctx context.Context, files map[string]string) (rego.PreparedEvalQuery, error) {
	options := []func(*rego.Rego){rego.Query(policy.DecisionPath), rego.StrictBuiltinErrors(true)}
	for name, text := range files {
		if !strings.HasSuffix(name, "_test.rego") {
			options = append(options, rego.Module(name, text))
		}
	}
	return rego.New(options...).PrepareForEval(ctx)
}

func decideWithBareQuery(ctx context.Context, query rego.PreparedEvalQuery, input json.RawMessage) error {
	var document any
	if err := json.Unmarshal(input, &document); err != nil {
		return err
	}
	results, err := query.Eval(ctx, rego.EvalInput(document))
	if err != nil {
		return err
	}
	if len(results) != 1 {
		return errors.New("the bare query has no result")
	}
	decision, _ := results[0].Expressions[0].Value.(map[string]any)
	if decision["requireApproval"] != true {
		return fmt.Errorf("the bare query decided %v", decision)
	}
	return nil
}

func toMicroseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
