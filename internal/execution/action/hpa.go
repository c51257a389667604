package action

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

type updateHPAParameters struct {
	HPA         string `json:"hpa" doc:"The HorizontalPodAutoscaler." required:"true" format:"dns-subdomain" target:"name"`
	Namespace   string `json:"namespace" doc:"Its namespace." required:"true" format:"dns-label" target:"namespace"`
	MinReplicas *int64 `json:"minReplicas" doc:"How many replicas there are at least." min:"1" max:"1000"`
	MaxReplicas *int64 `json:"maxReplicas" doc:"How many replicas there are at most." min:"1" max:"1000"`
}

func updateHPA() *Action {
	return define(entry[updateHPAParameters]{
		Action: Action{
			Name:    "update_hpa",
			Summary: "Set the bounds of a HorizontalPodAutoscaler.",
			Kubectl: "kubectl patch hpa/NAME --type=merge -p '{\"spec\":{\"maxReplicas\":N}}'",
			Kinds:   []string{"HorizontalPodAutoscaler"},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Group: "autoscaling", Resource: "horizontalpodautoscalers", Verbs: []string{"get", "patch"}, Why: "set the bounds"},
			},
			Timeout: time.Minute, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskLow, Idempotent: true, Reversible: true, Rollback: "update_hpa",
		},
		check: func(p *updateHPAParameters) []string {
			switch {
			case p.MinReplicas == nil && p.MaxReplicas == nil:
				return []string{"minReplicas, maxReplicas: one is required"}
			case p.MinReplicas != nil && p.MaxReplicas != nil && *p.MinReplicas > *p.MaxReplicas:
				return []string{fmt.Sprintf("minReplicas: %d is more than maxReplicas, %d", *p.MinReplicas, *p.MaxReplicas)}
			}
			return nil
		},
		draft:  draftHPA,
		values: boundsOf,
		did:    "patched",
	})
}

// boundsOf are the bounds that the parameters are about.
func boundsOf(p *updateHPAParameters, live *unstructured.Unstructured) map[string]any {
	values := map[string]any{}
	if p.MinReplicas != nil {
		values["minReplicas"] = boundOf(live, "minReplicas")
	}
	if p.MaxReplicas != nil {
		values["maxReplicas"] = boundOf(live, "maxReplicas")
	}
	return values
}

// boundOf is one bound; one that is not given is 1.
func boundOf(live *unstructured.Unstructured, name string) int64 {
	n, found, err := unstructured.NestedInt64(live.Object, "spec", name)
	if err != nil || !found {
		return 1
	}
	return n
}

func draftHPA(_ context.Context, _ Client, s Subject, p *updateHPAParameters, live *unstructured.Unstructured) (*draft, error) {
	name := named(targetOfObject(live))
	least, most := boundOf(live, "minReplicas"), boundOf(live, "maxReplicas")
	d := &draft{before: boundsOf(p, live), after: map[string]any{}}
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
		return nil, &InvalidError{Action: "update_hpa", Problems: []string{fmt.Sprintf("minReplicas: would be %d, which is more than maxReplicas, %d", least, most)}}
	}
	if len(differences(d.before, d.after)) == 0 {
		d.impact.Description = name + " has these bounds already"
		return d, nil
	}
	step, err := patchStep(live, types.MergePatchType, marked(map[string]any{"spec": spec}, s), fmt.Sprintf("set %s of %s", fieldsText(d.after), name))
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{ResourcesAffected: 1, Description: fmt.Sprintf("%s keeps between %d and %d replicas", name, least, most)}
	back := map[string]any{"hpa": p.HPA, "namespace": p.Namespace}
	maps.Copy(back, d.before)
	d.rollback, err = wayBackBy("update_hpa", back, "10s")
	return d, err
}
