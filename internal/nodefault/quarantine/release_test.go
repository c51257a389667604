package quarantine_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// TestReleaseForgetsAnOverride verifies that a person can end an override without
// knowledge of the annotation.
func TestReleaseForgetsAnOverride(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", UID: "1", Annotations: map[string]string{v1alpha1.AnnotationOverridden: "{}"}}}
	if after, changed := quarantine.Release(node, time.Now(), "", true); changed || after.Annotations[v1alpha1.AnnotationOverridden] == "" {
		t.Error("a release that is to be remembered forgot the one before")
	}
	after, changed := quarantine.Release(node, time.Now(), "", false)
	if _, left := after.Annotations[v1alpha1.AnnotationOverridden]; !changed || left {
		t.Errorf("changed %t, and it is left: %t", changed, left)
	}
	if node.Annotations[v1alpha1.AnnotationOverridden] == "" {
		t.Error("what was given is changed")
	}
}
