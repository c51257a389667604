package action

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

type updateHPAParameters struct {
	HPA         string `json:"hpa" doc:"Name of the HorizontalPodAutoscaler." required:"true" format:"dns-subdomain" target:"name"`
	Namespace   string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	MinReplicas *int64 `json:"minReplicas" doc:"Minimum number of replicas." min:"1" max:"1000"`
	MaxReplicas *int64 `json:"maxReplicas" doc:"Maximum number of replicas." min:"1" max:"1000"`
}

func newUpdateHPAAction() *Action {
	return newAction(entry[updateHPAParameters]{
		Action: Action{
			Name:    "update_hpa",
			Summary: "Set the minimum and maximum replicas of a HorizontalPodAutoscaler.",
			Kubectl: "kubectl patch hpa/NAME --type=merge -p '{\"spec\":{\"maxReplicas\":N}}'",
			Kinds:   []string{"HorizontalPodAutoscaler"},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Group: "autoscaling", Resource: "horizontalpodautoscalers", Verbs: []string{"get", "patch"}, Why: "set minimum and maximum replicas"},
				{Group: groupApps, Resource: "deployments", Verbs: []string{"get"}, Why: "check whether the scaled Deployment is critical or protected"},
				{Group: groupApps, Resource: "statefulsets", Verbs: []string{"get"}, Why: "check whether the scaled StatefulSet is critical or protected"},
			},
			Timeout: time.Minute, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskMedium, Idempotent: true, Reversible: true, Rollback: "update_hpa",
		},
		check: func(p *updateHPAParameters) []string {
			switch {
			case p.MinReplicas == nil && p.MaxReplicas == nil:
				return []string{"at least one of minReplicas and maxReplicas is required"}
			case p.MinReplicas != nil && p.MaxReplicas != nil && *p.MinReplicas > *p.MaxReplicas:
				return []string{fmt.Sprintf("minReplicas: %d is more than maxReplicas %d", *p.MinReplicas, *p.MaxReplicas)}
			}
			return nil
		},
		draft:  draftHPAUpdate,
		values: currentBounds,
		did:    "patched",
	})
}

// currentBounds returns the bounds that the parameters set.
func currentBounds(p *updateHPAParameters, live *unstructured.Unstructured) map[string]any {
	values := map[string]any{}
	if p.MinReplicas != nil {
		values["minReplicas"] = currentBoundOrOne(live, "minReplicas")
	}
	if p.MaxReplicas != nil {
		values["maxReplicas"] = currentBoundOrOne(live, "maxReplicas")
	}
	return values
}

// currentBoundOrOne returns one bound; a missing one is 1.
func currentBoundOrOne(live *unstructured.Unstructured, name string) int64 {
	n, found, err := unstructured.NestedInt64(live.Object, "spec", name)
	if err != nil || !found {
		return 1
	}
	return n
}

// ScaleTargetOf returns the object that a HorizontalPodAutoscaler scales. Kind is empty for any other
// object, and for a kind that update_hpa cannot read.
func ScaleTargetOf(live *unstructured.Unstructured) v1alpha1.Target {
	if live == nil || live.GetKind() != "HorizontalPodAutoscaler" {
		return v1alpha1.Target{}
	}
	ref, _, _ := unstructured.NestedStringMap(live.Object, "spec", "scaleTargetRef") // all fields are strings
	gv, err := schema.ParseGroupVersion(ref["apiVersion"])
	if err != nil || gv.Group != groupApps || ref["kind"] != kindDeployment && ref["kind"] != kindStatefulSet {
		return v1alpha1.Target{}
	}
	return v1alpha1.Target{APIVersion: "apps/v1", Kind: ref["kind"], Namespace: live.GetNamespace(), Name: ref["name"]}
}

// refuseUncheckableScaleTarget reads the object that a HorizontalPodAutoscaler scales, so that policies see it.
// A missing object cannot be harmed and is no error.
func refuseUncheckableScaleTarget(ctx context.Context, c Client, live *unstructured.Unstructured) error {
	scaled := ScaleTargetOf(live)
	if scaled.Kind == "" {
		kind, _, _ := unstructured.NestedString(live.Object, "spec", "scaleTargetRef", "kind")
		return newRefusal(
			v1alpha1.DetailInvalidTargetState,
			"%s scales a %s: update_hpa supports only Deployments and StatefulSets, whose protection it can check",
			formatTarget(targetOfObject(live)),
			describeKind(kind),
		)
	}
	if _, err := c.getObjectOnce(ctx, scaled); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func draftHPAUpdate(ctx context.Context, c Client, s Subject, p *updateHPAParameters, live *unstructured.Unstructured) (*draft, error) {
	if err := refuseUncheckableScaleTarget(ctx, c, live); err != nil {
		return nil, err
	}
	name := formatTarget(targetOfObject(live))
	least, most := currentBoundOrOne(live, "minReplicas"), currentBoundOrOne(live, "maxReplicas")
	d := &draft{before: currentBounds(p, live), after: map[string]any{}}
	spec := map[string]any{}
	if p.MinReplicas != nil {
		d.after["minReplicas"], spec["minReplicas"] = *p.MinReplicas, *p.MinReplicas
		least = *p.MinReplicas
	}
	if p.MaxReplicas != nil {
		d.after["maxReplicas"], spec["maxReplicas"] = *p.MaxReplicas, *p.MaxReplicas
		most = *p.MaxReplicas
	}
	if least > most {
		return nil, &InvalidError{
			Action:   "update_hpa",
			Problems: []string{fmt.Sprintf("minReplicas: %d is more than maxReplicas %d", least, most)},
		}
	}
	if len(describeDifferences(d.before, d.after)) == 0 {
		d.impact.Description = name + " already has these values"
		return d, nil
	}
	step, err := newPatchStep(
		live,
		types.MergePatchType,
		addMarker(map[string]any{"spec": spec}, s),
		fmt.Sprintf("set %s of %s", formatFields(d.after), name),
	)
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: 1,
		Description:       fmt.Sprintf("%s keeps between %d and %d replicas", name, least, most),
	}
	back := map[string]any{"hpa": p.HPA, "namespace": p.Namespace}
	maps.Copy(back, d.before)
	d.rollback, err = newRollbackInfo("update_hpa", back, "10s")
	return d, err
}
