package action

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// mirrorAnnotation marks Pods that a kubelet runs from a file. Deleting such a Pod deletes only its
// object in the API server, and no container.
const mirrorAnnotation = "kubernetes.io/config.mirror"

type podParameters struct {
	Pod                string `json:"pod" doc:"Name of the Pod." required:"true" format:"dns-subdomain" target:"name"`
	Namespace          string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds" doc:"Termination grace period in seconds. Defaults to that of the Pod." min:"0" max:"3600"`
	Evict              bool   `json:"evict" doc:"Evict the Pod, so that PodDisruptionBudgets are respected." default:"false"`
}

func newRestartPodAction() *Action {
	a := newPodDeletionEntry("restart_pod", "Delete a Pod that its controller then replaces.")
	a.Risk = RiskMedium
	a.draft = func(_ context.Context, _ Client, _ Subject, p *podParameters, live *unstructured.Unstructured) (*draft, error) {
		owner := metav1.GetControllerOf(live)
		if owner == nil {
			return nil, newRefusal(
				v1alpha1.DetailInvalidTargetState,
				"%s has no controller that would replace it: use delete_pod",
				formatTarget(targetOfObject(live)),
			)
		}
		return draftPodDeletionOrEviction(
			p,
			live,
			fmt.Sprintf("%s is deleted, and %s %s replaces it", formatTarget(targetOfObject(live)), owner.Kind, owner.Name),
		)
	}
	return newAction(a)
}

func newDeletePodAction() *Action {
	a := newPodDeletionEntry("delete_pod", "Delete a Pod, whether or not a controller replaces it.")
	a.Risk = RiskHigh
	a.draft = func(_ context.Context, _ Client, _ Subject, p *podParameters, live *unstructured.Unstructured) (*draft, error) {
		is := "nothing replaces it"
		if owner := metav1.GetControllerOf(live); owner != nil {
			is = owner.Kind + " " + owner.Name + " replaces it"
		}
		return draftPodDeletionOrEviction(p, live, fmt.Sprintf("%s is deleted, and %s", formatTarget(targetOfObject(live)), is))
	}
	return newAction(a)
}

// newPodDeletionEntry returns the common entry of restart_pod and delete_pod.
func newPodDeletionEntry(name, summary string) entry[podParameters] {
	return entry[podParameters]{
		Action: Action{
			Name:    name,
			Summary: summary,
			Kubectl: "kubectl delete pod/NAME",
			Kinds:   []string{kindPod},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Resource: "pods", Verbs: []string{"get", "delete"}, Why: "read and delete the Pod"},
				{Resource: "pods", Subresource: "eviction", Verbs: []string{"create"}, Why: "evict the Pod"},
			},
			Timeout: time.Minute, MaxTimeout: maxTimeout, Retries: 1, Idempotent: true,
		},
		// Only the identity of a Pod matters: a Pod in need of a restart changes all
		// the time.
		values: func(*podParameters, *unstructured.Unstructured) map[string]any { return map[string]any{} },
		did:    "deleted",
	}
}

func draftPodDeletionOrEviction(p *podParameters, live *unstructured.Unstructured, impact string) (*draft, error) {
	name := formatTarget(targetOfObject(live))
	if _, mirror := live.GetAnnotations()[mirrorAnnotation]; mirror {
		return nil, newRefusal(v1alpha1.DetailInvalidTargetState, "%s is a static Pod: only the kubelet of its node can stop it", name)
	}
	options := map[string]any{}
	if p.GracePeriodSeconds != nil {
		options["gracePeriodSeconds"] = *p.GracePeriodSeconds
	}
	step, err := newDeleteStep(live, options, "delete "+name)
	if err != nil {
		return nil, err
	}
	if p.Evict {
		step.Verb, step.Subresource, step.Description = verbEvict, "eviction", "evict "+name
	}
	return &draft{
		steps:  []v1alpha1.PlanStep{step},
		diff:   "- " + name + "\n",
		impact: v1alpha1.EstimatedImpact{ResourcesAffected: 1, Description: impact},
	}, nil
}
