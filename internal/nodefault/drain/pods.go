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

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
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

// podsOf lists the pods of a node.
func (d *Drainer) podsOf(ctx context.Context, node string, how freshness) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	list, err := d.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(), ResourceVersion: string(how),
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %q: %w", node, err)
	}
	return list.Items, nil
}

// A fate is the part of a pod in the drain.
type fate string

const (
	stays  fate = "stays"  // not part of the drain
	ending fate = "ending" // terminating
	waits  fate = "waits"  // must leave, but is not evicted
	goes   fate = "goes"   // is evicted
)

// An item is a pod that must leave.
type item struct {
	pod  *corev1.Pod
	fate fate
	rule Namespace
	// by and why are the reason that a pod waits. until is the end of the wait, if known.
	by, why string
	until   time.Time
}

// selectLeavingPods returns the pods that must leave, in order of increasing priority.
func (d *Drainer) selectLeavingPods(node *corev1.Node, s *v1alpha1.DrainStatus, pods []corev1.Pod, now time.Time) []item {
	var going []item
	for i := range pods {
		if it := d.decideFate(node, s, &pods[i], now); it.fate != stays {
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

// decideFate returns the part of a pod in the drain.
func (d *Drainer) decideFate(node *corev1.Node, s *v1alpha1.DrainStatus, pod *corev1.Pod, now time.Time) item {
	it := item{pod: pod, rule: d.cfg.namespaceConfig(pod.Namespace), fate: stays}
	switch {
	case it.rule.Mode == ModeSkip, isMirror(pod), isFinished(pod), isOfDaemonSet(pod, node):
		return it
	case pod.DeletionTimestamp != nil:
		it.fate = ending
		return it
	case it.rule.Mode == ModeWait:
		it.fate, it.by, it.why = waits, byWaiting, "drain mode wait: waiting for the pod to end"
		return it
	case it.rule.Mode == ModeWaitThenEvict && now.Before(s.StartedAt.Add(it.rule.EvictAfter)):
		it.fate, it.by, it.until = waits, byWaiting, s.StartedAt.Add(it.rule.EvictAfter)
		it.why = "drain mode wait-then-evict: eviction at " + it.until.UTC().Format(time.RFC3339)
		return it
	case isUnmanaged(pod) && d.cfg.BarePods != TreatEvict:
		return it.setTreatment(d.cfg.BarePods, byBarePod, "the pod has no controller that would recreate it")
	case hasLocalStorage(pod) && d.cfg.EmptyDir != TreatEvict:
		return it.setTreatment(d.cfg.EmptyDir, byEmptyDir, "the data of its emptyDir volume would be lost")
	}
	it.fate = goes
	return it
}

func (it item) setTreatment(how Treatment, by, why string) item {
	if how == TreatWait {
		it.fate, it.by, it.why = waits, by, why
	}
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
