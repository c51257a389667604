package action

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube/eviction"
)

// LabelQuarantine is the only label of a Pod in quarantine. Its value is unique per Pod, so that
// each policy selects one Pod.
const LabelQuarantine = "kubernaut.io/quarantine"

type quarantineParameters struct {
	Pod       string `json:"pod" doc:"Name of the Pod." required:"true" format:"dns-subdomain" target:"name"`
	Namespace string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
}

func newQuarantinePodAction() *Action {
	return newAction(entry[quarantineParameters]{
		Action: Action{
			Name:    "quarantine_pod",
			Summary: "Detach a Pod from its Services and its controller and block its traffic. The Pod keeps running for inspection.",
			Kubectl: "kubectl create -f deny-all.yaml; kubectl label pod POD app- kubernaut.io/quarantine=ID",
			Kinds:   []string{"Pod"},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Resource: "pods", Verbs: []string{"get", "patch"}, Why: "read and replace the labels of the Pod"},
				{
					Group:    "networking.k8s.io",
					Resource: "networkpolicies",
					Verbs:    []string{"get", "list", "create"},
					Why:      "find policies that allow traffic to all Pods, and create one that blocks it for this Pod",
				},
			},
			Timeout: time.Minute, MaxTimeout: maxTimeout, Retries: 1,
			Risk: RiskMedium, Idempotent: true, Reversible: true, Rollback: "release_pod",
		},
		did: "quarantined",
		values: func(_ *quarantineParameters, live *unstructured.Unstructured) map[string]any {
			return labelsField(live)
		},
		draft: draftQuarantine,
	})
}

// labelsField returns only the labels of an object.
func labelsField(live *unstructured.Unstructured) map[string]any {
	labels := map[string]any{}
	for key, value := range live.GetLabels() {
		labels[key] = value
	}
	return map[string]any{"labels": labels}
}

// quarantineID returns a unique ID of a Pod that is short enough for a label.
func quarantineID(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:8])
}

func quarantinePolicyName(uid types.UID) string { return "quarantine-" + quarantineID(uid) }

func draftQuarantine(ctx context.Context, c Client, s Subject, p *quarantineParameters, live *unstructured.Unstructured) (*draft, error) {
	if err := refuseUnquarantinable(live); err != nil {
		return nil, err
	}
	id := quarantineID(live.GetUID())
	d := &draft{before: labelsField(live), after: map[string]any{"labels": map[string]any{LabelQuarantine: id}}}
	forbidden, err := c.checkDenyPolicy(ctx, live)
	if err != nil {
		return nil, err
	}
	labelled := len(describeDifferences(d.before, d.after)) == 0
	if forbidden && labelled {
		return d, nil
	}
	open, err := c.listPoliciesAllowingUnlabelled(ctx, p.Namespace)
	if err != nil {
		return nil, err
	}
	if !forbidden {
		forbid, err := newCreateStep(
			addMarker(newDenyAllPolicy(live), s),
			fmt.Sprintf("block all traffic of Pod %s/%s once it has the label %s=%s", p.Namespace, p.Pod, LabelQuarantine, id),
		)
		if err != nil {
			return nil, err
		}
		d.steps = append(d.steps, forbid)
		d.diff = "+ networkpolicy " + quarantinePolicyName(live.GetUID()) + "\n"
	}
	d.impact = v1alpha1.EstimatedImpact{ResourcesAffected: 1, Description: "its controller creates a replacement Pod"}
	if len(open) > 0 {
		d.impact.Description += "; traffic is still allowed by NetworkPolicy " + joinFirstNames(open)
	}
	if labelled {
		d.rollback = noRollback("the Pod already had the quarantine label, and its original labels are unknown")
		return d, nil
	}
	labels := map[string]any{LabelQuarantine: id}
	for key := range live.GetLabels() {
		labels[key] = nil
	}
	// Set the label last: the loop above would remove an existing one.
	labels[LabelQuarantine] = id
	relabel, err := newPatchStep(live, types.MergePatchType, addMarker(map[string]any{"metadata": map[string]any{"labels": labels}}, s),
		fmt.Sprintf("replace the labels of Pod %s/%s, so that no Service and no controller selects it", p.Namespace, p.Pod))
	if err != nil {
		return nil, err
	}
	d.steps = append(d.steps, relabel)
	d.diff = labelsDiff(live.GetLabels(), map[string]string{LabelQuarantine: id}) + d.diff
	d.impact.ResourcesAffected = int32(len(d.steps)) //nolint:gosec // two at most
	before := map[string]any{}
	for key, value := range live.GetLabels() {
		before[key] = value
	}
	d.rollback, err = newRollbackInfo("release_pod", map[string]any{"pod": p.Pod, "namespace": p.Namespace, "labels": before}, "10s")
	return d, err
}

