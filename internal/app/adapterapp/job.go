package adapterapp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/adapter"
)

// The labels of the Jobs of an adapter.
const (
	labelAdapter  = "adapter.fleetloop.io/name"
	labelResource = "adapter.fleetloop.io/resource"
)

const (
	defaultJobWait = time.Minute
	jobPoll        = time.Second
	cleanupJobTTL  = 3600 // seconds; nothing else deletes the Job that cleaned up
)

// The values of result.state.
const (
	jobWaiting   = "Waiting" // for the end of a Job of an earlier generation
	jobRunning   = "Running"
	jobSucceeded = "Succeeded"
)

// A jobAction runs a Job for each generation of a resource.
type jobAction struct {
	kube          client.Client
	name, purpose string
	manifest      value
	wait          time.Duration
}

func (c *compiler) compileJobAction(purpose, adapterName string, f Job, kube client.Client) action {
	key := purpose + ".job.manifest"
	fields, _ := f.Manifest.Value.(map[string]any)
	if _, found, _ := unstructured.NestedFieldNoCopy(fields, "spec", "ttlSecondsAfterFinished"); found {
		c.recordError(key, errors.New("must have no ttlSecondsAfterFinished: a Job that is deleted runs again"))
	}
	if ns, _, _ := unstructured.NestedString(fields, "metadata", "namespace"); ns == "" {
		c.recordError(key, errors.New("must be a mapping with metadata.namespace and spec"))
	}
	return &jobAction{
		kube:     kube,
		name:     adapterName,
		purpose:  purpose,
		manifest: c.compileTree(key, f.Manifest.Value, c.resource),
		wait:     cmp.Or(f.Wait, defaultJobWait),
	}
}

// prepareStep implements action.
func (a *jobAction) prepareStep(s *scope) (step, error) {
	manifest, err := a.manifest(s)
	if err != nil {
		return nil, err
	}
	fields, _ := manifest.(map[string]any) // the compiler accepts only mappings
	job := &unstructured.Unstructured{Object: fields}
	job.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))

	// The name has the resource and its generation, so that each generation has one Job.
	resource := hashOfResource(s)
	suffix := fmt.Sprintf("-%s-%d", resource, s.vars["generation"])
	if a.purpose == "delete" {
		suffix += "-delete"
	}
	const maxNameLength = 63
	job.SetName(a.name[:min(len(a.name), maxNameLength-len(suffix))] + suffix)

	// By the labels, the Jobs of earlier generations are found.
	labels := job.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelAdapter] = a.name
	labels[labelResource] = resource
	job.SetLabels(labels)
	if a.purpose == "delete" {
		if err := unstructured.SetNestedField(fields, int64(cleanupJobTTL), "spec", "ttlSecondsAfterFinished"); err != nil {
			return nil, err
		}
	}
	return jobStep{a, job}, nil
}

// hashOfResource returns a text for a resource that is valid in a label.
func hashOfResource(s *scope) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s", s.vars["kind"], s.vars["id"]))
	return hex.EncodeToString(sum[:])[:16]
}

type jobStep struct {
	action *jobAction
	object *unstructured.Unstructured
}

// describeForDryRun implements step.
func (j jobStep) describeForDryRun() map[string]any { return map[string]any{"job": j.object.Object} }

// runStep implements step. A failed Job is a permanent error.
func (j jobStep) runStep(ctx context.Context) (map[string]any, error) {
	deadline := time.NewTimer(j.action.wait)
	defer deadline.Stop()
	tick := time.NewTicker(jobPoll)
	defer tick.Stop()
	for {
		state, err := j.ensureOnlyThisJob(ctx)
		if err != nil {
			return nil, fmt.Errorf("run Job %q: %w", j.object.GetName(), err)
		}
		result := map[string]any{"state": state, "job": j.object.GetName()}
		if state == jobSucceeded {
			return result, nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return result, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// ensureOnlyThisJob deletes the other Jobs of the resource, creates this one if none is left, and returns its state.
func (j jobStep) ensureOnlyThisJob(ctx context.Context) (state string, err error) {
	var list batchv1.JobList
	labels := client.MatchingLabels{labelAdapter: j.action.name, labelResource: j.object.GetLabels()[labelResource]}
	if err := j.action.kube.List(ctx, &list, client.InNamespace(j.object.GetNamespace()), labels); err != nil {
		return "", err
	}
	var own *batchv1.Job
	others := false
	for i := range list.Items {
		job := &list.Items[i]
		if job.Name == j.object.GetName() {
			own = job
			continue
		}
		others = true
		if job.DeletionTimestamp != nil {
			continue
		}
		// In the foreground, so that the Job exists as long as one of its Pods does.
		err := j.action.kube.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground))
		if client.IgnoreNotFound(err) != nil {
			return "", err
		}
	}
	switch {
	case others:
		return jobWaiting, nil
	case own == nil:
		return jobRunning, j.createJobIfMissing(ctx)
	}
	for _, c := range own.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type { //nolint:exhaustive // the others say nothing about the result
		case batchv1.JobComplete:
			return jobSucceeded, nil
		case batchv1.JobFailed:
			return "", adapter.Permanent(fmt.Errorf("the Job failed: %s: %s; delete it to run it again", c.Reason, c.Message))
		}
	}
	return jobRunning, nil
}

// createJobIfMissing creates the Job. Unknown fields of its manifest are an error.
func (j jobStep) createJobIfMissing(ctx context.Context) error {
	var job batchv1.Job
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(j.object.Object, &job, true); err != nil {
		return adapter.Permanent(err)
	}
	err := j.action.kube.Create(ctx, &job)
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return adapter.Permanent(err)
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
