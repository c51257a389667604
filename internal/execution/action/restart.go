package action

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// restartedAt is the template annotation that kubectl uses for restarts.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

type rolloutRestartParameters struct {
	Kind      string `json:"kind" doc:"Kind of the workload." required:"true" enum:"Deployment,StatefulSet,DaemonSet" target:"kind"`
	Name      string `json:"name" doc:"Name of the workload. Can also be set as deployment, statefulset or daemonset, without kind." required:"true" format:"dns-subdomain" target:"name"`
	Namespace string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
}

func newRolloutRestartAction() *Action {
	verbs := []string{"get", "patch"}
	return newAction(entry[rolloutRestartParameters]{
		Action: Action{
			Name:    "rollout_restart",
			Summary: "Restart a Deployment, StatefulSet or DaemonSet by a rollout.",
			Kubectl: "kubectl rollout restart KIND/NAME",
			Aliases: []string{"restart_deployment", "restart_statefulset", "restart_daemonset"},
			Kinds:   []string{kindDeployment, kindStatefulSet, kindDaemonSet},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Group: groupApps, Resource: "deployments", Verbs: verbs, Why: "restart a Deployment"},
				{Group: groupApps, Resource: "statefulsets", Verbs: verbs, Why: "restart a StatefulSet"},
				{Group: groupApps, Resource: "daemonsets", Verbs: verbs, Why: "restart a DaemonSet"},
			},
			Timeout: 2 * time.Minute, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskLow, Idempotent: true,
		},
		spell: normalizeWorkloadParameters,
		draft: draftRestart,
		values: func(_ *rolloutRestartParameters, live *unstructured.Unstructured) map[string]any {
			at, found, err := unstructured.NestedString(live.Object, "spec", "template", "metadata", "annotations", restartedAt)
			if err != nil || !found {
				return map[string]any{"restartedAt": nil}
			}
			return map[string]any{"restartedAt": at}
		},
		did: "restarted",
	})
}

// normalizeWorkloadParameters converts {"daemonset": "x"} to {"kind": "DaemonSet", "name": "x"}, and takes the
// kind from an alias.
func normalizeWorkloadParameters(requestedAction string, raw map[string]json.RawMessage) (problems []string) {
	for _, kind := range []string{kindDeployment, kindStatefulSet, kindDaemonSet} {
		short := strings.ToLower(kind)
		name, named := raw[short]
		if !named && requestedAction != "restart_"+short {
			continue
		}
		is, _ := json.Marshal(kind) // encoding a string cannot fail
		if given, ok := raw["kind"]; ok && string(given) != string(is) {
			return []string{fmt.Sprintf("kind: is %s, but the parameters name a %s", TruncateText(string(given), 64), kind)}
		}
		raw["kind"] = is
		if !named {
			continue
		}
		if _, both := raw["name"]; both {
			return []string{"name: is also set as " + short}
		}
		delete(raw, short)
		raw["name"] = name
	}
	return nil
}

func draftRestart(_ context.Context, _ Client, s Subject, _ *rolloutRestartParameters, live *unstructured.Unstructured) (*draft, error) {
	name := formatTarget(targetOfObject(live))
	if isPaused(live) {
		return nil, newRefusal(v1alpha1.DetailInvalidTargetState, "%s is paused: resume its rollout first", name)
	}
	if strategy, _, err := unstructured.NestedString(live.Object, "spec", "updateStrategy", "type"); err == nil && strategy == "OnDelete" {
		return nil, newRefusal(v1alpha1.DetailInvalidTargetState, "%s has update strategy OnDelete and replaces Pods only when they are deleted: use restart_pod", name)
	}
	was, _, err := unstructured.NestedString(live.Object, "spec", "template", "metadata", "annotations", restartedAt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	now := s.Created.UTC().Format(time.RFC3339)
	d := &draft{before: map[string]any{"restartedAt": nil}, after: map[string]any{"restartedAt": now}}
	if was != "" {
		d.before["restartedAt"] = was
	}
	if was == now {
		d.impact.Description = name + " was already restarted in this second"
		return d, nil
	}
	body := map[string]any{
		"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]any{restartedAt: now}}}},
	}
	step, err := newPatchStep(live, types.MergePatchType, addMarker(body, s), "restart "+name)
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: 1,
		Description:       name + " replaces all of its Pods according to its rollout strategy",
	}
	return d, nil
}
