package operator

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

func TestWritten(t *testing.T) {
	at := func(uid types.UID, version string) *v1alpha1.KubernetesExecution {
		return &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "e", UID: uid, ResourceVersion: version}}
	}
	for name, test := range map[string]struct {
		wrote []*v1alpha1.KubernetesExecution
		seen  *v1alpha1.KubernetesExecution
		stale bool
	}{
		"nothing was written":             {seen: at("a", "9")},
		"the cache is behind":             {wrote: []*v1alpha1.KubernetesExecution{at("a", "9"), at("a", "10")}, seen: at("a", "9"), stale: true},
		"the cache has caught up":         {wrote: []*v1alpha1.KubernetesExecution{at("a", "10")}, seen: at("a", "10")},
		"somebody has written since":      {wrote: []*v1alpha1.KubernetesExecution{at("a", "10")}, seen: at("a", "11")},
		"two who write end out of order":  {wrote: []*v1alpha1.KubernetesExecution{at("a", "11"), at("a", "10")}, seen: at("a", "10"), stale: true},
		"another object of the same name": {wrote: []*v1alpha1.KubernetesExecution{at("a", "10")}, seen: at("b", "9")},
		"versions without an order":       {wrote: []*v1alpha1.KubernetesExecution{at("a", "x10")}, seen: at("a", "x9")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWritten()
			for _, ke := range test.wrote {
				w.note(ke)
			}
			if got := w.after(test.seen); got != test.stale {
				t.Errorf("older than what was written: %t, want %t", got, test.stale)
			}
			if left := len(w.version); (left > 0) != test.stale {
				t.Errorf("%d are remembered", left)
			}
		})
	}
	w := newWritten()
	w.note(at("a", "10"))
	w.forget(types.NamespacedName{Namespace: "n", Name: "e"})
	if w.after(at("a", "9")) {
		t.Error("one that is gone is remembered")
	}
}
