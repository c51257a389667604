package operator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault/budget"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sick = "node-00"

// wide returns a budget that is never exhausted.
func wide() budget.Config {
	return budget.Config{MaxPercent: 100, MinAllowedNodes: 100, WindowMinAllowedNodes: 100}
}

var wholeStory = []string{
	changeevent.ActionCordon, changeevent.ActionDrainStarted, changeevent.ActionDrainCompleted,
	changeevent.ActionRebootRequested, changeevent.ActionRebootExecuted, changeevent.ActionUncordon,
}

// play runs a fault from its start to its end. next returns the process of the next
// reconcile, which may be another one each time.
func (w *fixture) play(next func() *reconciler) {
	w.Helper()
	w.join(sick)
	w.pods[sick] = 2
	w.report(sick, "xid")
	w.rest(next)
	w.heal(sick)
	w.rest(next)
	w.now = w.now.Add(healthyFor)
	w.rest(next)
}

// rest reconciles until nothing is left to do.
func (w *fixture) rest(next func() *reconciler) {
	w.Helper()
	for range 100 {
		writes := len(w.writes)
		again, lives := w.look(next(), sick)
		if again > 0 && again <= time.Second {
			w.now = w.now.Add(again)
			continue
		}
		if lives && writes == len(w.writes) {
			return
		}
	}
	w.Fatalf("it never comes to rest")
}

func TestWholeStory(t *testing.T) {
	w := newFixture(t)
	r := w.newReconciler(wide(), false)
	w.play(func() *reconciler { return r })
	if diff := cmp.Diff(wholeStory, w.told(sick)); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if n := w.nodes[sick]; n.Spec.Unschedulable || w.phase() != v1alpha1.PhaseHealthy || w.pods[sick] != 0 || !w.reboots[sick] {
		t.Errorf("it ends %s, unschedulable %t, with %d pods, rebooted %t", w.phase(), n.Spec.Unschedulable, w.pods[sick], w.reboots[sick])
	}
	w.now = w.now.Add(25 * time.Hour)
	w.rest(func() *reconciler { return r })
	if w.faults[sick] != nil {
		t.Error("a NodeFault is kept that has nothing more to say")
	}
}

// TestTwoWritesForACordon verifies that a cordon is recorded at once, together with a
// drain that has no pods to evict.
func TestTwoWritesForACordon(t *testing.T) {
	for name, pods := range map[string]int{"NothingHasToGo": 0, "PodsHaveToGo": 2} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.join(sick)
			w.pods[sick] = pods
			w.report(sick, "xid")
			r := w.newReconciler(wide(), false)
			w.mishap = func(before bool) error {
				if before && w.phase() != "" {
					return errDied
				}
				return nil
			}
			for w.phase() == "" {
				w.look(r, sick)
			}
			if diff := cmp.Diff([]string{"node", "status"}, w.writes); diff != "" {
				t.Errorf("until the cordon is written down (-want +got):\n%s", diff)
			}
			st := w.faults[sick].Status
			if done := st.Drain != nil && st.Drain.State == v1alpha1.DrainCompleted; st.Owned == nil || done != (pods == 0) || st.Phase != v1alpha1.PhaseQuarantined {
				t.Errorf("with %d pods it is %s then, and its drain %+v", pods, st.Phase, st.Drain)
			}
		})
	}
}

