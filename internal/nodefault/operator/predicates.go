package operator

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// specMetadataBootOrReadyChanged returns a predicate for relevant changes of a Node, which excludes
// heartbeats.
func specMetadataBootOrReadyChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, beforeIsNode := e.ObjectOld.(*corev1.Node)
		after, afterIsNode := e.ObjectNew.(*corev1.Node)
		if !beforeIsNode || !afterIsNode {
			return false
		}
		lostManagedFields := len(before.ManagedFields) > 0 && len(after.ManagedFields) == 0
		return lostManagedFields ||
			before.UID != after.UID ||
			before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
			readyConditionStatus(before) != readyConditionStatus(after) ||
			!equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
			!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Annotations, after.Annotations)
	}}
}

func readyConditionStatus(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

// generationChangedOrSequenceDecreased returns a predicate for changed faults, and for status
// changes by others. Writes of the outbox are filtered.
func generationChangedOrSequenceDecreased() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, beforeIsFault := e.ObjectOld.(*v1alpha1.NodeFault)
		after, afterIsFault := e.ObjectNew.(*v1alpha1.NodeFault)
		if !beforeIsFault || !afterIsFault {
			return false
		}
		return before.UID != after.UID ||
			before.Generation != after.Generation ||
			before.Status.LastSequence > after.Status.LastSequence
	}}
}

// recordsAddedOrResendRequested returns a predicate for new records and for resend requests.
func recordsAddedOrResendRequested() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, beforeIsFault := e.ObjectOld.(*v1alpha1.NodeFault)
		after, afterIsFault := e.ObjectNew.(*v1alpha1.NodeFault)
		if !beforeIsFault || !afterIsFault {
			return false
		}
		return before.UID != after.UID ||
			before.Status.LastSequence != after.Status.LastSequence ||
			before.Annotations[v1alpha1.AnnotationResend] != after.Annotations[v1alpha1.AnnotationResend]
	}}
}
