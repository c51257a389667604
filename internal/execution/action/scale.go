package action

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

type scaleDeploymentParameters struct {
	Deployment string `json:"deployment" doc:"The Deployment." required:"true" format:"dns-subdomain" target:"name"`
	Namespace  string `json:"namespace" doc:"Its namespace." required:"true" format:"dns-label" target:"namespace"`
	Replicas   int64  `json:"replicas" doc:"How many replicas it is to have." required:"true" min:"0" max:"1000"`
}

func scaleDeployment() *Action {
	return define(entry[scaleDeploymentParameters]{
		Action: Action{
			Name:    "scale_deployment",
			Summary: "Set how many replicas a Deployment has.",
			Kubectl: "kubectl scale deployment/NAME --replicas=N",
			Kinds:   []string{"Deployment"},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Group: "apps", Resource: "deployments", Verbs: []string{"get"}, Why: "read how many there are"},
				{Group: "apps", Resource: "deployments", Subresource: "scale", Verbs: []string{"get", "patch"}, Why: "set how many there are"},
			},
			Timeout: 2 * time.Minute, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskMedium, Idempotent: true, Reversible: true, Rollback: "scale_deployment",
		},
		draft: func(_ context.Context, _ Client, _ Subject, p *scaleDeploymentParameters, live *unstructured.Unstructured) (*draft, error) {
			return draftScale(live, p.Replicas, "scale_deployment", "deployment")
		},
		values: func(_ *scaleDeploymentParameters, live *unstructured.Unstructured) map[string]any {
			return replicasOf(live)
		},
		did: "scaled",
	})
}

// maxTimeout is how long most actions may take at most.
const maxTimeout = 15 * time.Minute

// replicasOf are the replicas of a workload or a Scale. One that does not say
// has 1; a Scale leaves out 0.
func replicasOf(live *unstructured.Unstructured) map[string]any {
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

// draftScale plans another number of replicas. parameter is what the way back
// calls the target.
func draftScale(live *unstructured.Unstructured, replicas int64, back, parameter string) (*draft, error) {
	before := replicasOf(live)
	was := before["replicas"]
	t := targetOfObject(live)
	d := &draft{before: before, after: map[string]any{"replicas": replicas}}
	if was == replicas {
		d.impact.Description = fmt.Sprintf("%s has %d replicas already", named(t), replicas)
		return d, nil
	}
	step, err := scaleStep(live, replicas, fmt.Sprintf("scale %s from %d to %d replicas", named(t), was, replicas))
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: 1,
		ReplicasChanged:   fmt.Sprintf("%d -> %d", was, replicas),
		Description:       fmt.Sprintf("%s goes from %d to %d replicas", named(t), was, replicas),
	}
	parameters, err := extension(map[string]any{parameter: live.GetName(), "namespace": live.GetNamespace(), "replicas": was})
	if err != nil {
		return nil, err
	}
	d.rollback = wayBackBy(back, parameters, "10s")
	return d, nil
}

// wayBackBy is a way back by an action.
func wayBackBy(name string, parameters *runtime.RawExtension, takes string) *v1alpha1.RollbackInformation {
	return &v1alpha1.RollbackInformation{
		Available: true, RollbackAction: name, RollbackParameters: parameters, EstimatedRollbackDuration: takes,
	}
}

// targetOfObject names a live object.
func targetOfObject(live *unstructured.Unstructured) v1alpha1.Target {
	return v1alpha1.Target{APIVersion: live.GetAPIVersion(), Kind: live.GetKind(), Namespace: live.GetNamespace(), Name: live.GetName()}
}
