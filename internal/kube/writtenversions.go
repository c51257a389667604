package kube

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WrittenVersions records the last version that this process wrote of each object of a kind. A
// decision on an older version from the cache would be out of date. The zero value has
// no records.
type WrittenVersions struct {
	mu      sync.Mutex
	version map[types.NamespacedName]version
}

type version struct {
	uid   types.UID
	value string
}

// RecordWritten records a written version.
func (w *WrittenVersions) RecordWritten(written client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.version == nil {
		w.version = map[types.NamespacedName]version{}
	}
	name := client.ObjectKeyFromObject(written)
	if !isLaterVersionOf(w.version[name], written) {
		w.version[name] = version{written.GetUID(), written.GetResourceVersion()}
	}
}

// WroteNewerElseForget reports whether a version newer than cached was written. It removes the
// record once the cache has caught up.
func (w *WrittenVersions) WroteNewerElseForget(cached client.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := client.ObjectKeyFromObject(cached)
	if isLaterVersionOf(w.version[name], cached) {
		return true
	}
	delete(w.version, name)
	return false
}

// ForgetObject removes the record of a deleted object.
func (w *WrittenVersions) ForgetObject(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.version, name)
}

// isLaterVersionOf reports whether v is a later version of the same object.
func isLaterVersionOf(written version, cached client.Object) bool {
	if written.uid != cached.GetUID() || written.uid == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(written.value, cached.GetResourceVersion())
	return err == nil && order > 0 // the API server rejects writes of unordered versions
}
