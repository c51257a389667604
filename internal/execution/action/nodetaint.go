package action

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

type taintParameters struct {
	Node   string `json:"node" doc:"Name of the Node." required:"true" format:"dns-subdomain" target:"name"`
	Key    string `json:"key" doc:"Key of the taint." required:"true" format:"label-key"`
	Value  string `json:"value" doc:"Value of the taint." format:"label-value"`
	Effect string `json:"effect" doc:"Effect of the taint. NoExecute evicts running Pods that do not tolerate it and ignores PodDisruptionBudgets." required:"true" enum:"NoSchedule,PreferNoSchedule,NoExecute"`
}

type untaintParameters struct {
	Node   string `json:"node" doc:"Name of the Node." required:"true" format:"dns-subdomain" target:"name"`
	Key    string `json:"key" doc:"Key of the taint." required:"true" format:"label-key"`
	Effect string `json:"effect" doc:"Effect of the taint." required:"true" enum:"NoSchedule,PreferNoSchedule,NoExecute"`
}

func newTaintNodeAction() *Action {
	return newAction(newTaintEntry("taint_node", "Add a taint to a Node.", "kubectl taint node node-1 dedicated=batch:NoSchedule --overwrite", "tainted",
		func(p *taintParameters) taint {
			return taint{node: p.Node, key: p.Key, effect: p.Effect, value: &p.Value}
		}))
}

func newUntaintNodeAction() *Action {
	return newAction(
		newTaintEntry("untaint_node", "Remove a taint from a Node.", "kubectl taint node node-1 dedicated:NoSchedule-", "untainted",
			func(p *untaintParameters) taint { return taint{node: p.Node, key: p.Key, effect: p.Effect} }),
	)
}

// A taint is a key with an effect on a Node, which is unique there.
type taint struct {
	node, key, effect string
	value             *string // nil means that the taint is absent
}

// newTaintEntry returns an entry that adds or removes a taint.
func newTaintEntry[P any](name, summary, kubectl, did string, taintOf func(*P) taint) entry[P] {
	return entry[P]{
		Action: Action{
			Name: name, Summary: summary, Kubectl: kubectl,
			Kinds: []string{"Node"}, Scope: Cluster,
			Permissions: []Permission{
				{Resource: "nodes", Verbs: []string{"get", "patch"}, ClusterScoped: true, Why: "read and change the taints"},
			},
			Timeout: 30 * time.Second, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskMedium, Idempotent: true, Reversible: true, Rollback: "untaint_node, or taint_node with the previous value",
		},
		did:    did,
		values: func(p *P, live *unstructured.Unstructured) map[string]any { return taintOf(p).currentField(live) },
		draft: func(_ context.Context, _ Client, s Subject, p *P, live *unstructured.Unstructured) (*draft, error) {
			return taintOf(p).draftTaintChange(s, live)
		},
		run: func(ctx context.Context, c Client, pl *v1alpha1.Plan, p *P, r Run) Result {
			w := newAttempt(c, pl, r)
			return w.buildResult(taintOf(p).sendTaintChange(ctx, w, did))
		},
	}
}

func (t taint) fieldName() string { return "taint " + t.key + ":" + t.effect }

// currentField returns the taint on a Node; the value is nil if it is missing. Other taints are ignored,
// because controllers change them all the time.
func (t taint) currentField(live *unstructured.Unstructured) map[string]any {
	fields := map[string]any{t.fieldName(): nil}
	for _, other := range taintsOf(live) {
		if t.hasSameKeyAndEffect(other) {
			value, _ := other["value"].(string)
			fields[t.fieldName()] = value
		}
	}
	return fields
}

func (t taint) hasSameKeyAndEffect(other map[string]any) bool {
	return other["key"] == t.key && other["effect"] == t.effect
}

func taintsOf(live *unstructured.Unstructured) []map[string]any {
	list, _, err := unstructured.NestedSlice(live.Object, "spec", "taints")
	if err != nil {
		return nil
	}
	var taints []map[string]any
	for _, item := range list {
		if one, ok := item.(map[string]any); ok {
			taints = append(taints, one)
		}
	}
	return taints
}