// TestWaitingCostsNoWrites verifies that waiting NodeFaults are not written when the
// number of nodes out of service changes.
func TestWaitingCostsNoWrites(t *testing.T) {
	w := newFixture(t)
	for i := range 6 {
		w.join(nodeName(i))
	}
	w.edit(nodeName(1), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	w.report(sick, "xid")
	r := w.newReconciler(budget.Config{MinAllowedNodes: 1, WindowMinAllowedNodes: 6}, false)
	next := func() *reconciler { return r }
	w.rest(next)
	if w.phase() != v1alpha1.PhasePending || w.faults[sick].Status.Message == "" {
		t.Fatalf("it is %s: %s", w.phase(), w.faults[sick].Status.Message)
	}
	if diff := cmp.Diff(&v1alpha1.PoolBudget{Limit: 1}, w.faults[sick].Status.Budget); diff != "" {
		t.Errorf("the budget (-want +got)\n%s", diff)
	}
	writes := len(w.writes)
	w.edit(nodeName(2), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	w.rest(next)
	if more := w.writes[writes:]; len(more) > 0 {
		t.Errorf("another node that is out of service had %v written", more)
	}
}

// TestCrashes verifies that after a crash before or after any write, the same actions are
// done and recorded once.
func TestCrashes(t *testing.T) {
	w := newFixture(t)
	r := w.newReconciler(wide(), false)
	w.play(func() *reconciler { return r })
	writes := len(w.writes)
	for at := range writes {
		for _, before := range []bool{true, false} {
			w := newFixture(t)
			seen, died := 0, false
			w.mishap = func(now bool) error {
				if now != before || died {
					return nil
				}
				if seen++; seen-1 == at {
					died = true
					return errDied
				}
				return nil
			}
			w.play(func() *reconciler { return w.newReconciler(wide(), false) })
			if !died {
				t.Fatalf("there was no write %d", at)
			}
			if diff := cmp.Diff(wholeStory, w.told(sick)); diff != "" {
				t.Errorf("a death at write %d (before: %t): told (-want +got):\n%s", at, before, diff)
			}
			if diff := cmp.Diff([]string{"cordon", "uncordon"}, w.flips[sick]); diff != "" || w.phase() != v1alpha1.PhaseHealthy {
				t.Errorf("a death at write %d (before: %t): it is %s, and was written (-want +got):\n%s", at, before, w.phase(), diff)
			}
		}
	}
}

func TestDryRunTouchesNothing(t *testing.T) {
	w := newFixture(t)
	w.join(sick)
	w.pods[sick] = 1
	w.report(sick, "xid")
	before := w.nodes[sick].ResourceVersion
	r := w.newReconciler(wide(), true)
	next := func() *reconciler { return r }
	w.rest(next)
	if w.phase() != v1alpha1.PhaseDryRun {
		t.Errorf("it is %s", w.phase())
	}
	w.heal(sick)
	w.rest(next)
	w.now = w.now.Add(healthyFor)
	w.rest(next)
	if w.nodes[sick].ResourceVersion != before || w.pods[sick] != 1 || w.reboots[sick] {
		t.Error("something was done to the node")
	}
	h := w.faults[sick].Status.History
	if diff := cmp.Diff([]string{"cordon", "drain-started", "uncordon"}, w.told(sick)); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	for _, r := range h {
		if !r.DryRun {
			t.Errorf("told as if it had been done: %+v", r)
		}
	}
}

// TestNothingGoesTooFar verifies that no sequence of faults, people and crashes exceeds
// the budget, reverts a change of a person, leaves a cordon of the controller behind, or
// makes the records incorrect.
func TestNothingGoesTooFar(t *testing.T) {
	const nodes, most = 6, 2
	allowed := budget.Config{MaxPercent: 0, MinAllowedNodes: most, WindowMinAllowedNodes: nodes}
	rapid.Check(t, func(t *rapid.T) {
		w := newFixture(t)
		for i := range nodes {
			w.join(nodeName(i))
			w.pods[nodeName(i)] = 1
		}
		theirs := map[string]bool{} // nodes that a person has cordoned
		told := map[string][]string{}
		r := w.newReconciler(allowed, false)
		some := func() string { return nodeName(rapid.IntRange(0, nodes-1).Draw(t, "node")) }
		look := func(name string) {
			out, flips := w.out(), len(w.flips[name])
			if _, lives := w.look(r, name); !lives {
				r = w.newReconciler(allowed, false)
			}
			for _, did := range w.flips[name][flips:] {
				switch {
				case did == "cordon" && out >= most:
					t.Fatalf("node %q is cordoned with %d out of service", name, out)
				case did == "uncordon" && theirs[name]:
					t.Fatalf("node %q is uncordoned, which a person had cordoned", name)
				}
			}
		}
		note := func(name string) {
			for _, a := range w.told(name) {
				if a == "cordon" || a == "uncordon" {
					told[name] = append(told[name], a)
				}
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"look", "look", "look", "report", "heal", "cordon", "uncordon", "time", "die", "replace", "hold", "unhold", "optout", "optin"}).Draw(t, "what") {
			case "look":
				look(some())
			case "report":
				w.report(some(), rapid.SampledFrom([]string{"xid", "nic"}).Draw(t, "check"))
			case "heal":
				w.heal(some())
			case "cordon":
				name := some()
				if !w.nodes[name].Spec.Unschedulable {
					theirs[name] = true
				}
				w.edit(name, func(n *corev1.Node) { n.Spec.Unschedulable = true })
			case "uncordon":
				name := some()
				theirs[name] = false
				w.edit(name, func(n *corev1.Node) { n.Spec.Unschedulable = false })
			case "time":
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
			case "die":
				before := rapid.Bool().Draw(t, "before")
				w.mishap = func(now bool) error {
					if now == before {
						return errDied
					}
					return nil
				}
				look(some())
				w.mishap = func(bool) error { return nil }
			case "hold":
				w.edit(some(), func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationHold] = "until tomorrow" })
			case "unhold":
				w.edit(some(), func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationHold) })
			case "optout":
				w.edit(some(), func(n *corev1.Node) { n.Labels[v1alpha1.LabelOptOut] = v1alpha1.OptedOut })
			case "optin":
				w.edit(some(), func(n *corev1.Node) { delete(n.Labels, v1alpha1.LabelOptOut) })
			case "replace":
				name := some()
				theirs[name] = false
				note(name)
				w.flips[name], told[name] = told[name], nil // changes that were not recorded are lost with it
				w.join(name)
			}
		}
		for i := range nodes {
			w.heal(nodeName(i))
			w.edit(nodeName(i), func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationHold) })
		}
		w.settle(r)
		w.now = w.now.Add(healthyFor)
		w.settle(r)
		w.now = w.now.Add(healthyFor)
		w.settle(r)
		for i := range nodes {
			name := nodeName(i)
			n := w.nodes[name]
			if n.Spec.Unschedulable != theirs[name] || hasOwnedAnnotation(n) {
				t.Fatalf("node %q is left unschedulable: %t (a person wants %t), ours: %s", name, n.Spec.Unschedulable, theirs[name], n.Annotations[v1alpha1.AnnotationOwned])
			}
			note(name)
			if f := w.faults[name]; f != nil && f.Status.Dropped == 0 && f.Status.LastSequence <= 32 && !slices.Equal(told[name], w.flips[name]) {
				t.Fatalf("node %q: told %s, done %s", name, strings.Join(told[name], " "), strings.Join(w.flips[name], " "))
			}
		}
	})
}
