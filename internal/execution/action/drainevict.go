package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube/eviction"
)

// evictAllOnce requests the eviction of Pods. If it stops early, it returns the Pods left.
func (d *drain) evictAllOnce(ctx context.Context, pods []partialPod) (skippedAfterError []partialPod, err error) {
	d.blocked = map[string]string{}
	for i := range pods {
		if err = d.evictPodOnce(ctx, &pods[i]); err != nil {
			return pods[i:], err
		}
	}
	return nil, nil
}

// logBlockedPods logs the Pods that cannot be evicted yet, with reasons.
func (d *drain) logBlockedPods() {
	for _, pod := range sortedKeys(d.blocked) {
		d.attempt.report.logLine(pod + " cannot be evicted yet: " + d.blocked[pod])
	}
}

// evictPodOnce requests the eviction of one Pod. A Pod held by a disruption budget is noted in blocked
// and retried in the next round.
func (d *drain) evictPodOnce(ctx context.Context, pod *partialPod) error {
	if err := haltIfContextEnded(ctx); err != nil {
		return err
	}
	step, err := d.newEvictionStep(pod)
	if err != nil {
		return newHalt(CodeInvalid, "%s", err)
	}
	kind, _ := findKind("v1", "Pod")
	err = requestIgnoringCancel(ctx, requestTimeout, func(ctx context.Context) error {
		_, err := d.attempt.sender.sendStepOnce(ctx, step, kind.GroupVersionResource, "")
		return err
	})
	if _, halted := errors.AsType[*halt](err); halted {
		return toHalt("evict Pod "+namespacedPodName(pod), err)
	}
	switch eviction.Classify(err) {
	case eviction.Accepted:
		d.recordEviction(pod)
	case eviction.NotFound:
		// It is gone already.
	case eviction.BlockedByBudget, eviction.Failed:
		reason := eviction.BlockReason(err)
		d.blocked[namespacedPodName(pod)] = reason
		if d.attempt.run.dry {
			warning := TruncateText(namespacedPodName(pod)+" cannot be evicted at the moment: "+reason, maxFields)
			d.attempt.report.result.Warnings = append(d.attempt.report.result.Warnings, warning)
		}
	case eviction.Rejected:
		if !eviction.IsNamespaceTerminating(err) {
			return toHalt("evict Pod "+namespacedPodName(pod), err)
		}
		d.blocked[namespacedPodName(pod)] = "its namespace is being deleted"
	}
	return nil
}

func (d *drain) newEvictionStep(pod *partialPod) (v1alpha1.PlanStep, error) {
	body, err := json.Marshal(metav1.DeleteOptions{GracePeriodSeconds: d.parameters.GracePeriodSeconds})
	return v1alpha1.PlanStep{
		Description: "evict Pod " + namespacedPodName(pod), Verb: verbEvict, APIVersion: "v1", Resource: "pods",
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Body: string(body),
	}, err
}

// recordEviction records a Pod whose eviction was accepted.
func (d *drain) recordEviction(pod *partialPod) {
	d.evicted = append(d.evicted, *pod)
	d.attempt.report.recordChange(v1alpha1.AffectedResource{
		Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Action: "evicted",
		Before: "node: " + d.parameters.Node, ResourceVersionBefore: pod.ResourceVersion,
	}, "v1")
}

// logDrained logs that the Node is drained.
func (d *drain) logDrained(pods podsOfNode) {
	if d.attempt.run.dry {
		d.attempt.report.logLine(fmt.Sprintf("node/%s drained (server dry run)", d.parameters.Node))
		return
	}
	if len(pods.left) > 0 {
		d.attempt.report.logLine("not evicted: " + joinFirstNames(pods.left))
	}
	d.attempt.report.logLine(fmt.Sprintf("node/%s drained", d.parameters.Node))
	d.attempt.note = fmt.Sprintf("Node %s is drained: %d Pods evicted, %d not evicted", d.parameters.Node, len(d.evicted), len(pods.left))
}

// addProgressToError returns the error of an incomplete drain. After the deadline, a drain that changed
// something is partial.
func (d *drain) addProgressToError(err error, remaining []partialPod) error {
	h, isHalt := errors.AsType[*halt](err)
	if !isHalt {
		return err
	}
	var b strings.Builder
	b.WriteString(h.message)
	changed := d.cordoned || len(d.evicted) > 0
	if changed {
		fmt.Fprintf(&b, "; Node %s is cordoned, and %d Pods were evicted", d.parameters.Node, len(d.evicted))
	}
	if len(remaining) > 0 {
		fmt.Fprintf(&b, "; remaining Pods: %s", joinFirstPodNames(remaining))
	}
	for _, pod := range sortedKeys(d.blocked) {
		fmt.Fprintf(&b, "; %s: %s", pod, d.blocked[pod])
	}
	code := h.code
	if changed && code == CodeDeadline {
		code = CodePartial
	}
	return newHalt(code, "%s", b.String())
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
