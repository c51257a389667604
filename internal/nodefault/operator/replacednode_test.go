package operator

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

func TestFaultsOfANodeThatIsGone(t *testing.T) {
	w := newFixture(t)
	r := w.newReconciler(wide(), false)
	next := func() *reconciler { return r }
	w.join(sick)
	w.report(sick, "xid")
	w.rest(next)
	delete(w.nodes, sick)
	w.rest(next)
	if f := w.faults[sick]; f.Status.Phase != v1alpha1.PhaseGone || len(f.Spec.Faults) != 0 {
		t.Errorf("it is %s with %d faults", f.Status.Phase, len(f.Spec.Faults))
	}
	w.now = w.now.Add(time.Minute)
	w.join(sick)
	w.rest(next)
	if w.nodes[sick].Spec.Unschedulable {
		t.Error("another node of its name is cordoned for its faults")
	}

	// A node that was replaced unobserved.
	w.report(sick, "xid")
	w.rest(next)
	w.now = w.now.Add(time.Minute)
	w.join(sick)
	w.rest(next)
	if w.nodes[sick].Spec.Unschedulable {
		t.Error("a node that took its place is cordoned for its faults")
	}
}

// TestNodeReplacedWithinASecond verifies that the faults of a node are not attributed to a node that
// replaces it in the second of their detection: the creation time of a node has no fraction.
func TestNodeReplacedWithinASecond(t *testing.T) {
	for name, seesDeletion := range map[string]bool{"deletion seen": true, "deletion missed": false} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			r := w.newReconciler(wide(), false)
			w.join(sick)
			w.now = w.now.Add(time.Minute + 100*time.Millisecond)
			w.report(sick, "xid")
			w.rest(func() *reconciler { return r })
			if seesDeletion {
				delete(w.nodes, sick)
				w.mishap = func(before bool) error {
					if before || w.phase() != v1alpha1.PhaseGone {
						return nil
					}
					w.mishap = func(bool) error { return nil }
					return errDied // before it has removed the faults
				}
				if _, lives := w.look(r, sick); lives || len(w.faults[sick].Spec.Faults) != 1 {
					t.Fatalf("it lives: %t, with %d faults, want 1", lives, len(w.faults[sick].Spec.Faults))
				}
				r = w.newReconciler(wide(), false)
			}
			w.now = w.now.Add(500 * time.Millisecond)
			w.join(sick)
			w.rest(func() *reconciler { return r })
			if w.nodes[sick].Spec.Unschedulable || len(w.faults[sick].Spec.Faults) > 0 {
				t.Error("the new node is cordoned for the faults of the old node")
			}
			w.report(sick, "disk")
			w.rest(func() *reconciler { return r })
			if !w.nodes[sick].Spec.Unschedulable {
				t.Error("a fault that was reported of the new node is lost")
			}
		})
	}
}

// TestFaultsOfANodeThatNobodySaw verifies that the faults of a node that was never
// observed are not attributed to the next node of its name, and are deleted eventually. A
// node that is missing in the cache is not gone.
func TestFaultsOfANodeThatNobodySaw(t *testing.T) {
	w := newFixture(t)
	r := w.newReconciler(wide(), false)
	w.report(sick, "xid")
	w.settle(r)
	if f := w.faults[sick]; f.Status.Phase != v1alpha1.PhaseGone || len(f.Spec.Faults) != 1 {
		t.Errorf("it is %s with %d faults: the cache may be behind", f.Status.Phase, len(f.Spec.Faults))
	}
	w.now = w.now.Add(time.Minute)
	w.join(sick)
	w.settle(r)
	if w.nodes[sick].Spec.Unschedulable || len(w.faults[sick].Spec.Faults) > 0 {
		t.Error("a node that took its place is cordoned for its faults")
	}

	const late = "node-01"
	w.join(late)
	n := w.nodes[late]
	delete(w.nodes, late) // the cache is stale
	w.report(late, "xid")
	w.settle(r)
	w.nodes[late] = n
	w.settle(r)
	if !n.Spec.Unschedulable && !w.nodes[late].Spec.Unschedulable {
		t.Error("a fault was lost to a cache that was behind")
	}

	const never = "node-02"
	w.report(never, "xid")
	w.settle(r)
	w.now = w.now.Add(25 * time.Hour)
	w.settle(r)
	if w.faults[never] != nil {
		t.Error("the fault of a node that was never there is kept for ever")
	}
}

// endless are repairs that stay in progress.
type endless struct{ repairs }

func (endless) Step(context.Context, *corev1.Node, *v1alpha1.NodeFaultStatus, time.Time) (time.Duration, error) {
	return time.Minute, nil
}

func (endless) BlocksRelease(*v1alpha1.NodeFaultStatus) bool { return true }

// TestOldFaultsOfANewNode covers a node that was replaced during its remedy and whose
// sources report old faults. The faults stay until the session of the old node ends;
// otherwise they would be removed and reported again in a loop.
func TestOldFaultsOfANewNode(t *testing.T) {
	w := newFixture(t)
	r := w.newReconciler(wide(), false)
	r.remedy = endless{repairs{w}}
	w.join(sick)
	w.report(sick, "xid")
	old := w.faults[sick].Spec.Faults[0]
	w.rest(func() *reconciler { return r })
	w.now = w.now.Add(time.Minute)
	w.join(sick)
	for range 20 {
		w.look(r, sick)
		if f := w.faults[sick]; len(f.Spec.Faults) == 0 { // like a source that checks the node
			f.Spec.Faults = []v1alpha1.Fault{old}
			w.stamp(&f.ObjectMeta)
		}
	}
	if n := strings.Count(strings.Join(w.writes, " "), "faults"); n > 0 {
		t.Errorf("its faults were taken away %d times", n)
	}
	r.remedy = repairs{w}
	w.faults[sick].Status.Remediation = nil
	w.rest(func() *reconciler { return r })
	if w.nodes[sick].Spec.Unschedulable || len(w.faults[sick].Spec.Faults) > 0 {
		t.Error("they are taken for those of the new node")
	}
}
