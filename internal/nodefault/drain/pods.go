package drain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"

	"github.com/fleetloop/fleetloop/internal/kube/eviction"
)

// Causes that block a pod, other than a named disruption budget.
const (
	byTerminating = "terminating"
	byBarePod     = "bare-pod"
	byEmptyDir    = "empty-dir"
	byWaiting     = "waiting"
	byBudget      = "disruption-budget" // an unknown disruption budget
	byNamespace   = "namespace-terminating"
	byRefusal     = "rejected"
	byAPIServer   = "api-error"
)

// listFreshness is the required freshness of a list.
type listFreshness string

const (
	fresh   listFreshness = ""  // current
	lagging listFreshness = "0" // any version that the API server has cached
)

// listLeavingPods lists the pods of a node that must leave, in order of increasing priority.
func (d *Drainer) listLeavingPods(
	ctx context.Context, node *corev1.Node, drainStart metav1.Time, readFrom listFreshness, now time.Time,
) ([]podPlan, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := d.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", node.Name).String(),
		ResourceVersion: string(readFrom),
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %q: %w", node.Name, err)
	}
	return d.cfg.selectLeavingPodsByPriority(node, drainStart, list.Items, now), nil
}

// A podAction is what a drain does with a pod.
type podAction string

const (
	leavePod podAction = "leave"     // the pod is not part of the drain
	awaitEnd podAction = "await-end" // the pod is terminating
	waitFor  podAction = "wait"      // the pod must leave, but is not evicted
	evictPod podAction = "evict"
)

// A podPlan is what a drain does with one pod.
type podPlan struct {
	pod    *corev1.Pod
	action podAction
	rule   NamespaceRule

	// Only for waitFor:
	blockedBy string    // the cause
	message   string    // a description of the cause
	until     time.Time // the end of the wait, if known
}

// selectLeavingPodsByPriority returns the pods that must leave, in order of increasing priority.
// drainStart is the start of the drain.
func (c Config) selectLeavingPodsByPriority(
	node *corev1.Node, drainStart metav1.Time, pods []corev1.Pod, now time.Time,
) []podPlan {
	var leaving []podPlan
	for i := range pods {
		if plan := c.planPod(node, drainStart, &pods[i], now); plan.action != leavePod {
			leaving = append(leaving, plan)
		}
	}
	slices.SortFunc(leaving, func(a, b podPlan) int {
		return cmp.Or(
			cmp.Compare(podPriority(a.pod), podPriority(b.pod)),
			cmp.Compare(a.pod.Namespace, b.pod.Namespace),
			cmp.Compare(a.pod.Name, b.pod.Name),
		)
	})
	return leaving
}

func podPriority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// planPod returns what a drain does with a pod. The first rule that applies counts: pods that never
// leave, pods that already terminate, the mode of the namespace, and then what would be lost.
func (c Config) planPod(node *corev1.Node, drainStart metav1.Time, pod *corev1.Pod, now time.Time) podPlan {
	rule := c.firstMatchOrEvict(pod.Namespace)
	plan := podPlan{pod: pod, rule: rule}
	evictAt := drainStart.Add(rule.EvictAfter)
	switch {
	case rule.Mode == ModeSkip,
		eviction.IsMirrorPod(pod),
		eviction.IsFinished(string(pod.Status.Phase)),
		isDaemonSetPodAllowedToRun(pod, node):
		plan.action = leavePod
	case pod.DeletionTimestamp != nil:
		plan.action = awaitEnd
	case rule.Mode == ModeWait:
		plan.action, plan.blockedBy = waitFor, byWaiting
		plan.message = "drain mode wait: waiting for the pod to end"
	case rule.Mode == ModeWaitThenEvict && now.Before(evictAt):
		plan.action, plan.blockedBy, plan.until = waitFor, byWaiting, evictAt
		plan.message = "drain mode wait-then-evict: eviction at " + evictAt.UTC().Format(time.RFC3339)
	case !eviction.HasController(pod) && c.BarePods != TreatEvict:
		return plan.waitOrLeave(c.BarePods, byBarePod, "the pod has no controller that would recreate it")
	case hasEmptyDirOnDisk(pod) && c.EmptyDir != TreatEvict:
		return plan.waitOrLeave(c.EmptyDir, byEmptyDir, "the data of its emptyDir volume would be lost")
	default:
		plan.action = evictPod
	}
	return plan
}

// waitOrLeave returns the plan with the action of a treatment other than eviction.
func (plan podPlan) waitOrLeave(t Treatment, blockedBy, message string) podPlan {
	if t != TreatWait {
		plan.action = leavePod
		return plan
	}
	plan.action, plan.blockedBy, plan.message = waitFor, blockedBy, message
	return plan
}

// isDaemonSetPodAllowedToRun reports whether a pod belongs to a DaemonSet and the taints of its node let
// it run. Without a NoExecute taint it does, and it may report the recovery of the node.
func isDaemonSetPodAllowedToRun(pod *corev1.Pod, node *corev1.Node) bool {
	if eviction.DaemonSetOf(pod) == "" {
		return false
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		tolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(klog.Logger{}, taint, true)
		})
		if !tolerated {
			return false
		}
	}
	return true
}

// hasEmptyDirOnDisk reports whether a pod stores data on the disk of the node.
func hasEmptyDirOnDisk(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumMemory
	})
}

func namespacedName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
