package kube

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Written knows which version of each object of a kind was written here last.
// Whoever reads an older one from the cache would decide upon what is no longer
// so. The zero value knows of none.
type Written struct {
	mu      sync.Mutex
	version map[types.NamespacedName]version
}

type version struct {
	uid   types.UID
	value string
}

// Note remembers what was written.
func (w *Written) Note(o client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.version == nil {
		w.version = map[types.NamespacedName]version{}
	}
	name := client.ObjectKeyFromObject(o)
	if !isNewerThan(w.version[name], o) {
		w.version[name] = version{o.GetUID(), o.GetResourceVersion()}
	}
}

// After says whether something newer than o was written. Nothing is remembered
// of an object whose cache has caught up.
func (w *Written) After(o client.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := client.ObjectKeyFromObject(o)
	if isNewerThan(w.version[name], o) {
		return true
	}
	delete(w.version, name)
	return false
}

// Forget is for an object that is gone.
func (w *Written) Forget(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.version, name)
}

// isNewerThan says whether v is a later version of the same object.
func isNewerThan(v version, o client.Object) bool {
	if v.uid != o.GetUID() || v.uid == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(v.value, o.GetResourceVersion())
	return err == nil && order > 0 // where versions have no order, the API server refuses
}
