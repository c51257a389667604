package operator

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
)

// A hostCluster accesses the host cluster.
type hostCluster struct {
	cached client.Client
	live   client.Reader
}

// Get reads an object from the cache.
func (h hostCluster) Get(ctx context.Context, key types.NamespacedName) (*v1alpha1.SentinelConfig, error) {
	var sc v1alpha1.SentinelConfig
	if err := h.cached.Get(ctx, key, &sc); err != nil {
		return nil, err
	}
	return &sc, nil
}

// GetSecretData reads the current data of a GetSecretData.
func (h hostCluster) GetSecretData(ctx context.Context, key types.NamespacedName) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	var secret corev1.Secret
	if err := h.live.Get(ctx, key, &secret); err != nil {
		return nil, err
	}
	return secret.Data, nil
}

// ApplyStatus sets the status fields that fieldOwner manages to the given ones, by server-side apply.
// Managed fields that are not given are removed. It writes only to the life of the object that ref
// names.
func (h hostCluster) ApplyStatus(ctx context.Context, ref reference, status *v1alpha1.SentinelConfigStatus, fieldOwner string) error {
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
	err = h.cached.SubResource("status").
		Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.ForceOwnership, client.FieldOwner(fieldOwner))
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// CheckMayWriteEvents asks the API server whether Kubernetes events of a namespace may be created and
// patched. A repeated event is counted by a patch.
func (h hostCluster) CheckMayWriteEvents(ctx context.Context, namespace string) (allowed bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	for _, verb := range []string{"create", "patch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: eventsv1.GroupName, Resource: "events",
			},
		}}
		if err := h.cached.Create(ctx, review); err != nil {
			return false, fmt.Errorf("check permission to %s events: %w", verb, err)
		}
		if !review.Status.Allowed {
			return false, nil
		}
	}
	return true, nil
}

// A recorder records Kubernetes events about objects. Repeated events for the same generation of
// the same object form a series.
//
// It checks its permission once. Without the permission, or before the API server has answered, it
// logs the events instead: the library that sends them would log each refusal with a dump of the
// object.
type recorder struct {
	events    events.EventRecorder
	permitted func(ctx context.Context, namespace string) (bool, error)
	log       *slog.Logger
	count     *prometheus.CounterVec // see newEventCounter

	mu       sync.Mutex
	answered bool
	may      bool
}

// checkMayWriteEventsOnce reports whether Kubernetes events may be written.
func (r *recorder) checkMayWriteEventsOnce(ctx context.Context, namespace string) (allowed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return r.may
	}
	may, err := r.permitted(ctx, namespace)
	if err != nil {
		r.log.DebugContext(ctx, "permission for kubernetes events not known yet, logging the event", "err", err)
		return false
	}
	r.answered, r.may = true, may
	if !may {
		r.log.WarnContext(ctx, "kubernetes events forbidden, logging them instead; grant create and patch on events.events.k8s.io and restart",
			"namespace", namespace)
	}
	return may
}

// The types of Kubernetes events, and the action of all events of the operator.
const (
	eventNormal  = corev1.EventTypeNormal
	eventWarning = corev1.EventTypeWarning
	actionRun    = "Run"
)

// EmitOrLogEvent sends an event, or logs it. It waits for the host cluster only until that has answered
// whether events may be sent.
func (r *recorder) EmitOrLogEvent(ctx context.Context, ref reference, s InstanceState, e eventContent) {
	typ, level := eventNormal, slog.LevelInfo
	if e.warning {
		typ, level = eventWarning, slog.LevelWarn
	}
	w := metricLabelsOf(s)
	r.count.WithLabelValues(w.shard, w.resourceType, e.reason).Inc()
	if !r.checkMayWriteEventsOnce(ctx, ref.Namespace) {
		r.log.Log(ctx, level, "sentinelconfig event", "config", ref.Name, "namespace", ref.Namespace,
			"generation", s.Seen, "reason", e.reason, "note", e.note)
		return
	}
	about := &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: kind,
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
		// It separates the series of one generation from those of the next.
		ResourceVersion: fmt.Sprint(s.Seen),
	}
	r.events.Eventf(about, nil, typ, e.reason, actionRun, "%s", truncateText(e.note))
}
