package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/internal/policy"
)

const (
	decisions     = 5000
	decisionsWarm = 200
)

// decisionBench measures the duration of a decision of the default policies, once they are loaded.
// It measures from the bytes of a complete input to the decision.
func decisionBench() bench {
	const name = "policy.decision_us"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		files, err := deploy.PolicyFiles()
		if err != nil {
			return nil, err
		}
		set, err := policy.CompileAndTest(ctx, files, policy.Options{})
		if err != nil {
			return nil, err
		}
		input, now := policy.ExamplePolicyInput(), time.Now()
		var took []float64
		for i := range decisions {
			began := time.Now()
			d, err := set.Decide(ctx, input, now)
			us := float64(time.Since(began)) / float64(time.Microsecond)
			switch {
			case err != nil:
				return nil, err
			case d.PolicyName == "" || !d.RequireApproval: // it is a change in production
				return nil, fmt.Errorf("the policies decided %+v", d)
			case i >= decisionsWarm:
				took = append(took, us)
			}
		}
		_, _ = fmt.Fprintf(progress, "%d decisions: median %.0f us, longest %.0f us\n", len(took), computeMedian(took), slices.Max(took))
		return []line{{kind: "value", name: name, value: computeMedian(took), unit: "us", op: "<=", want: 200}}, nil
	}}
}
