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

// freshness is the required freshness of a list.
type freshness string

const (
	fresh   freshness = ""  // current
	lagging freshness = "0" // any version that the API server has cached
)

// listLeavingPods lists the pods of a node that must leave, in order of increasing priority.
func (d *Drainer) listLeavingPods(ctx context.Context, node *corev1.Node, began metav1.Time, how freshness, now time.Time) ([]item, error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	list, err := d.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String(), ResourceVersion: string(how),
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %q: %w", node.Name, err)
	}
	return d.cfg.selectLeavingPods(node, began, list.Items, now), nil
}

// A podAction is what a drain does with a pod.
type podAction string

const (
	leavePod podAction = "leave"     // the pod is not part of the drain
	awaitEnd podAction = "await-end" // the pod is terminating
	waitFor  podAction = "wait"      // the pod must leave, but is not evicted
	evictPod podAction = "evict"
)

// An item is a pod that must leave.
type item struct {
	pod    *corev1.Pod
	action podAction
	rule   Namespace
	// blockedBy is the cause of waitFor, and message describes it. until is the end of the wait, if known.
	blockedBy, message string
	until              time.Time
}

// selectLeavingPods returns the pods that must leave, in order of increasing priority. began is the
// start of the drain.
func (c Config) selectLeavingPods(node *corev1.Node, began metav1.Time, pods []corev1.Pod, now time.Time) []item {
	var going []item
	for i := range pods {
		if it := c.decideAction(node, began, &pods[i], now); it.action != leavePod {
			going = append(going, it)
		}
	}
	slices.SortFunc(going, func(a, b item) int {
		return cmp.Or(cmp.Compare(priorityOf(a.pod), priorityOf(b.pod)), cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	return going
}

func priorityOf(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// decideAction returns what a drain does with a pod. The first rule that applies counts: pods that never
// leave, pods that already terminate, the mode of the namespace, and then what would be lost.
func (c Config) decideAction(node *corev1.Node, began metav1.Time, pod *corev1.Pod, now time.Time) item {
	rule := c.namespaceConfig(pod.Namespace)
	it := item{pod: pod, rule: rule}
	evictAt := began.Add(rule.EvictAfter)
	switch {
	case rule.Mode == ModeSkip, isMirror(pod), isFinished(pod), isOfDaemonSet(pod, node):
		it.action = leavePod
	case pod.DeletionTimestamp != nil:
		it.action = awaitEnd
	case rule.Mode == ModeWait:
		it.action, it.blockedBy = waitFor, byWaiting
		it.message = "drain mode wait: waiting for the pod to end"
	case rule.Mode == ModeWaitThenEvict && now.Before(evictAt):
		it.action, it.blockedBy, it.until = waitFor, byWaiting, evictAt
		it.message = "drain mode wait-then-evict: eviction at " + evictAt.UTC().Format(time.RFC3339)
	case isUnmanaged(pod) && c.BarePods != TreatEvict:
		return it.treated(c.BarePods, byBarePod, "the pod has no controller that would recreate it")
	case hasLocalStorage(pod) && c.EmptyDir != TreatEvict:
		return it.treated(c.EmptyDir, byEmptyDir, "the data of its emptyDir volume would be lost")
	default:
		it.action = evictPod
	}
	return it
}

// treated returns the item with the action of a treatment other than eviction.
func (it item) treated(t Treatment, cause, message string) item {
	if t != TreatWait {
		it.action = leavePod
		return it
	}
	it.action, it.blockedBy, it.message = waitFor, cause, message
	return it
}

// isMirror reports whether a pod mirrors a static pod of the kubelet.
func isMirror(pod *corev1.Pod) bool {
	_, is := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// isOfDaemonSet reports whether a DaemonSet would recreate a pod on this node despite the
// taints of the node.
func isOfDaemonSet(pod *corev1.Pod, node *corev1.Node) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" {
		return false
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
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

// isUnmanaged reports whether no controller would recreate a pod.
func isUnmanaged(pod *corev1.Pod) bool { return metav1.GetControllerOf(pod) == nil }

// hasLocalStorage reports whether a pod stores data on the disk of the node.
func hasLocalStorage(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumMemory
	})
}

func nameOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