// refuseUnquarantinable refuses Pods that labels and policies do not affect.
func refuseUnquarantinable(live *unstructured.Unstructured) error {
	name := live.GetNamespace() + "/" + live.GetName()
	if eviction.IsMirrorPod(live) {
		return newRefusal(v1alpha1.DetailInvalidTargetState, "Pod %s is a static Pod, whose labels cannot be changed", name)
	}
	if host, _, _ := unstructured.NestedBool(live.Object, "spec", "hostNetwork"); host {
		return newRefusal(v1alpha1.DetailInvalidTargetState, "Pod %s uses the host network, where NetworkPolicies do not apply", name)
	}
	return nil
}

// newDenyAllPolicy returns a policy that selects one Pod and blocks all traffic. It is deleted with its Pod.
func newDenyAllPolicy(pod *unstructured.Unstructured) map[string]any {
	return map[string]any{
		"apiVersion": "networking.k8s.io/v1",
		"kind":       "NetworkPolicy",
		"metadata": map[string]any{
			"name":      quarantinePolicyName(pod.GetUID()),
			"namespace": pod.GetNamespace(),
			"ownerReferences": []any{map[string]any{
				"apiVersion": "v1", "kind": "Pod", "name": pod.GetName(), "uid": string(pod.GetUID()),
			}},
		},
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]any{LabelQuarantine: quarantineID(pod.GetUID())}},
			"policyTypes": []any{"Ingress", "Egress"},
		},
	}
}

// checkDenyPolicy reports whether the policy of a Pod exists and blocks all traffic. It refuses a policy
// of that name that allows traffic, because no request covers overwriting it.
func (c Client) checkDenyPolicy(ctx context.Context, pod *unstructured.Unstructured) (exists bool, err error) {
	t := v1alpha1.Target{
		APIVersion: "networking.k8s.io/v1",
		Kind:       "NetworkPolicy",
		Namespace:  pod.GetNamespace(),
		Name:       quarantinePolicyName(pod.GetUID()),
	}
	policy, err := c.getObjectOnce(ctx, t)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	case canonicalValue(policy.Object["spec"]) != canonicalValue(newDenyAllPolicy(pod)["spec"]):
		return false, newRefusal(
			v1alpha1.DetailInvalidTargetState,
			"%s allows traffic and has the name of the quarantine policy: delete it first",
			formatTarget(t),
		)
	}
	return true, nil
}

// listPoliciesAllowingUnlabelled returns the policies that allow traffic to Pods with only the quarantine label.
// Policies add up, so none can revoke what another allows.
func (c Client) listPoliciesAllowingUnlabelled(ctx context.Context, namespace string) ([]string, error) {
	kind, _ := findKind("networking.k8s.io/v1", "NetworkPolicy")
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := c.resourceClient(kind.GroupVersionResource, namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var open []string
	for i := range list.Items {
		spec, _, _ := unstructured.NestedMap(list.Items[i].Object, "spec")
		selector, _ := spec["podSelector"].(map[string]any)
		ingress, _ := spec["ingress"].([]any)
		egress, _ := spec["egress"].([]any)
		if len(ingress)+len(egress) > 0 && selectsUnlabelled(selector) {
			open = append(open, list.Items[i].GetName())
		}
	}
	slices.Sort(open)
	return open, nil
}

// selectsUnlabelled reports whether a selector matches Pods without any of its labels: an empty
// selector, or one with negative requirements only.
func selectsUnlabelled(selector map[string]any) bool {
	if wanted, _ := selector["matchLabels"].(map[string]any); len(wanted) > 0 {
		return false
	}
	expressions, _ := selector["matchExpressions"].([]any)
	for _, e := range expressions {
		one, _ := e.(map[string]any)
		if operator := one["operator"]; operator != string(metav1.LabelSelectorOpNotIn) && operator != string(metav1.LabelSelectorOpDoesNotExist) {
			return false
		}
	}
	return true
}

// labelsDiff returns the change of labels line by line.
func labelsDiff(before, after map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if value, kept := after[key]; !kept || value != before[key] {
			b.WriteString("- label " + key + "=" + before[key] + "\n")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if value, had := before[key]; !had || value != after[key] {
			b.WriteString("+ label " + key + "=" + after[key] + "\n")
		}
	}
	return b.String()
}
