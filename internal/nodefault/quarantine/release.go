package quarantine

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// Release returns a node without the changes of the pipeline, for a person who releases
// it, and reports whether there were any. It uses only the node, so it also works without
// a running controller. With override, it records the faults that have begun by now as
// overridden, so that a running controller does not quarantine the node again at once.
func Release(node *corev1.Node, now time.Time, reason string, override bool) (after *corev1.Node, changed bool) {
	now = now.Truncate(time.Microsecond)
	v := newView(Look{Now: now, Node: node, Status: &v1alpha1.NodeFaultStatus{}})
	orphan := v.mark == nil
	if orphan {
		if !v.isCordoned() || v.holds != us {
			return clearOverride(node, override)
		}
		f := v.openingFault()
		v.mark = &mark{UID: node.UID, Owned: v1alpha1.Owned{Session: nodefault.NewSession(node.UID, f, now), Cordon: true}}
	}
	t := v.planRelease(reason, orphan)
	if override {
		writeAnnotation(t.node, v1alpha1.AnnotationOverridden, overrideOf(v.mark, now))
	}
	return t.node, true
}

// clearOverride removes an override so that a controller acts on the node again, unless
// the caller wants to keep it.
func clearOverride(node *corev1.Node, keep bool) (after *corev1.Node, changed bool) {
	if _, is := node.Annotations[v1alpha1.AnnotationOverridden]; keep || !is {
		return node, false
	}
	after = node.DeepCopy()
	delete(after.Annotations, v1alpha1.AnnotationOverridden)
	return after, true
}

func overrideOf(m *mark, now time.Time) override {
	return override{UID: m.UID, Session: m.Session, At: microTime(now), Since: m.AppliedAt, All: true}
}
