package check

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A readCache keeps the objects read through it. Planning reads the target, and the dry run a
// moment later is answered from here. The API server detects a change in between, because the
// requests carry the resourceVersion.
type readCache struct {
	dynamic.Interface

	mu     sync.Mutex
	last   map[objectKey]*unstructured.Unstructured
	replay bool // reads are answered from the cache, and not added to it
}

type objectKey struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

func newReadCache(c dynamic.Interface) *readCache {
	return &readCache{Interface: c, last: make(map[objectKey]*unstructured.Unstructured)}
}

// newReplayOnceClient returns a client that answers the first read of each object from the cache, and all others from the
// cluster: a second read asks for new data.
func (m *readCache) newReplayOnceClient() dynamic.Interface {
	m.mu.Lock()
	defer m.mu.Unlock()
	replay := newReadCache(m.Interface)
	replay.replay = true
	for k, o := range m.last {
		replay.last[k] = o.DeepCopy()
	}
	return replay
}

// lastRead returns the last read state of a target, or nil.
func (m *readCache) lastRead(t v1alpha1.Target) *unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, o := range m.last {
		if k.name == t.Name && k.namespace == t.Namespace && o.GetKind() == t.Kind && o.GetAPIVersion() == t.APIVersion {
			return o
		}
	}
	return nil
}

// Resource returns a resource of the cluster that reads through the cache.
func (m *readCache) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	all := m.Interface.Resource(r)
	return &cachedResource{ResourceInterface: all, memory: m, all: all, of: objectKey{resource: r}}
}

// cachedResource is one resource, in one namespace or in all.
type cachedResource struct {
	dynamic.ResourceInterface

	memory *readCache
	all    dynamic.NamespaceableResourceInterface
	of     objectKey
}

// Namespace returns the resource in a namespace.
func (r *cachedResource) Namespace(ns string) dynamic.ResourceInterface {
	of := r.of
	of.namespace = ns
	return &cachedResource{ResourceInterface: r.all.Namespace(ns), memory: r.memory, all: r.all, of: of}
}

// Get reads an object, from the cache if possible.
func (r *cachedResource) Get(
	ctx context.Context, name string, o metav1.GetOptions, subresources ...string,
) (*unstructured.Unstructured, error) {
	if len(subresources) > 0 {
		return r.ResourceInterface.Get(ctx, name, o, subresources...)
	}
	of := r.of
	of.name = name
	if old := r.memory.takeCached(of); old != nil {
		return old, nil
	}
	live, err := r.ResourceInterface.Get(ctx, name, o)
	if err == nil {
		r.memory.storeRead(of, live)
	}
	return live, err
}

// takeCached returns and removes a cached object.
func (m *readCache) takeCached(of objectKey) *unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.replay {
		return nil
	}
	old := m.last[of]
	delete(m.last, of)
	return old
}

func (m *readCache) storeRead(of objectKey, o *unstructured.Unstructured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.replay {
		m.last[of] = o.DeepCopy()
	}
}
