package action

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func networkPolicy(name string, spec map[string]any) map[string]any {
	return map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": map[string]any{"name": name}, "spec": spec}
}

func TestUpdateNetworkPolicy(t *testing.T) {
	t.Parallel()
	before := map[string]any{"podSelector": map[string]any{}, "ingress": []any{map[string]any{}}, "policyTypes": []any{"Ingress"}}
	trial{
		reason: "with defaults that the API server adds", object: networkPolicy("web", before),
		action: "update_network_policy", parameters: map[string]any{"networkpolicy": "web", "spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"egress":      []any{map[string]any{"ports": []any{map[string]any{"port": 443}}}},
			"ingress":     []any{},
		}},
		did: "updated", before: "spec: {", after: "spec: {",
		foreign: `{"spec":{"policyTypes":["Egress"]}}`, back: "update_network_policy",
	}.run(t)
}

func TestPolicySpec(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason        string
		spec          string
		want, problem string
	}{
		"Defaults":   {"as the API server has them", `{"podSelector":{},"egress":[{"ports":[{"port":1}]}]}`, `{"egress":[{"ports":[{"port":1,"protocol":"TCP"}]}],"podSelector":{},"policyTypes":["Ingress","Egress"]}`, ""},
		"Given":      {"they are not defaults then", `{"podSelector":{},"policyTypes":["Egress"],"ingress":[{"ports":[{"port":"web","protocol":"UDP"}]}]}`, `{"ingress":[{"ports":[{"port":"web","protocol":"UDP"}]}],"podSelector":{},"policyTypes":["Egress"]}`, ""},
		"NoSelector": {"it would be all Pods by mistake", `{"ingress":[]}`, "", "podSelector"},
		"Misspelt":   {"it would be ignored", `{"podSelector":{},"ingres":[]}`, "", `"ingres"`},
		"Mistyped":   {"", `{"podSelector":{},"ingress":"all"}`, "", "ingress"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, problem := parseAndDefaultPolicySpec(json.RawMessage(tc.spec))
			if tc.problem != "" {
				if !strings.Contains(problem, tc.problem) {
					t.Errorf("%s: problem %q, want %q", tc.reason, problem, tc.problem)
				}
				return
			}
			if problem != "" {
				t.Fatal(problem)
			}
			if diff := cmp.Diff(tc.want, canonicalValue(spec)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
