package policy_test

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/internal/policy"
)

func TestShippedPolicies(t *testing.T) {
	st := policy.NewStore(0, nil)
	if err := st.LoadPolicies(t.Context(), shipped(t), policy.Enforce); err != nil {
		t.Fatal(err)
	}
	if got := st.GetStatus().Tests; got < 40 {
		t.Errorf("the shipped policies bring %d tests along, want all of them", got)
	}
	cases := map[string]struct {
		reason string
		set    map[string]any
		want   policy.Decision
	}{
		"Example": {
			reason: "medium risk in production",
			want: policy.Decision{
				Allow: true, RequireDryRun: true, RequireApproval: true, Approvals: policy.Approvals{Count: 1, RequesterCannotApprove: true},
			},
		},
		"Development": {
			reason: "where mistakes are cheap it is tried out, and nobody is asked",
			set:    map[string]any{"namespace.environment": "development"},
			want:   policy.Decision{Allow: true, RequireDryRun: true, Approvals: policy.Approvals{Count: 1}},
		},
		"CriticalToZero": {
			reason: "the example is critical",
			set:    map[string]any{"request.parameters.replicas": 0},
			want: policy.Decision{
				Violations: []string{"web is critical and must not be scaled to zero"}, RequireDryRun: true, RequireApproval: true,
				Approvals: policy.Approvals{Count: 1, RequesterCannotApprove: true},
			},
		},
		"FirstEvaluation": {
			reason: "there is no plan yet",
			set:    map[string]any{"plan": removed},
			want: policy.Decision{
				Allow: true, RequireDryRun: true, RequireApproval: true, Approvals: policy.Approvals{Count: 1, RequesterCannotApprove: true},
			},
		},
		"Assistant": {
			reason: "where people need no approval, an assistant does, and its user cannot give it",
			set:    map[string]any{"namespace.environment": "development", "request.requestedByAgent": "claude-code 2.1"},
			want: policy.Decision{
				Allow: true, RequireDryRun: true, RequireApproval: true, Approvals: policy.Approvals{Count: 1, RequesterCannotApprove: true},
				Warnings: []string{"approval required: requested by the assistant claude-code 2.1"},
			},
		},
		"NullMaps": {
			reason: "Go writes a map that is not there as null",
			set:    map[string]any{"target.labels": nil, "namespace.labels": nil, "target.ownerChain": nil, "inflight.byAction": nil},
			want: policy.Decision{
				Allow: true, RequireDryRun: true, RequireApproval: true, Approvals: policy.Approvals{Count: 1, RequesterCannotApprove: true},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, _, err := st.Decide(t.Context(), example(t, tc.set), now)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.PolicyName, tc.want.Mode = "fleetloop-default-v1", "enforce"
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// TestEveryShippedRuleIsTested removes each rule and requires that a test or a canary fails.
// Otherwise a change could break the rule unnoticed.
func TestEveryShippedRuleIsTested(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the policies once for each rule")
	}
	files := shipped(t)
	tried := 0
	for name, text := range files {
		if strings.HasSuffix(name, "_test.rego") || name == "config.rego" {
			continue
		}
		blocks := strings.Split(text, "\n\n")
		for i, block := range blocks {
			head := strings.TrimSpace(block)
			if !strings.HasPrefix(head, "violations contains") && !strings.HasPrefix(head, "warnings contains") && !strings.HasPrefix(head, "approval_reasons contains") && !strings.HasPrefix(head, "fought contains") {
				continue
			}
			tried++
			less := maps.Clone(files)
			less[name] = strings.Join(append(append([]string{}, blocks[:i]...), blocks[i+1:]...), "\n\n")
			if _, err := policy.CompileAndTest(t.Context(), less, policy.Options{}); err == nil {
				t.Errorf("%s: nothing fails without\n%s", name, block)
			}
		}
	}
	if tried < 20 {
		t.Errorf("%d rules were looked at, want all", tried)
	}
}

func TestKustomizationHasEveryPolicy(t *testing.T) {
	text, err := os.ReadFile("../../deploy/policies/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		ConfigMapGenerator []struct {
			Name  string
			Files []string
		}
	}
	if err := yaml.Unmarshal(text, &k); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, file := range k.ConfigMapGenerator[0].Files {
		got[file] = true
	}
	want := map[string]bool{}
	for name := range shipped(t) {
		want[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deploy/policies/kustomization.yaml: -want +got\n%s", diff)
	}
}
