package main

import (
	"context"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// stopControllerAndMeasureReplay sends the requests of the controller without it, after it was stopped. For each
// target, loops send its queries for an execution, and its writes, with model as the template. They
// scale the targets back.
func (b *executionBed) stopControllerAndMeasureReplay(
	ctx context.Context,
	targets []string,
	model *v1alpha1.KubernetesExecution,
) (took time.Duration, err error) {
	if err := b.controller.Process.Signal(os.Interrupt); err != nil {
		return 0, err
	}
	<-b.ended
	writer, err := b.clientAs(controllerUser, "system:serviceaccounts", executorGroup)
	if err != nil {
		return 0, err
	}
	ended, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&model.Status)
	if err != nil {
		return 0, err
	}
	course := bareReplay{bed: b, writer: writer, ended: ended, begun: runtime.DeepCopyJSON(ended)}
	course.begun["phase"] = string(v1alpha1.PhaseExecuting)
	for _, later := range []string{"outcome", "executionResults", "rollbackInformation"} {
		delete(course.begun, later)
	}
	began := time.Now()
	err = runForEachInParallel(targets, func(target string) error { return course.replayExecutionRequests(ctx, target) })
	return time.Since(began), err
}

// A bareReplay holds the content of the writes for one execution after another.
type bareReplay struct {
	bed          *executionBed
	writer       client.Client
	begun, ended map[string]any // statuses
}

func (c bareReplay) replayExecutionRequests(ctx context.Context, target string) error {
	ke := newScaleExecution("bare-"+target, cheap, target, "")
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cheap, Name: target}}
	scale := func(o ...client.SubResourcePatchOption) error {
		return c.bed.admin.SubResource("scale").Patch(ctx, d.DeepCopy(), newMergePatch(`{"spec":{"replicas":%d}}`, replicasBefore), o...)
	}
	held := func(finalizers string) error {
		return c.writer.Patch(ctx, ke, newMergePatch(`{"metadata":{"finalizers":%s,"resourceVersion":%q}}`, finalizers, ke.ResourceVersion))
	}
	audited := map[string]any{"conditions": []any{map[string]any{
		"type": v1alpha1.ConditionAuditRecorded, "status": "True", "reason": "Recorded", "message": "what became of it is in the audit",
		"lastTransitionTime": "2026-01-02T03:04:05Z",
	}}}
	for _, step := range []func() error{
		func() error { return c.bed.requester.Create(ctx, ke) },
		func() error { return c.bed.admin.Get(ctx, client.ObjectKeyFromObject(d), d) },
		func() error { return scale(client.DryRunAll) },
		func() error { return held(fmt.Sprintf("[%q]", v1alpha1.Finalizer)) },
		func() error { return c.applyStatus(ctx, ke, c.begun, "bare") },
		func() error { return c.bed.admin.Get(ctx, client.ObjectKeyFromObject(d), d) },
		func() error { return scale() },
		func() error { return c.applyStatus(ctx, ke, c.ended, "bare") },
		func() error { return c.createEvent(ctx, ke) },
		func() error { return c.applyStatus(ctx, ke, audited, "bare-audit") },
		func() error { return held("null") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c bareReplay) applyStatus(
	ctx context.Context,
	ke *v1alpha1.KubernetesExecution,
	status map[string]any,
	owner client.FieldOwner,
) error {
	o := &unstructured.Unstructured{Object: map[string]any{"status": runtime.DeepCopyJSON(status)}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	o.SetNamespace(ke.Namespace)
	o.SetName(ke.Name)
	o.SetResourceVersion(ke.ResourceVersion)
	err := c.writer.SubResource("status").Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership, owner)
	ke.ResourceVersion = o.GetResourceVersion()
	return err
}

func (c bareReplay) createEvent(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	return c.writer.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ke.Namespace,
			Name:      ke.Name,
		}, EventTime: metav1.NowMicro(), ReportingController: "bare", ReportingInstance: "bare",
		Action: "Execute", Reason: "ExecutionCompletedPermanent", Type: corev1.EventTypeNormal, Note: "it goes back",
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(),
			Kind:       v1alpha1.Kind,
			Namespace:  ke.Namespace,
			Name:       ke.Name,
			UID:        ke.UID,
		},
	})
}
