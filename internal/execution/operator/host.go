package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/job"
	"github.com/fleetloop/fleetloop/internal/kube"
)

// requestTimeout limits each request to the host cluster.
const requestTimeout = 30 * time.Second

var (
	errNoAnswer   = errors.New("the Kubernetes API did not respond in time")
	errCacheStale = errors.New("the cache does not have the last write yet")
)

// executions reads and writes the KubernetesExecutions of the host cluster.
type executions interface {
	// Get reads an execution from the cache; nil means none. It returns a conflict if the cache is
	// older than the last write of this process.
	Get(ctx context.Context, name types.NamespacedName) (*v1alpha1.KubernetesExecution, error)
	// List reads all executions from the cache.
	List(ctx context.Context) ([]v1alpha1.KubernetesExecution, error)
	// ApplyStatus applies the status fields of ke that owner manages, and sets ke to the stored
	// object. It fails if the object has changed.
	ApplyStatus(ctx context.Context, ke *v1alpha1.KubernetesExecution, fieldOwner string) error
	// SetFinalizer adds or removes the finalizer of the operator, and sets ke to the stored object.
	SetFinalizer(ctx context.Context, ke *v1alpha1.KubernetesExecution, present bool) error
	// Delete deletes ke and no other object of that name.
	Delete(ctx context.Context, ke *v1alpha1.KubernetesExecution) error
}

// jobs reads and writes the Jobs of executions and their Pods.
type jobs interface {
	jobReader
	jobWriter
}

type jobReader interface {
	// Job reads a Job of an execution from the cache; nil means none. With live it reads from the
	// host cluster.
	Job(ctx context.Context, ke *v1alpha1.KubernetesExecution, name string, live bool) (*batchv1.Job, error)
	// Pods reads the Pods of a Job, in the same way.
	Pods(ctx context.Context, j *batchv1.Job, live bool) ([]corev1.Pod, error)
	// ActionJobNames returns the names of all Jobs in the host cluster that run actions or have run them.
	ActionJobNames(ctx context.Context) (map[string]bool, error)
}

type jobWriter interface {
	// CreateOrGet creates a Job, or returns the existing one of the same execution and name.
	CreateOrGet(ctx context.Context, ke *v1alpha1.KubernetesExecution, j *batchv1.Job) (*batchv1.Job, error)
	// PatchSpec merges fields into the spec of a Job.
	PatchSpec(ctx context.Context, j *batchv1.Job, spec map[string]any) error
	// StopPod stops the container of a Pod. The Pod and its result stay.
	StopPod(ctx context.Context, pod *corev1.Pod) error
	// Delete deletes a Job and its Pods, with their grace period.
	Delete(ctx context.Context, j *batchv1.Job) error
}

// cacheOptions limits the cache to the objects that the operator needs. This limits both its
// permissions and its memory.
func cacheOptions(namespace string) (cache.Options, error) {
	ours, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
		MatchLabels: map[string]string{v1alpha1.LabelOwner: v1alpha1.OwnerValue},
	})
	if err != nil {
		return cache.Options{}, err
	}
	stripped := cache.TransformStripManagedFields()
	emergencyStop := fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.EmergencyStop)
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.KubernetesExecution{}: {Transform: stripped},
			&batchv1.Job{}:                  {Label: ours, Transform: stripped},
			&corev1.Pod{}:                   {Label: ours, Transform: stripped},
			&corev1.ConfigMap{}:             {Field: emergencyStop},
		},
		ReaderFailOnMissingInformer: true,
	}, nil
}

// podsOfJob is the index of Pods by the UID of their controlling Job.
const podsOfJob = "controller-uid"

func controllingJobUID(o client.Object) []string {
	if ref := metav1.GetControllerOf(o); ref != nil && ref.Kind == "Job" {
		return []string{string(ref.UID)}
	}
	return nil
}

// hostExecutions implements executions for a host cluster.
type hostExecutions struct {
	client    client.Client
	namespace string
	written   *kube.WrittenVersions
	observe   func(context.Context, *v1alpha1.KubernetesExecutionStatus, error) // each write of a status
}

// Get reads from the cache.
func (h hostExecutions) Get(ctx context.Context, name types.NamespacedName) (*v1alpha1.KubernetesExecution, error) {
	var ke v1alpha1.KubernetesExecution
	err := h.client.Get(ctx, name, &ke)
	if apierrors.IsNotFound(err) {
		h.written.ForgetObject(name)
		return nil, nil //nolint:nilnil // one that is not there is no error
	}
	if err == nil && h.written.WroteNewerElseForget(&ke) {
		resource := v1alpha1.GroupVersion.WithResource(v1alpha1.Resource).GroupResource()
		return nil, apierrors.NewConflict(resource, name.Name, errCacheStale)
	}
	return &ke, err
}

// List reads from the cache.
func (h hostExecutions) List(ctx context.Context) ([]v1alpha1.KubernetesExecution, error) {
	var list v1alpha1.KubernetesExecutionList
	err := h.client.List(ctx, &list, client.InNamespace(h.namespace))
	return list.Items, err
}

// ignoreUnknownFields disables field validation of writes. Server-side apply refuses unknown fields
// anyway, and a warning for them would cost a second parse.
const ignoreUnknownFields = client.FieldValidation(metav1.FieldValidationIgnore)

