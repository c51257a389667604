package operator

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// dropFaultsOfDeletedNode removes the faults of a deleted node, so that they are not attributed
// to a new node of the same name.
func (r *reconciler) dropFaultsOfDeletedNode(
	ctx context.Context, s *reconcileState,
) (dropped bool, err error) {
	faults := s.fault.Spec.Faults
	if len(faults) == 0 || !r.mayDropFaultsOfDeletedNode(s) {
		return false, nil
	}
	keep := slices.DeleteFunc(slices.Clone(faults), func(f v1alpha1.Fault) bool {
		return s.node == nil || f.DetectedAt.Time.Before(s.minFaultTimeOfCurrentNode())
	})
	if len(keep) == len(faults) {
		return false, nil
	}
	if err := r.faults.KeepOnlyFaults(ctx, s.fault, keep); err != nil {
		return false, err
	}
	return true, nil
}

// mayDropFaultsOfDeletedNode reports whether the observed node was deleted or replaced, and its
// faults are not needed any more.
func (r *reconciler) mayDropFaultsOfDeletedNode(s *reconcileState) bool {
	status := &s.fault.Status
	deletionRecorded := status.Phase == v1alpha1.PhaseGone
	switch {
	case s.node == nil:
		// Without a UID the node may have just been created. And until the deletion is recorded,
		// the faults stay, because they are recorded with it.
		return status.NodeUID != "" && deletionRecorded
	case s.node.UID == status.NodeUID:
		return false // no node was deleted
	case status.NodeUID == "" && !deletionRecorded:
		return false // the node may have just been created
	default:
		// Until the remedy ends, sources would report the faults of the new node again.
		return !r.remedy.BlocksRelease(status)
	}
}

// minFaultTimeOfCurrentNode returns the time from which a fault belongs to the node and not to an
// earlier node of the same name. The creation time of a node has a precision of a second. Of that
// second, the faults that a reconcile has seen together with the earlier node belong to that
// node.
func (s *reconcileState) minFaultTimeOfCurrentNode() time.Time {
	created := s.node.CreationTimestamp.Time
	status := &s.fault.Status
	followsEarlierNode := status.NodeUID != "" && status.NodeUID != s.node.UID
	if followsEarlierNode && status.ObservedGeneration == s.fault.Generation {
		return created.Add(time.Second)
	}
	return created
}

// deleteFaultAfterTTL deletes a finished NodeFault after its TTL, and returns the delay until then.
func (r *reconciler) deleteFaultAfterTTL(
	ctx context.Context, s *reconcileState,
) (untilDeletion time.Duration, err error) {
	if !isFinished(s) {
		return 0, nil
	}
	status := &s.fault.Status
	if left := status.PhaseChangedAt.Add(r.cfg.TTL).Sub(s.now); left > 0 {
		return left, nil
	}
	if status.UndeliveredChangeEvents > 0 { // keep it until its change events are delivered or expired
		return r.cfg.TTL, nil
	}
	started, err := r.hasStartedAction(ctx, s.fault.Name)
	if err != nil || started {
		return r.cfg.TTL, err
	}
	return 0, r.faults.Delete(ctx, s.fault)
}

// isFinished reports whether the pipeline has nothing more to do for a node.
func isFinished(s *reconcileState) bool {
	status := &s.fault.Status
	finalPhase := status.Phase == v1alpha1.PhaseHealthy ||
		status.Phase == v1alpha1.PhaseGone ||
		status.Phase == v1alpha1.PhaseObserved
	if !finalPhase || status.PhaseChangedAt == nil || status.Overridden != nil {
		return false
	}
	if s.node != nil && hasOwnedAnnotation(s.node) {
		return false
	}
	// Faults of a node that was never observed do not count: nothing else ends them.
	nodeNeverObserved := s.node == nil && status.NodeUID == ""
	return len(s.fault.Spec.Faults) == 0 || nodeNeverObserved
}

// hasOwnedAnnotation reports whether the pipeline has marked a node as quarantined.
func hasOwnedAnnotation(node *corev1.Node) bool {
	_, is := node.Annotations[v1alpha1.AnnotationOwned]
	return is
}