func (t taint) String() string {
	if t.value == nil || *t.value == "" {
		return t.key + ":" + t.effect
	}
	return t.key + "=" + *t.value + ":" + t.effect
}

// newPatchStep returns a step that sets or removes one taint. The list is replaced as a whole, so the step is valid only for the
// state it was made from.
func (t taint) newPatchStep(s Subject, live *unstructured.Unstructured) (v1alpha1.PlanStep, error) {
	taints := slices.DeleteFunc(taintsOf(live), t.hasSameKeyAndEffect)
	description := fmt.Sprintf("remove taint %s from Node %s", t, t.node)
	if t.value != nil {
		one := map[string]any{"key": t.key, "effect": t.effect}
		if *t.value != "" {
			one["value"] = *t.value
		}
		taints = append(taints, one)
		description = fmt.Sprintf("add taint %s to Node %s", t, t.node)
	}
	return newPatchStep(live, types.MergePatchType, addMarker(map[string]any{"spec": map[string]any{"taints": taints}}, s), description)
}

func (t taint) draftTaintChange(s Subject, live *unstructured.Unstructured) (*draft, error) {
	was := t.currentField(live)[t.fieldName()]
	d := &draft{before: map[string]any{t.fieldName(): was}, after: map[string]any{t.fieldName(): nil}}
	if t.value != nil {
		d.after[t.fieldName()] = *t.value
	}
	if was == d.after[t.fieldName()] {
		return d, nil
	}
	step, err := t.newPatchStep(s, live)
	if err != nil {
		return nil, err
	}
	// The request contains the other taints present at the time, which are not
	// part of the plan.
	step.Body = ""
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{ResourcesAffected: 1, Description: step.Description}
	if t.value != nil && t.effect == "NoExecute" {
		d.impact.Description += "; running Pods that do not tolerate it are evicted, ignoring PodDisruptionBudgets"
	}
	back := map[string]any{"node": t.node, "key": t.key, "effect": t.effect}
	action := "untaint_node"
	if was != nil {
		action, back["value"] = "taint_node", was
	}
	d.rollback, err = newRollbackInfo(action, back, "5s")
	return d, err
}

// sendTaintChange builds the list of taints from the present Node.
func (t taint) sendTaintChange(ctx context.Context, w *attemptState, did string) error {
	wanted := map[string]any{t.fieldName(): nil}
	if t.value != nil {
		wanted[t.fieldName()] = *t.value
	}
	expected := expectation{values: t.currentField, alreadyDesired: func(_ context.Context, live *unstructured.Unstructured) bool {
		return len(describeDifferences(wanted, t.currentField(live))) == 0
	}}
	return w.buildAndSendStepWithRetry(ctx, expected, did, func(live *unstructured.Unstructured) (v1alpha1.PlanStep, error) {
		return t.newPatchStep(w.run.Subject, live)
	})
}

// buildAndSendStepWithRetry sends a step built from the present target, and rebuilds it after a conflict.
func (w *attemptState) buildAndSendStepWithRetry(
	ctx context.Context,
	expected expectation,
	did string,
	buildStep func(live *unstructured.Unstructured) (v1alpha1.PlanStep, error),
) error {
	policy := backoff.Policy{Initial: 20 * time.Millisecond, Max: time.Second}
	for try := 0; ; try++ {
		live, done, err := w.readAndCheckTarget(ctx, expected)
		if err != nil {
			return err
		}
		if done || len(w.plan.Steps) == 0 {
			w.recordAlreadyDone(live, expected, did)
			return nil
		}
		s, err := buildStep(live)
		if err != nil {
			return newHalt(CodeInvalid, "%s", err)
		}
		answer, err := w.sender.sendStepWithRetry(ctx, s, live.GetResourceVersion())
		if err == nil {
			w.report.recordChange(newAffectedResource(live, answer, expected, did, s.Verb))
			return nil
		}
		if !apierrors.IsConflict(err) || try == maxConflicts {
			return toHalt(s.Description, err)
		}
		if err = sleepUnlessEnded(ctx, policy.Delay(try)); err != nil {
			return err
		}
	}
}
