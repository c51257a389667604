package action

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

type releaseParameters struct {
	Pod       string            `json:"pod" doc:"Name of the Pod." required:"true" format:"dns-subdomain" target:"name"`
	Namespace string            `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	Labels    map[string]string `json:"labels" doc:"The original labels of the Pod." required:"true" format:"label-value" keys:"label-key"`
}

func newReleasePodAction() *Action {
	return newAction(entry[releaseParameters]{
		Action: Action{
			Name:    "release_pod",
			Summary: "Release a Pod from quarantine.",
			Kubectl: "kubectl label pod POD kubernaut.io/quarantine- app=web; kubectl delete networkpolicy quarantine-ID",
			Kinds:   []string{"Pod"},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Resource: "pods", Verbs: []string{"get", "patch"}, Why: "restore the labels of the Pod"},
				{
					Group:    "networking.k8s.io",
					Resource: "networkpolicies",
					Verbs:    []string{"get", "delete"},
					Why:      "delete the policy that blocks its traffic",
				},
			},
			Timeout: time.Minute, MaxTimeout: maxTimeout, Retries: 1,
			Risk: RiskMedium, Idempotent: true, Reversible: true, Rollback: "quarantine_pod",
		},
		did:    "released",
		values: func(_ *releaseParameters, live *unstructured.Unstructured) map[string]any { return labelsField(live) },
		draft:  draftPodRelease,
	})
}

func draftPodRelease(ctx context.Context, c Client, s Subject, p *releaseParameters, live *unstructured.Unstructured) (*draft, error) {
	wanted := map[string]any{}
	labels := map[string]any{}
	for key := range live.GetLabels() {
		labels[key] = nil
	}
	for key, value := range p.Labels {
		wanted[key], labels[key] = value, value
	}
	d := &draft{before: labelsField(live), after: map[string]any{"labels": wanted}}
	if len(describeDifferences(d.before, d.after)) == 0 {
		return d, nil
	}
	if live.GetLabels()[LabelQuarantine] != quarantineID(live.GetUID()) {
		return nil, newRefusal(v1alpha1.DetailInvalidTargetState, "Pod %s/%s is not in quarantine", p.Namespace, p.Pod)
	}
	policy, err := c.getObjectOnce(
		ctx,
		v1alpha1.Target{
			APIVersion: "networking.k8s.io/v1",
			Kind:       "NetworkPolicy",
			Namespace:  p.Namespace,
			Name:       quarantinePolicyName(live.GetUID()),
		},
	)
	switch {
	case apierrors.IsNotFound(err): // already removed
	case err != nil:
		return nil, err
	default:
		step, err := newDeleteStep(policy, nil, fmt.Sprintf("allow traffic of Pod %s/%s again", p.Namespace, p.Pod))
		if err != nil {
			return nil, err
		}
		d.steps = append(d.steps, step)
		d.diff = "- networkpolicy " + policy.GetName() + "\n"
	}
	relabel, err := newPatchStep(live, types.MergePatchType, addMarker(map[string]any{"metadata": map[string]any{"labels": labels}}, s),
		fmt.Sprintf("restore the labels of Pod %s/%s", p.Namespace, p.Pod))
	if err != nil {
		return nil, err
	}
	d.steps = append(d.steps, relabel)
	d.diff = labelsDiff(live.GetLabels(), p.Labels) + d.diff
	d.impact = v1alpha1.EstimatedImpact{ResourcesAffected: int32(len(d.steps)), Description: "its Services and its controller select it again; the controller may delete a surplus Pod"} //nolint:gosec // two at most
	d.rollback, err = newRollbackInfo("quarantine_pod", map[string]any{"pod": p.Pod, "namespace": p.Namespace}, "10s")
	return d, err
}
