package action

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube/eviction"
)

// A podsOfNode groups the Pods of a node by their treatment, in the terms of kubectl drain.
type podsOfNode struct {
	evict   []partialPod
	waitFor []partialPod // already being deleted
	left    []string     // with reasons, for messages
	refused []string     // with reasons and the parameter to set
}

// classifyPods decides on the treatment of each Pod. gone lists missing DaemonSets as namespace/name,
// and protected the namespaces that actions must not touch.
func classifyPods(pods []partialPod, p *drainParameters, missingDaemonSets, protectedNamespaces []string) podsOfNode {
	slices.SortFunc(pods, func(a, b partialPod) int { return strings.Compare(namespacedPodName(&a), namespacedPodName(&b)) })
	var sorted podsOfNode
	for i := range pods {
		pod := pods[i]
		leave, refuse := classifyPod(&pod, p, missingDaemonSets)
		switch {
		case slices.Contains(protectedNamespaces, pod.Namespace):
			leave = "its namespace is protected"
		case pod.Labels[v1alpha1.LabelProtected] == "true":
			leave = "it has the label " + v1alpha1.LabelProtected
		}
		switch {
		case leave != "":
			sorted.left = append(sorted.left, namespacedPodName(&pod)+" ("+leave+")")
		case pod.DeletionTimestamp != nil:
			sorted.waitFor = append(sorted.waitFor, pod)
		case refuse != "":
			sorted.refused = append(sorted.refused, namespacedPodName(&pod)+" "+refuse)
		default:
			sorted.evict = append(sorted.evict, pod)
		}
	}
	return sorted
}

// classifyPod returns why a Pod stays, or why it prevents the drain. Without either it is evicted.
func classifyPod(pod *partialPod, p *drainParameters, missingDaemonSets []string) (leaveReason, refuseReason string) {
	if eviction.IsMirrorPod(pod) {
		return "static Pod of the Node", ""
	}
	finished := eviction.IsFinished(pod.Status.Phase)
	daemonSet := eviction.DaemonSetOf(pod)
	if daemonSet != "" && !finished {
		switch {
		case !slices.Contains(missingDaemonSets, pod.Namespace+"/"+daemonSet):
			if p.IgnoreDaemonSets {
				return "of DaemonSet " + daemonSet, ""
			}
			return "", "belongs to DaemonSet " + daemonSet + " (set ignoreDaemonSets to ignore it)"
		case !p.Force:
			return "", "belongs to DaemonSet " + daemonSet + ", which does not exist (set force to evict it)"
		}
	}
	if finished {
		return "", ""
	}
	if !eviction.HasController(pod) && !p.Force {
		return "", "has no controller that replaces it (set force to evict it)"
	}
	if !p.DeleteLocalData {
		for _, v := range pod.Spec.Volumes {
			if v.EmptyDir != nil {
				return "", fmt.Sprintf("has data in emptyDir volume %q (set deleteLocalData to delete it)", v.Name)
			}
		}
	}
	return "", ""
}

func namespacedPodName(pod *partialPod) string { return pod.Namespace + "/" + pod.Name }

// joinFirstPodNames lists the first Pods and the number of the others.
func joinFirstPodNames(pods []partialPod) string {
	names := make([]string, 0, len(pods))
	for i := range pods {
		names = append(names, namespacedPodName(&pods[i]))
	}
	return joinFirstNames(names)
}

// joinFirstNames joins the first names and the number of the others.
func joinFirstNames(names []string) string {
	const most = 8
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
