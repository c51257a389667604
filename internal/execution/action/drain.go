package action

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube/eviction"
)

// drainPage is the number of Pods listed per request.
const drainPage = 250

type drainParameters struct {
	Node               string `json:"node" doc:"Name of the Node." required:"true" format:"dns-subdomain" target:"name"`
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds" doc:"Termination grace period in seconds. Defaults to that of each Pod." min:"0" max:"3600"`
	Force              bool   `json:"force" doc:"Also evict Pods without a controller, which nothing replaces." default:"false"`
	DeleteLocalData    bool   `json:"deleteLocalData" doc:"Also evict Pods with an emptyDir volume, whose data is lost." default:"false"`
	IgnoreDaemonSets   bool   `json:"ignoreDaemonSets" doc:"Ignore Pods of DaemonSets. If false, such Pods block the drain." default:"true"`
}

func newDrainNodeAction() *Action {
	return newAction(entry[drainParameters]{
		Action: Action{
			Name:    "drain_node",
			Summary: "Cordon a Node and evict its Pods. Protected Pods and Pods of DaemonSets stay.",
			Kubectl: "kubectl drain NODE --ignore-daemonsets",
			Kinds:   []string{"Node"},
			Scope:   Cluster,
			Permissions: []Permission{
				{Resource: "nodes", Verbs: []string{"get", "patch"}, ClusterScoped: true, Why: "cordon the Node"},
				{Resource: "pods", Verbs: []string{"list"}, ClusterScoped: true, Why: "list the Pods on the Node and wait for their deletion"},
				{Resource: "pods", Subresource: "eviction", Verbs: []string{"create"}, ClusterScoped: true, Why: "evict Pods, respecting PodDisruptionBudgets"},
				{Group: "apps", Resource: "daemonsets", Verbs: []string{"get"}, ClusterScoped: true, Why: "check whether the DaemonSet of a Pod exists"},
			},
			Timeout: 15 * time.Minute, MaxTimeout: time.Hour, Retries: 1,
			Risk: RiskHigh, Idempotent: true, Reversible: true, Rollback: "uncordon_node; evicted Pods are not restored",
		},
		values: func(_ *drainParameters, live *unstructured.Unstructured) map[string]any {
			return unschedulableField(live)
		},
		draft: draftDrain,
		run: func(ctx context.Context, c Client, pl *v1alpha1.Plan, p *drainParameters, r Run) Result {
			d := &drain{attempt: newAttempt(c, pl, r), parameters: p}
			if err := d.loadProtectedNamespaces(); err != nil {
				return d.attempt.buildResult(err)
			}
			return d.attempt.buildResult(d.cordonAndEvictAll(ctx))
		},
	})
}

func draftDrain(ctx context.Context, c Client, s Subject, p *drainParameters, live *unstructured.Unstructured) (*draft, error) {
	d := &drain{attempt: newAttempt(c, &v1alpha1.Plan{}, Run{}), parameters: p, protected: s.Protected}
	pods, err := d.listClassifiedPods(ctx)
	if err != nil {
		return nil, err
	}
	if len(pods.refused) > 0 {
		return nil, newRefusal(
			v1alpha1.DetailInvalidTargetState,
			"cannot drain Node %s, blocked by Pods: %s",
			p.Node,
			joinFirstNames(pods.refused),
		)
	}
	before := unschedulableField(live)
	plan := &draft{before: before, after: map[string]any{"unschedulable": true}}
	if before["unschedulable"] == true && len(pods.evict) == 0 && len(pods.waitFor) == 0 {
		return plan, nil
	}
	step, err := newCordonStep(live, true, s)
	if err != nil {
		return nil, err
	}
	// The Pods change all the time. The plan covers the Node and the number of
	// Pods.
	evictions := v1alpha1.PlanStep{
		Description: fmt.Sprintf("evict the Pods on Node %s and wait until they are gone", p.Node),
		Verb:        verbEvict, APIVersion: "v1", Resource: "pods", Subresource: "eviction",
	}
	if len(s.Protected) > 0 {
		if evictions, err = withJSONBody(evictions, evictionBody{Leave: s.Protected}); err != nil {
			return nil, err
		}
	}
	plan.steps = []v1alpha1.PlanStep{step, evictions}
	plan.diff = d.formatDiff(before, pods)
	plan.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: int32(1 + len(pods.evict)), //nolint:gosec // a Node has some hundred Pods
		Description:       fmt.Sprintf("%d Pods are evicted, %d stay", len(pods.evict), len(pods.left)),
	}
	if before["unschedulable"] == true {
		plan.rollback = noRollback("the Node was already cordoned, and evicted Pods are not restored")
		return plan, nil
	}
	plan.rollback, err = newRollbackInfo("uncordon_node", map[string]any{"node": p.Node}, "5s")
	return plan, err
}

// A drain is one attempt to drain a Node, with its progress.
type drain struct {
	attempt *attemptState

	parameters *drainParameters
	protected  []string // protected namespaces, whose Pods stay
	cordoned   bool
	evicted    []partialPod
	blocked    map[string]string // reasons why Pods cannot be evicted yet, by name
}

// An evictionBody is the body of the eviction step of a plan.
type evictionBody struct {
	// Leave lists the protected namespaces, whose Pods stay.
	Leave []string `json:"leave,omitempty"`
}

// loadProtectedNamespaces reads the protected namespaces from the plan.
func (d *drain) loadProtectedNamespaces() error {
	for _, step := range d.attempt.plan.Steps {
		if step.Verb != verbEvict || step.Body == "" {
			continue
		}
		var body evictionBody
		if err := json.Unmarshal([]byte(step.Body), &body); err != nil {
			return newHalt(CodeInvalid, "%s: the body lacks the protected namespaces: %s", step.Description, err)
		}
		d.protected = body.Leave
	}
	return nil
}

