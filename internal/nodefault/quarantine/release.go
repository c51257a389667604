package quarantine

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// Release gives a node as it is without what is ours on it, for a person who
// wants it back, and says whether anything of ours was there. It goes by the
// node alone, so that it also does where no controller runs. With override the
// faults that had begun by then are remembered as undone, so that a controller
// that runs does not take the node at once again.
func Release(node *corev1.Node, now time.Time, reason string, override bool) (*corev1.Node, bool) {
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
	t := v.takeOff(reason, orphan)
	if override {
		writeAnnotation(t.node, v1alpha1.AnnotationOverridden, overrideOf(v.mark, now))
	}
	return t.node, true
}

// clearOverride has a controller act again on a node that was taken from it, unless
// that is to be remembered.
func clearOverride(node *corev1.Node, override bool) (*corev1.Node, bool) {
	if _, is := node.Annotations[v1alpha1.AnnotationOverridden]; override || !is {
		return node, false
	}
	after := node.DeepCopy()
	delete(after.Annotations, v1alpha1.AnnotationOverridden)
	return after, true
}

func overrideOf(m *mark, now time.Time) override {
	return override{UID: m.UID, Session: m.Session, At: microTime(now), Since: m.AppliedAt, All: true}
}
