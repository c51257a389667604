package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
)

// A hostCluster is the host as it is.
type hostCluster struct {
	cached client.Client
	live   client.Reader
}

// Get reads an object, as it was last told.
func (h hostCluster) Get(ctx context.Context, key types.NamespacedName) (*v1alpha1.SentinelConfig, error) {
	var sc v1alpha1.SentinelConfig
	if err := h.cached.Get(ctx, key, &sc); err != nil {
		return nil, err
	}
	return &sc, nil
}

// Secret reads what a Secret holds now.
func (h hostCluster) Secret(ctx context.Context, key types.NamespacedName) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	var secret corev1.Secret
	if err := h.live.Get(ctx, key, &secret); err != nil {
		return nil, err
	}
	return secret.Data, nil
}

// ApplyStatus makes the fields that owner has of a status the given ones, by
// server-side apply: those it had and are not given go. Only the life of the object is
// written to that ref names.
func (h hostCluster) ApplyStatus(ctx context.Context, ref reference, status *v1alpha1.SentinelConfigStatus, owner string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	object.SetNamespace(ref.Namespace)
	object.SetName(ref.Name)
	object.SetUID(ref.UID)
	err = h.cached.SubResource("status").Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.ForceOwnership, client.FieldOwner(owner))
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// A recorder tells of objects by Kubernetes events. What comes again for the
// same generation of the same object adds to a series.
type recorder struct{ events events.EventRecorder }

// The types of Kubernetes events, and what is done in all of ours.
const (
	eventNormal  = corev1.EventTypeNormal
	eventWarning = corev1.EventTypeWarning
	actionRun    = "Run"
)

// Tell sends an event. It does not wait for the host cluster.
func (r recorder) Tell(ref reference, generation int64, warning bool, reason, note string) {
	typ := eventNormal
	if warning {
		typ = eventWarning
	}
	about := &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: kind,
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
		// It tells the series of one generation from those of the next.
		ResourceVersion: fmt.Sprint(generation),
	}
	r.events.Eventf(about, nil, typ, reason, actionRun, "%s", shorten(note))
}
