package action

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// maxPolicySpec limits the spec of a policy, which a plan contains twice.
const maxPolicySpec = 8 << 10

type networkPolicyParameters struct {
	NetworkPolicy string          `json:"networkpolicy" doc:"Name of the NetworkPolicy." required:"true" format:"dns-subdomain" target:"name"`
	Namespace     string          `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	Spec          json.RawMessage `json:"spec" doc:"The complete new spec; at most 8192 bytes." required:"true"`
}

func newUpdateNetworkPolicyAction() *Action {
	return newAction(entry[networkPolicyParameters]{
		Action: Action{
			Name:    "update_network_policy",
			Summary: "Replace the spec of a NetworkPolicy.",
			Kubectl: `kubectl patch networkpolicy web -n shop --type json -p '[{"op":"replace","path":"/spec","value":{…}}]'`,
			Kinds:   []string{"NetworkPolicy"},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Group: "networking.k8s.io", Resource: "networkpolicies", Verbs: []string{"get", "patch"}, Why: "read and replace the spec"},
			},
			Timeout: time.Minute, MaxTimeout: maxTimeout, Retries: 0,
			Risk: RiskHigh, Idempotent: true, Reversible: true, Rollback: "update_network_policy",
		},
		did: "updated",
		check: func(p *networkPolicyParameters) []string {
			if len(p.Spec) > maxPolicySpec {
				return []string{fmt.Sprintf("spec: must be at most %d bytes, is %d", maxPolicySpec, len(p.Spec))}
			}
			if _, problem := parseAndDefaultPolicySpec(p.Spec); problem != "" {
				return []string{"spec: " + problem}
			}
			return nil
		},
		values: func(_ *networkPolicyParameters, live *unstructured.Unstructured) map[string]any {
			return map[string]any{"spec": live.Object["spec"]}
		},
		draft: draftNetworkPolicyUpdate,
	})
}

func draftNetworkPolicyUpdate(
	_ context.Context,
	_ Client,
	s Subject,
	p *networkPolicyParameters,
	live *unstructured.Unstructured,
) (*draft, error) {
	spec, problem := parseAndDefaultPolicySpec(p.Spec)
	if problem != "" {
		return nil, &InvalidError{Action: "update_network_policy", Problems: []string{"spec: " + problem}}
	}
	before := live.Object["spec"]
	d := &draft{before: map[string]any{"spec": before}, after: map[string]any{"spec": spec}}
	if reflect.DeepEqual(before, any(spec)) {
		return d, nil
	}
	operations := []any{map[string]any{"op": "replace", "path": "/spec", "value": spec}}
	step, err := newPatchStep(
		live,
		types.JSONPatchType,
		appendMarkerOperation(operations, live, s),
		"replace the spec of NetworkPolicy "+p.Namespace+"/"+p.NetworkPolicy,
	)
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.diff = lineDiff(flattenValue(before), flattenValue(spec))
	d.impact = v1alpha1.EstimatedImpact{ResourcesAffected: 1, Description: "traffic of the selected Pods changes immediately"}
	if len(canonicalValue(before)) > maxPolicySpec {
		d.rollback = noRollback("the previous spec is too large for a plan")
		return d, nil
	}
	d.rollback, err = newRollbackInfo(
		"update_network_policy",
		map[string]any{"networkpolicy": p.NetworkPolicy, "namespace": p.Namespace, "spec": before},
		"10s",
	)
	return d, err
}

// parseAndDefaultPolicySpec returns a spec as the API server stores it: with defaults and without empty fields.
func parseAndDefaultPolicySpec(raw json.RawMessage) (spec map[string]any, problem string) {
	var typed networkPolicySpec
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&typed); err != nil {
		return nil, strings.TrimPrefix(err.Error(), "json: ")
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || given["podSelector"] == nil {
		return nil, "podSelector is required; {} selects all Pods of the namespace"
	}
	if len(typed.PolicyTypes) == 0 {
		typed.PolicyTypes = []string{policyTypeIngress}
		if len(typed.Egress) > 0 {
			typed.PolicyTypes = append(typed.PolicyTypes, policyTypeEgress)
		}
	}
	for i := range typed.Ingress {
		setDefaultProtocols(typed.Ingress[i].Ports)
	}
	for i := range typed.Egress {
		setDefaultProtocols(typed.Egress[i].Ports)
	}
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&typed)
	if err != nil {
		return nil, err.Error()
	}
	return spec, ""
}

func setDefaultProtocols(ports []policyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			ports[i].Protocol = new(protocolTCP)
		}
	}
}
