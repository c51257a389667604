package policy_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/policy"
)

// BenchmarkDecide measures the shipped policies, from the bytes of a full input to the decision.
func BenchmarkDecide(b *testing.B) {
	s, err := policy.CompileAndTest(b.Context(), shipped(b), policy.Options{})
	if err != nil {
		b.Fatal(err)
	}
	input := policy.ExamplePolicyInput()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Decide(b.Context(), input, now); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCondition measures a compiled condition, from the bytes of a full input.
func BenchmarkCondition(b *testing.B) {
	c, err := policy.CompileCondition(b.Context(), enoughCPU)
	if err != nil {
		b.Fatal(err)
	}
	input := policy.ExamplePolicyInput()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := c.EvaluateInput(b.Context(), input, now); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	files := shipped(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := policy.CompileAndTest(b.Context(), files, policy.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

const enoughCPU = `package precondition.scale
import rego.v1
default allow := false
allow if {
	input.cluster.availableCPU >= 500
	input.cluster.readyNodes >= 3
}
message := sprintf("%d millicores are free, and 500 are needed", [input.cluster.availableCPU]) if not allow
`