// ApplyStatus applies the status by server-side apply at the version of ke.
func (h hostExecutions) ApplyStatus(ctx context.Context, ke *v1alpha1.KubernetesExecution, fieldOwner string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       v1alpha1.Kind,
		"metadata": map[string]any{
			"namespace":       ke.Namespace,
			"name":            ke.Name,
			"uid":             ke.UID,
			"resourceVersion": ke.ResourceVersion, // so that a change since the read is a conflict
		},
		"status": &ke.Status,
	})
	if err != nil {
		return fmt.Errorf("write status of %s: %w", logKey(ke), err)
	}
	stored := v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{Namespace: ke.Namespace, Name: ke.Name}}
	err = h.client.SubResource("status").Patch(ctx, &stored, client.RawPatch(types.ApplyPatchType, body),
		client.ForceOwnership, client.FieldOwner(fieldOwner), ignoreUnknownFields)
	h.observe(ctx, &ke.Status, err)
	if err != nil {
		return fmt.Errorf("write status of %s: %w", logKey(ke), err)
	}
	stored.ManagedFields = nil
	*ke = stored
	h.written.RecordWritten(ke)
	return nil
}

// SetFinalizer patches the finalizers at the version of ke.
func (h hostExecutions) SetFinalizer(ctx context.Context, ke *v1alpha1.KubernetesExecution, present bool) error {
	if slices.Contains(ke.Finalizers, v1alpha1.Finalizer) == present {
		return nil
	}
	finalizers := slices.DeleteFunc(slices.Clone(ke.Finalizers), func(f string) bool { return f == v1alpha1.Finalizer })
	if present {
		finalizers = append(finalizers, v1alpha1.Finalizer)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers":      finalizers,
		"uid":             ke.UID,
		"resourceVersion": ke.ResourceVersion,
	}})
	if err != nil {
		return fmt.Errorf("write finalizers of %s: %w", logKey(ke), err)
	}
	stored := ke.DeepCopy()
	err = h.client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(component), ignoreUnknownFields)
	if err != nil {
		return fmt.Errorf("write finalizers of %s: %w", logKey(ke), err)
	}
	stored.ManagedFields = nil
	*ke = *stored
	h.written.RecordWritten(ke)
	return nil
}

// Delete deletes the object with the UID of ke.
func (h hostExecutions) Delete(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	err := h.client.Delete(ctx, ke, client.Preconditions{UID: &ke.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", logKey(ke), err)
	}
	return nil
}

// hostJobs implements jobs for a host cluster.
type hostJobs struct {
	client    client.Client
	live      client.Reader
	namespace string
}

// Job reads from the cache, or from the host cluster if live.
func (h hostJobs) Job(ctx context.Context, ke *v1alpha1.KubernetesExecution, name string, live bool) (*batchv1.Job, error) {
	reader := client.Reader(h.client)
	if live {
		reader = h.live
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	var j batchv1.Job
	err := reader.Get(ctx, types.NamespacedName{Namespace: ke.Namespace, Name: name}, &j)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // one that is not there is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read Job %q of %s: %w", name, logKey(ke), err)
	}
	if !metav1.IsControlledBy(&j, ke) {
		return nil, fmt.Errorf("Job %q does not belong to %s: delete the Job", name, logKey(ke))
	}
	return &j, nil
}

// Pods reads from the cache, or from the host cluster if live.
func (h hostJobs) Pods(ctx context.Context, j *batchv1.Job, live bool) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	var list corev1.PodList
	var err error
	namespace := client.InNamespace(j.Namespace)
	if live {
		err = h.live.List(ctx, &list, namespace, client.MatchingLabels{batchv1.JobNameLabel: j.Name})
	} else {
		err = h.client.List(ctx, &list, namespace, client.MatchingFields{podsOfJob: string(j.UID)})
	}
	if err != nil {
		return nil, fmt.Errorf("list Pods of Job %q: %w", j.Name, err)
	}
	// Anybody can label a Pod with the name of a Job.
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, j) }), nil
}

// ActionJobNames lists the Jobs in the host cluster.
func (h hostJobs) ActionJobNames(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	var list batchv1.JobList
	err := h.live.List(ctx, &list, client.InNamespace(h.namespace),
		client.MatchingLabels{v1alpha1.LabelOwner: v1alpha1.OwnerValue, v1alpha1.LabelPurpose: v1alpha1.PurposeExecute})
	if err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	names := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	return names, nil
}

// CreateOrGet creates j, or returns the existing Job of that name.
func (h hostJobs) CreateOrGet(ctx context.Context, ke *v1alpha1.KubernetesExecution, j *batchv1.Job) (*batchv1.Job, error) {
	call, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	err := h.client.Create(call, j, client.FieldOwner(component))
	if err == nil {
		return j, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create Job %q: %w", j.Name, err)
	}
	existing, err := h.Job(ctx, ke, j.Name, true)
	if err == nil && existing == nil {
		err = fmt.Errorf("create Job %q: an existing Job of this name was deleted meanwhile", j.Name)
	}
	return existing, err
}

// PatchSpec sends a merge patch for the UID of j.
func (h hostJobs) PatchSpec(ctx context.Context, j *batchv1.Job, spec map[string]any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": j.UID}, "spec": spec})
	if err != nil {
		return fmt.Errorf("change Job %q: %w", j.Name, err)
	}
	err = h.client.Patch(ctx, j.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(component))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change Job %q: %w", j.Name, err)
	}
	return nil
}

// StopPod sets a deadline that has passed, so that the kubelet stops the Pod.
func (h hostJobs) StopPod(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	patch := client.RawPatch(types.MergePatchType, job.StopPodPatch())
	err := h.client.Patch(ctx, pod.DeepCopy(), patch, client.FieldOwner(component))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("stop Pod %q: %w", pod.Name, err)
	}
	return nil
}

// Delete deletes the Job with the UID of j.
func (h hostJobs) Delete(ctx context.Context, j *batchv1.Job) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	err := h.client.Delete(ctx, j, client.Preconditions{UID: &j.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Job %q: %w", j.Name, err)
	}
	return nil
}
