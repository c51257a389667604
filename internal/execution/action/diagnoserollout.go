package action

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// rolloutPause is the interval of rollout checks.
const rolloutPause = 500 * time.Millisecond

type rolloutStatusParameters struct {
	Kind      string `json:"kind" doc:"Kind of the object." required:"true" enum:"Deployment,StatefulSet,DaemonSet" target:"kind"`
	Name      string `json:"name" doc:"Name of the workload." required:"true" format:"dns-subdomain" target:"name"`
	Namespace string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
}

func newRolloutStatusAction() *Action {
	return newAction(entry[rolloutStatusParameters]{
		Action: Action{
			Name:    "rollout_status",
			Summary: "Wait until the rollout of a workload is complete. Changes nothing.",
			Kubectl: "kubectl rollout status KIND/NAME",
			Aliases: []string{"verify"},
			Kinds:   []string{"Deployment", "StatefulSet", "DaemonSet"},
			Scope:   Namespaced,
			Permissions: []Permission{
				{Group: "apps", Resource: "deployments", Verbs: []string{"get"}, Why: "read the rollout status"},
				{Group: "apps", Resource: "statefulsets", Verbs: []string{"get"}, Why: "read the rollout status"},
				{Group: "apps", Resource: "daemonsets", Verbs: []string{"get"}, Why: "read the rollout status"},
			},
			Timeout: time.Minute, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskLow, Idempotent: true, ReadOnly: true,
		},
		draft: func(_ context.Context, _ Client, _ Subject, p *rolloutStatusParameters, live *unstructured.Unstructured) (*draft, error) {
			return &draft{
				impact: v1alpha1.EstimatedImpact{Description: "no change; " + formatTarget(targetOfObject(live)) + " rollout is observed"},
			}, nil
		},
		run: func(ctx context.Context, c Client, pl *v1alpha1.Plan, _ *rolloutStatusParameters, r Run) Result {
			w := newAttempt(c, pl, r)
			return w.buildResult(awaitRollout(ctx, w))
		},
	})
}

// awaitRollout polls the target until its rollout is complete.
func awaitRollout(ctx context.Context, w *attemptState) error {
	t := planTarget(w.plan)
	last := ""
	for {
		live, err := w.client.getObjectWithRetry(ctx, t)
		if err != nil {
			return addLastState(last, toHalt("read "+formatTarget(t), err))
		}
		if live.GetUID() != t.UID {
			return newHalt(CodeGuard, "%s has UID %s, but the action was planned for UID %s", formatTarget(t), live.GetUID(), t.UID)
		}
		state, done, failed := rolloutState(live)
		if state != last {
			w.report.logLine(state)
			last = state
		}
		switch {
		case failed:
			return newHalt(CodeGuard, "%s: %s", formatTarget(t), state)
		case done:
			w.note = state
			return nil
		}
		if err = sleepUnlessEnded(ctx, rolloutPause); err != nil {
			return addLastState(last, err)
		}
	}
}

// addLastState adds the last state to the error of a wait that timed out.
func addLastState(state string, err error) error {
	if state == "" {
		return err
	}
	return toHalt("last seen state: "+state, err)
}

// rolloutState returns the progress of a rollout, as in kubectl rollout status.
func rolloutState(live *unstructured.Unstructured) (state string, done, failed bool) {
	name := kubectlName(live.GetAPIVersion(), live.GetKind(), live.GetName())
	number := func(otherwise int64, path ...string) int64 {
		n, found, err := unstructured.NestedInt64(live.Object, path...)
		if err != nil || !found {
			return otherwise
		}
		return n
	}
	if number(0, "status", "observedGeneration") < live.GetGeneration() {
		return "waiting until the controller of " + name + " observes its latest change", false, false
	}
	strategy, _, _ := unstructured.NestedString(live.Object, "spec", "updateStrategy", "type") // a Deployment has none
	if strategy == "OnDelete" {
		return name + " is updated when its Pods are deleted (OnDelete): no rollout to wait for", false, true
	}
	var wanted, updated, ready int64
	switch live.GetKind() {
	case "Deployment":
		if reason := conditionReason(live, "Progressing"); reason == "ProgressDeadlineExceeded" {
			return name + " exceeded its progress deadline", false, true
		}
		wanted = number(1, "spec", "replicas")
		updated = number(0, "status", "updatedReplicas")
		ready = number(0, "status", "availableReplicas")
		if old := number(0, "status", "replicas") - updated; updated >= wanted && old > 0 {
			return fmt.Sprintf("%s: %d old replicas are still running", name, old), false, false
		}
	case "StatefulSet":
		wanted = number(1, "spec", "replicas")
		updated = number(0, "status", "updatedReplicas")
		ready = number(0, "status", "readyReplicas")
		if partition := number(0, "spec", "updateStrategy", "rollingUpdate", "partition"); partition > 0 && ready >= wanted {
			wanted = max(0, wanted-partition) // the others keep their revision intentionally
			ready = wanted
		}
	case kindDaemonSet:
		wanted = number(0, "status", "desiredNumberScheduled")
		updated = number(0, "status", "updatedNumberScheduled")
		ready = number(0, "status", "numberAvailable")
	}
	switch {
	case updated < wanted:
		return fmt.Sprintf("%s: %d of %d replicas are updated", name, updated, wanted), false, false
	case ready < wanted:
		return fmt.Sprintf("%s: %d of %d updated replicas are available", name, ready, wanted), false, false
	}
	return name + " successfully rolled out", true, false
}

// conditionReason returns the reason of a condition, or an empty string.
func conditionReason(live *unstructured.Unstructured, conditionType string) string {
	list, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, item := range list {
		if c, ok := item.(map[string]any); ok && c["type"] == conditionType {
			reason, _ := c["reason"].(string)
			return reason
		}
	}
	return ""
}
