package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestWritten(t *testing.T) {
	at := func(uid types.UID, version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "e", UID: uid, ResourceVersion: version}}
	}
	for name, test := range map[string]struct {
		wrote []*corev1.ConfigMap
		seen  *corev1.ConfigMap
		stale bool
	}{
		"nothing was written":             {seen: at("a", "9")},
		"the cache is behind":             {wrote: []*corev1.ConfigMap{at("a", "9"), at("a", "10")}, seen: at("a", "9"), stale: true},
		"the cache has caught up":         {wrote: []*corev1.ConfigMap{at("a", "10")}, seen: at("a", "10")},
		"somebody has written since":      {wrote: []*corev1.ConfigMap{at("a", "10")}, seen: at("a", "11")},
		"two who write end out of order":  {wrote: []*corev1.ConfigMap{at("a", "11"), at("a", "10")}, seen: at("a", "10"), stale: true},
		"another object of the same name": {wrote: []*corev1.ConfigMap{at("a", "10")}, seen: at("b", "9")},
		"versions without an order":       {wrote: []*corev1.ConfigMap{at("a", "x10")}, seen: at("a", "x9")},
	} {
		t.Run(name, func(t *testing.T) {
			w := &WrittenVersions{}
			for _, o := range test.wrote {
				w.RecordWritten(o)
			}
			if got := w.WroteNewerElseForget(test.seen); got != test.stale {
				t.Errorf("older than what was written: %t, want %t", got, test.stale)
			}
			if left := len(w.version); (left > 0) != test.stale {
				t.Errorf("%d are remembered", left)
			}
		})
	}
	w := &WrittenVersions{}
	w.RecordWritten(at("a", "10"))
	w.ForgetObject(types.NamespacedName{Namespace: "n", Name: "e"})
	if w.WroteNewerElseForget(at("a", "9")) {
		t.Error("one that is gone is remembered")
	}
}
