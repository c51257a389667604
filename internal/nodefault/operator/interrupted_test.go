package operator

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// endlessRepairs reboots a node without end, and records the sessions whose remedy was cancelled.
type endlessRepairs struct {
	repairs
	cancelled *[]string
}

func (r endlessRepairs) Step(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error) {
	if r.BlocksRelease(st) {
		return 0, nil
	}
	return r.repairs.Step(ctx, node, st, now)
}

func (r endlessRepairs) Cancel(ctx context.Context, st *v1alpha1.NodeFaultStatus, reason string, now time.Time) error {
	if r.BlocksRelease(st) {
		*r.cancelled = append(*r.cancelled, st.Session+": "+reason)
	}
	return r.repairs.Cancel(ctx, st, reason, now)
}

// TestReleaseDuringARepair verifies that a release that allows another quarantine cancels the remedy
// before the next session begins, which would forget it.
func TestReleaseDuringARepair(t *testing.T) {
	w := newFixture(t)
	r := w.newReconciler(wide(), false)
	var cancelled []string
	r.remedy = endlessRepairs{repairs{w}, &cancelled}
	w.join(sick)
	w.report(sick, "xid")
	w.rest(func() *reconciler { return r })
	first := w.faults[sick].Status
	if first.Remediation == nil || first.Remediation.State != v1alpha1.RemedyRunning {
		t.Fatalf("no remedy runs: %+v", first.Remediation)
	}
	w.edit(sick, func(n *corev1.Node) {
		released, _ := quarantine.Release(n, w.now, "by hand", false)
		*n = *released
	})
	w.rest(func() *reconciler { return r })
	if want := []string{first.Session + ": the node was released"}; !slices.Equal(cancelled, want) {
		t.Errorf("cancelled %v, want %v", cancelled, want)
	}
	if again := w.faults[sick].Status; again.Session == first.Session || again.Remediation == nil {
		t.Errorf("no other session began: %q after %q, %+v", again.Session, first.Session, again.Remediation)
	}
}

// A failingJudge evaluates no rule.
type failingJudge struct{}

func (failingJudge) Decide(*corev1.Node, []v1alpha1.Fault, time.Time) (nodefault.Verdict, error) {
	return nodefault.Verdict{Unsure: true}, errors.New("no such key")
}

// TestRulesFailDuringADrain verifies that a drain is cancelled, so that it holds no drain slot, while
// the rules cannot be evaluated, and that it begins again in the same session.
func TestRulesFailDuringADrain(t *testing.T) {
	w := newFixture(t)
	r := w.newReconciler(wide(), false)
	w.join(sick)
	w.pods[sick] = 5
	w.report(sick, "xid")
	for st := w.faults[sick]; st.Status.Drain == nil; st = w.faults[sick] {
		w.look(r, sick)
	}
	session, working := w.faults[sick].Status.Session, r.rules
	r.rules = failingJudge{}
	w.rest(func() *reconciler { return r })
	if st := w.faults[sick].Status; st.Drain.State != v1alpha1.DrainCancelled || !w.nodes[sick].Spec.Unschedulable {
		t.Errorf("the drain is %s, the node cordoned: %t", st.Drain.State, w.nodes[sick].Spec.Unschedulable)
	}
	r.rules = working
	w.rest(func() *reconciler { return r })
	if st := w.faults[sick].Status; st.Session != session || st.Drain.State != v1alpha1.DrainCompleted {
		t.Errorf("in session %q after %q, the drain is %s", st.Session, session, st.Drain.State)
	}
}
