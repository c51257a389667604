package action

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

type nodeParameters struct {
	Node string `json:"node" doc:"Name of the Node." required:"true" format:"dns-subdomain" target:"name"`
}

func newCordonNodeAction() *Action {
	return newCordonAction(true, Action{
		Name:     "cordon_node",
		Summary:  "Mark a Node as unschedulable.",
		Kubectl:  "kubectl cordon node-1",
		Rollback: "uncordon_node",
	}, "cordoned")
}

func newUncordonNodeAction() *Action {
	return newCordonAction(false, Action{
		Name:     "uncordon_node",
		Summary:  "Mark a Node as schedulable.",
		Kubectl:  "kubectl uncordon node-1",
		Rollback: "cordon_node",
	}, "uncordoned")
}

// newCordonAction returns an action that cordons or uncordons a Node.
func newCordonAction(unschedulable bool, a Action, did string) *Action {
	back := a.Rollback
	a.Kinds, a.Scope = []string{"Node"}, Cluster
	a.Permissions = []Permission{
		{Resource: "nodes", Verbs: []string{"get", "patch"}, ClusterScoped: true, Why: "read and change spec.unschedulable"},
	}
	a.Timeout, a.MaxTimeout, a.Retries = 30*time.Second, maxTimeout, 2
	a.Risk, a.Idempotent, a.Reversible = RiskMedium, true, true
	return newAction(entry[nodeParameters]{
		Action: a,
		did:    did,
		values: func(_ *nodeParameters, live *unstructured.Unstructured) map[string]any {
			return unschedulableField(live)
		},
		draft: func(_ context.Context, _ Client, s Subject, p *nodeParameters, live *unstructured.Unstructured) (*draft, error) {
			d := &draft{before: unschedulableField(live), after: map[string]any{"unschedulable": unschedulable}}
			if d.before["unschedulable"] == unschedulable {
				return d, nil
			}
			step, err := newCordonStep(live, unschedulable, s)
			if err != nil {
				return nil, err
			}
			d.steps = []v1alpha1.PlanStep{step}
			d.impact = v1alpha1.EstimatedImpact{ResourcesAffected: 1, Description: "running Pods stay"}
			d.rollback, err = newRollbackInfo(back, map[string]any{"node": p.Node}, "5s")
			return d, err
		},
	})
}

// unschedulableField returns whether a Node is cordoned.
func unschedulableField(live *unstructured.Unstructured) map[string]any {
	closed, _, err := unstructured.NestedBool(live.Object, "spec", "unschedulable")
	return map[string]any{"unschedulable": closed && err == nil}
}

func newCordonStep(live *unstructured.Unstructured, unschedulable bool, marker Subject) (v1alpha1.PlanStep, error) {
	var value any // schedulable is an absent field, as in kubectl
	description := "uncordon Node " + live.GetName()
	if unschedulable {
		value, description = true, "cordon Node "+live.GetName()
	}
	return newPatchStep(
		live,
		types.MergePatchType,
		addMarker(map[string]any{"spec": map[string]any{"unschedulable": value}}, marker),
		description,
	)
}
