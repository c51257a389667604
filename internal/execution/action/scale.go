package action

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

type scaleDeploymentParameters struct {
	Deployment string `json:"deployment" doc:"Name of the Deployment." required:"true" format:"dns-subdomain" target:"name"`
	Namespace  string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	Replicas   int64  `json:"replicas" doc:"Number of replicas." required:"true" min:"0" max:"1000"`
}

func newScaleDeploymentAction() *Action {
	return newAction(entry[scaleDeploymentParameters]{
		Action: Action{
			Name:    "scale_deployment",
			Summary: "Set the number of replicas of a Deployment.",
			Kubectl: "kubectl scale deployment/NAME --replicas=N",
			Kinds:   []string{kindDeployment},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Group: groupApps, Resource: "deployments", Verbs: []string{"get"}, Why: "read the number of replicas"},
				{Group: groupApps, Resource: "deployments", Subresource: "scale", Verbs: []string{"patch"}, Why: "set the number of replicas"},
			},
			Timeout: 2 * time.Minute, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskMedium, Idempotent: true, Reversible: true, Rollback: "scale_deployment",
		},
		draft: func(_ context.Context, _ Client, _ Subject, p *scaleDeploymentParameters, live *unstructured.Unstructured) (*draft, error) {
			return draftScale(live, p.Replicas, "scale_deployment", "deployment")
		},
		values: func(_ *scaleDeploymentParameters, live *unstructured.Unstructured) map[string]any {
			return replicasFieldOrDefault(live)
		},
		did: "scaled",
	})
}

type scaleStatefulSetParameters struct {
	StatefulSet string `json:"statefulset" doc:"Name of the StatefulSet." required:"true" format:"dns-subdomain" target:"name"`
	Namespace   string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	Replicas    int64  `json:"replicas" doc:"Number of replicas." required:"true" min:"0" max:"1000"`
}

func newScaleStatefulSetAction() *Action {
	return newAction(entry[scaleStatefulSetParameters]{
		Action: Action{
			Name:    "scale_statefulset",
			Summary: "Set the number of replicas of a StatefulSet.",
			Kubectl: "kubectl scale statefulset/NAME --replicas=N",
			Kinds:   []string{kindStatefulSet},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Group: groupApps, Resource: "statefulsets", Verbs: []string{"get"}, Why: "read the number of replicas"},
				{Group: groupApps, Resource: "statefulsets", Subresource: "scale", Verbs: []string{"patch"}, Why: "set the number of replicas"},
			},
			Timeout: 5 * time.Minute, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskMedium, Idempotent: true, Reversible: true, Rollback: "scale_statefulset",
		},
		draft: func(_ context.Context, _ Client, _ Subject, p *scaleStatefulSetParameters, live *unstructured.Unstructured) (*draft, error) {
			return draftScale(live, p.Replicas, "scale_statefulset", "statefulset")
		},
		values: func(_ *scaleStatefulSetParameters, live *unstructured.Unstructured) map[string]any {
			return replicasFieldOrDefault(live)
		},
		did: "scaled",
	})
}

// replicasFieldOrDefault returns the replicas of a workload or a Scale. Unset means 1 for a workload, and 0 for
// a Scale.
func replicasFieldOrDefault(live *unstructured.Unstructured) map[string]any {
	var otherwise int64 = 1
	if live.GetKind() == "Scale" {
		otherwise = 0
	}
	n, found, err := unstructured.NestedInt64(live.Object, "spec", "replicas")
	if err != nil || !found {
		n = otherwise
	}
	return map[string]any{"replicas": n}
}

// draftScale drafts a change of replicas. targetParameter is the name of the target parameter in the
// rollback action.
func draftScale(live *unstructured.Unstructured, replicas int64, rollbackAction, targetParameter string) (*draft, error) {
	before := replicasFieldOrDefault(live)
	was := before["replicas"]
	name := formatTarget(targetOfObject(live))
	d := &draft{before: before, after: map[string]any{"replicas": replicas}}
	if was == replicas {
		d.impact.Description = fmt.Sprintf("%s already has %d replicas", name, replicas)
		return d, nil
	}
	step, err := newScaleStep(live, replicas, fmt.Sprintf("scale %s from %d to %d replicas", name, was, replicas))
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: 1,
		ReplicasChanged:   fmt.Sprintf("%d -> %d", was, replicas),
		Description:       fmt.Sprintf("%s is scaled from %d to %d replicas", name, was, replicas),
	}
	d.rollback, err = newRollbackInfo(
		rollbackAction,
		map[string]any{targetParameter: live.GetName(), "namespace": live.GetNamespace(), "replicas": was},
		"10s",
	)
	return d, err
}
