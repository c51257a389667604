package quarantine

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// Release returns a node without the changes of the pipeline, for a person who releases
// it, and reports whether there were any. It uses only the node, so it also works without
// a running controller. With recordOverride, it records the faults that have begun by now as
// overridden, so that a running controller does not quarantine the node again at once.
func Release(
	node *corev1.Node, now time.Time, reason string, recordOverride bool,
) (released *corev1.Node, changed bool) {
	now = now.Truncate(time.Microsecond)
	n := newNodeState(StepInput{Now: now, Node: node, Status: &v1alpha1.NodeFaultStatus{}})
	sessionUnknown := n.mark == nil
	if sessionUnknown {
		if !n.isCordoned() || n.cordonOwner != us {
			return removeOverrideUnlessKept(node, recordOverride)
		}
		session := nodefault.NewSessionID(node.UID, n.openingFault(), now)
		n.mark = &ownedMark{UID: node.UID, Owned: v1alpha1.Owned{Session: session, Cordon: true}}
	}
	withoutChanges := n.buildReleasedNode(reason, sessionUnknown)
	if recordOverride {
		override := newOverrideOfAllFaults(n.mark, now)
		setJSONAnnotation(withoutChanges.node, v1alpha1.AnnotationOverridden, override)
	}
	return withoutChanges.node, true
}

// removeOverrideUnlessKept removes an override so that a controller acts on the node again, unless
// the caller wants to keep it.
func removeOverrideUnlessKept(node *corev1.Node, keep bool) (after *corev1.Node, changed bool) {
	_, overridden := node.Annotations[v1alpha1.AnnotationOverridden]
	if keep || !overridden {
		return node, false
	}
	after = node.DeepCopy()
	delete(after.Annotations, v1alpha1.AnnotationOverridden)
	return after, true
}

func newOverrideOfAllFaults(m *ownedMark, now time.Time) overrideRecord {
	return overrideRecord{UID: m.UID, Session: m.Session, At: toMicroTime(now), Since: m.AppliedAt, All: true}
}