// cordonAndEvictAll cordons the Node and evicts Pods until none is left or the deadline passes.
func (d *drain) cordonAndEvictAll(ctx context.Context) error {
	if len(d.attempt.plan.Steps) == 0 {
		return d.attempt.sendPlanSteps(ctx, d.nodeExpectation(), "")
	}
	if err := d.cordonNode(ctx); err != nil {
		return err
	}
	for round := 0; ; round++ {
		pods, err := d.listClassifiedPods(ctx)
		if err != nil {
			return d.addProgressToError(toHalt("list the Pods on Node "+d.parameters.Node, err), nil)
		}
		if len(pods.refused) > 0 {
			return d.addProgressToError(newHalt(CodeGuard, "blocked by Pods: %s", joinFirstNames(pods.refused)), nil)
		}
		if left, err := d.evictAllOnce(ctx, pods.evict); err != nil {
			return d.addProgressToError(err, left)
		}
		remaining := append(slices.Clone(pods.evict), pods.waitFor...)
		if len(remaining) == 0 || d.attempt.run.dry {
			d.logDrained(pods)
			return nil
		}
		if round == 0 {
			d.logBlockedPods()
		}
		if err = sleepUnlessEnded(ctx, drainPause(round)); err != nil {
			return d.addProgressToError(err, remaining)
		}
	}
}

// drainPause returns the delay before the next round. It is short at first, because most Pods stop
// quickly.
func drainPause(round int) time.Duration {
	return min(time.Duration(round+1)*200*time.Millisecond, 5*time.Second)
}

// nodeExpectation accepts the Node as planned, or as an earlier attempt left it.
func (d *drain) nodeExpectation() expectation {
	return expectation{values: unschedulableField, alreadyDesired: func(_ context.Context, live *unstructured.Unstructured) bool {
		return unschedulableField(live)["unschedulable"] == true
	}}
}

// cordonNode marks the Node unschedulable unless it already is.
func (d *drain) cordonNode(ctx context.Context) error {
	live, done, err := d.attempt.readAndCheckTarget(ctx, d.nodeExpectation())
	if err != nil {
		return err
	}
	d.attempt.note = ""
	if done || unschedulableField(live)["unschedulable"] == true {
		doneByThisExecution := done && d.attempt.mayHaveActedBefore() && d.attempt.hasMarker(live)
		if doneByThisExecution && !d.attempt.run.dry {
			d.cordoned = true
			d.attempt.report.addAffected(v1alpha1.AffectedResource{
				Kind: "Node", Name: live.GetName(), UID: live.GetUID(), Action: "cordoned",
				Before: formatFields(decodeValues(d.attempt.plan.Before)), After: formatFields(unschedulableField(live)),
			})
		}
		d.attempt.report.logLine("node/" + live.GetName() + " already cordoned")
		return nil
	}
	d.cordoned = !d.attempt.run.dry
	return d.attempt.sendStepToTargetWithRetry(ctx, d.nodeExpectation(), live, d.attempt.plan.Steps[0], "cordoned")
}

// listClassifiedPods returns the Pods on the Node, grouped by their treatment.
func (d *drain) listClassifiedPods(ctx context.Context) (podsOfNode, error) {
	var all []partialPod
	kind, _ := findKind("v1", "Pod")
	o := metav1.ListOptions{FieldSelector: "spec.nodeName=" + d.parameters.Node, Limit: drainPage}
	for {
		page, err := d.attempt.client.listObjectsWithRetry(ctx, kind.GroupVersionResource, "", o)
		if err != nil {
			return podsOfNode{}, err
		}
		for i := range page.Items {
			var pod partialPod
			item := &page.Items[i]
			if err = runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pod); err != nil {
				return podsOfNode{}, fmt.Errorf("read Pod %s/%s: %w", item.GetNamespace(), item.GetName(), err)
			}
			all = append(all, pod)
		}
		o.Continue = page.GetContinue()
		if o.Continue == "" {
			break
		}
	}
	missing, err := d.listMissingDaemonSets(ctx, all)
	return classifyPods(all, d.parameters, missing, d.protected), err
}

// listMissingDaemonSets returns the DaemonSets, as namespace/name, that own Pods but do not exist.
func (d *drain) listMissingDaemonSets(ctx context.Context, pods []partialPod) ([]string, error) {
	seen := map[v1alpha1.Target]bool{}
	var missing []string
	for i := range pods {
		daemonSet := v1alpha1.Target{
			APIVersion: "apps/v1", Kind: kindDaemonSet, Namespace: pods[i].Namespace, Name: eviction.DaemonSetOf(&pods[i]),
		}
		if daemonSet.Name == "" || seen[daemonSet] {
			continue
		}
		seen[daemonSet] = true
		_, err := d.attempt.client.getObjectWithRetry(ctx, daemonSet)
		if apierrors.IsNotFound(err) {
			missing = append(missing, daemonSet.Namespace+"/"+daemonSet.Name)
		} else if err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// formatDiff lists the fate of each Pod.
func (d *drain) formatDiff(before map[string]any, pods podsOfNode) string {
	var b strings.Builder
	b.WriteString(lineDiff(before, map[string]any{"unschedulable": true}))
	for i := range pods.evict {
		b.WriteString("- pod " + namespacedPodName(&pods.evict[i]) + "\n")
	}
	for _, left := range pods.left {
		b.WriteString("  pod " + left + "\n")
	}
	return b.String()
}
