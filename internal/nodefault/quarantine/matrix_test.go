package quarantine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// An ownership is a case: actions of people and others, and the expected final state of
// the node and the records.
type ownership struct {
	reason string
	do     func(w *fixture)
	on     []string
	told   []string
	why    quarantine.Situation
	act    bool
}

// quarantined quarantines a node because of one fault.
func quarantined(w *fixture, checks ...string) {
	w.t.Helper()
	w.fault(checks...)
	if s := w.settle(); !s.Act {
		w.t.Fatalf("not in quarantine: %+v", s)
	}
	w.pass(time.Minute)
}

// recovers removes all faults and waits until the node counts as healthy.
func recovers(w *fixture) {
	w.t.Helper()
	w.heal()
	w.settle()
	w.pass(healthyFor)
}

// release releases the node like the command.
func (w *fixture) release(override bool) {
	w.t.Helper()
	node, took := quarantine.Release(w.node.DeepCopy(), w.now, "asked for by alice", override)
	if !took {
		w.t.Fatalf("nothing was released")
	}
	w.edit("fleetloop", func(n *corev1.Node) { n.Spec, n.Labels, n.Annotations = node.Spec, node.Labels, node.Annotations })
}

func TestOwnership(t *testing.T) {
	all := []map[string]ownership{ordinary(), released(), bounded(), damaged(), pretended()}
	for name, tc := range united(t, all) {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			tc.do(w)
			got := w.settle()
			if got.Why != tc.why || got.Act != tc.act {
				t.Errorf("%s: got %s, act %v (%s), want %s, act %v", tc.reason, got.Why, got.Act, got.Message, tc.why, tc.act)
			}
			if w.node != nil {
				if diff := cmp.Diff(tc.on, w.on(), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: on the node (-want +got)\n%s", tc.reason, diff)
				}
			}
			if diff := cmp.Diff(tc.told, w.told(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: told (-want +got)\n%s", tc.reason, diff)
			}
			if got.Why != quarantine.Gone && w.node != nil {
				before := w.status.DeepCopy()
				w.settle()
				if diff := cmp.Diff(before, &w.status); diff != "" {
					t.Errorf("%s: looking again changes the status (-before +after)\n%s", tc.reason, diff)
				}
			}
		})
	}
}

func united(t *testing.T, all []map[string]ownership) map[string]ownership {
	t.Helper()
	one := map[string]ownership{}
	for _, cases := range all {
		for name, tc := range cases {
			if _, taken := one[name]; taken {
				t.Fatalf("two cases are called %s", name)
			}
			one[name] = tc
		}
	}
	return one
}
