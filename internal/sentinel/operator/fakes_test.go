package operator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
)

// A fakeHost is a host cluster in memory, with the field owners of a status.
type fakeHost struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]*v1alpha1.SentinelConfig
	secrets map[string]map[string][]byte
	err     error    // of every request
	writes  []string // the owners, in order
	owned   map[string]*v1alpha1.SentinelConfigStatus
}

func newFakeHost(objects ...*v1alpha1.SentinelConfig) *fakeHost {
	h := &fakeHost{objects: map[types.NamespacedName]*v1alpha1.SentinelConfig{}, secrets: map[string]map[string][]byte{}, owned: map[string]*v1alpha1.SentinelConfigStatus{}}
	for _, o := range objects {
		h.objects[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o
	}
	return h
}

var errAway = errors.New("the API server is away")

func (h *fakeHost) setAway(away bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = nil
	if away {
		h.err = errAway
	}
}

func (h *fakeHost) Get(_ context.Context, key types.NamespacedName) (*v1alpha1.SentinelConfig, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.objects[key]
	if o == nil {
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("sentinelconfigs").GroupResource(), key.Name)
	}
	return o.DeepCopy(), nil
}

func (h *fakeHost) GetSecretData(_ context.Context, key types.NamespacedName) (map[string][]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return nil, h.err
	}
	data, ok := h.secrets[key.Name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	return data, nil
}

// ApplyStatus stores what each owner applied last, and computes the status from it.
func (h *fakeHost) ApplyStatus(_ context.Context, ref reference, status *v1alpha1.SentinelConfigStatus, owner string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	h.writes = append(h.writes, owner)
	h.owned[owner] = status.DeepCopy()
	whole := v1alpha1.SentinelConfigStatus{}
	if own := h.owned[component]; own != nil {
		whole = *own.DeepCopy()
	}
	whole.Replicas = nil
	for name, part := range h.owned {
		if strings.HasPrefix(name, component+"/") {
			whole.Replicas = append(whole.Replicas, part.Replicas...)
		}
	}
	slices.SortFunc(whole.Replicas, func(a, b v1alpha1.ReplicaStatus) int { return strings.Compare(a.Name, b.Name) })
	h.objects[ref.NamespacedName].Status = whole
	return nil
}

// written returns the owners that wrote since the last call.
func (h *fakeHost) written() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.writes
	h.writes = nil
	return list
}

func (h *fakeHost) status() v1alpha1.SentinelConfigStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.objects {
		return *o.Status.DeepCopy()
	}
	return v1alpha1.SentinelConfigStatus{}
}

// A fakeTeller stores the reasons of emitted events.
type fakeTeller struct {
	mu   sync.Mutex
	told []string
}

func (f *fakeTeller) EmitOrLogEvent(_ context.Context, _ reference, _ InstanceState, e eventContent) {
	reason := e.reason
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.warning {
		reason = "!" + reason
	}
	f.told = append(f.told, reason)
}

// take returns the reasons since the last call.
func (f *fakeTeller) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.told
	f.told = nil
	return list
}
