package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// barePool holds the nodes that a bare loop cordons.
const barePool = "bare"

// cordonWrites counts the accepted writes of a storm by kind.
type cordonWrites struct{ reports, statuses, nodes int }

func countCordonWrites(writes []auditedWrite) (counts cordonWrites) {
	for _, w := range writes {
		switch {
		case w.ResponseStatus.Code >= http.StatusBadRequest:
		case strings.Contains(w.RequestURI, byIntake):
			counts.reports++
		case w.ObjectRef.Resource == v1alpha1.Resource:
			counts.statuses++
		case w.ObjectRef.Resource == "nodes":
			counts.nodes++
		}
	}
	return counts
}

// bareCordoner repeats the writes of the controller with the same content, without deciding anything.
type bareCordoner struct {
	faults, nodes dynamic.ResourceInterface
	fault         *unstructured.Unstructured // of a cordoned node
	faultStatus   map[string]any
	cordon        []byte // a merge patch
}

// measureBareCordons makes as many writes of each kind as the controller did in the storm, several at a time, and
// returns how long they took.
func (b *faultBed) measureBareCordons(ctx context.Context, counts cordonWrites, cordonedNode string) (took time.Duration, err error) {
	c, err := b.newBareCordoner(ctx, cordonedNode)
	if err != nil {
		return 0, err
	}
	names := nodeNames(barePool, counts.reports)
	began := time.Now()
	err = runForEachInParallel(names, func(name string) error { return c.applyReport(ctx, name) })
	if err != nil {
		return 0, err
	}
	err = runForEachInParallel(names[:counts.nodes], func(name string) error { return c.cordonNode(ctx, name) })
	if err != nil {
		return 0, err
	}
	for round := 0; counts.statuses > 0; round++ {
		inRound := min(counts.statuses, len(names))
		counts.statuses -= inRound
		patch, err := c.newStatusPatch(round)
		if err != nil {
			return 0, err
		}
		err = runForEachInParallel(names[:inRound], func(name string) error { return c.patchFaultStatus(ctx, name, patch) })
		if err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// newBareCordoner takes the content of its writes from a node that the controller has cordoned.
func (b *faultBed) newBareCordoner(ctx context.Context, cordonedModel string) (*bareCordoner, error) {
	cfg := b.bed.Config()
	cfg.QPS = -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	c := &bareCordoner{
		faults: client.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)),
		nodes:  client.Resource(corev1.SchemeGroupVersion.WithResource("nodes")),
	}
	if c.fault, err = c.faults.Get(ctx, cordonedModel, metav1.GetOptions{}); err != nil {
		return nil, err
	}
	node, err := c.nodes.Get(ctx, cordonedModel, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	spec, _ := node.Object["spec"].(map[string]any)
	c.cordon, err = json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": node.GetAnnotations()},
		"spec":     map[string]any{"unschedulable": spec["unschedulable"], "taints": spec["taints"]},
	})
	if err != nil {
		return nil, err
	}
	status, _ := c.fault.Object["status"].(map[string]any)
	c.faultStatus = maps.Clone(status)
	return c, err
}

func (c *bareCordoner) applyReport(ctx context.Context, name string) error {
	report := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": c.fault.GetAPIVersion(), "kind": c.fault.GetKind(), "spec": c.fault.Object["spec"],
	}}
	report.SetName(name)
	_, err := c.faults.Apply(ctx, name, report, metav1.ApplyOptions{FieldManager: "bare", Force: true})
	if err != nil {
		return fmt.Errorf("apply the report of %q: %w", name, err)
	}
	return nil
}

func (c *bareCordoner) cordonNode(ctx context.Context, name string) error {
	_, err := c.nodes.Patch(ctx, name, types.MergePatchType, c.cordon, metav1.PatchOptions{})
	return err
}

// newStatusPatch returns a patch that differs in each round. The API server does not write a patch without a change.
func (c *bareCordoner) newStatusPatch(round int) ([]byte, error) {
	c.faultStatus["session"] = fmt.Sprint("round-", round)
	return json.Marshal(map[string]any{"status": c.faultStatus})
}

func (c *bareCordoner) patchFaultStatus(ctx context.Context, name string, patch []byte) error {
	_, err := c.faults.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
