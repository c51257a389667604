package operator

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// written knows which version of each execution was written here last. Whoever
// reads an older one from the cache would write what the API server refuses.
type written struct {
	mu      sync.Mutex
	version map[types.NamespacedName]version
}

type version struct {
	uid   types.UID
	value string
}

func newWritten() *written { return &written{version: map[types.NamespacedName]version{}} }

// note remembers what was written.
func (w *written) note(ke *v1alpha1.KubernetesExecution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := nameOf(ke)
	if !newer(w.version[name], ke) {
		w.version[name] = version{ke.UID, ke.ResourceVersion}
	}
}

// after says whether something newer than ke was written. Nothing is remembered
// of an execution whose cache has caught up.
func (w *written) after(ke *v1alpha1.KubernetesExecution) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := nameOf(ke)
	if newer(w.version[name], ke) {
		return true
	}
	delete(w.version, name)
	return false
}

func (w *written) forget(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.version, name)
}

// newer says whether v is a later version of the same object.
func newer(v version, ke *v1alpha1.KubernetesExecution) bool {
	if v.uid != ke.UID || v.uid == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(v.value, ke.ResourceVersion)
	return err == nil && order > 0 // where versions have no order, the API server refuses
}
