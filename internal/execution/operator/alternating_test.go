package operator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// TestWaitsForThisAndThat verifies that an execution fails after its queue time even if the gate
// and a quota block it alternately. A change of the reason does not restart the time.
func TestWaitsForThisAndThat(t *testing.T) {
	const patience = 10 * time.Minute // that the gate has unless it is told otherwise
	for name, tc := range map[string]struct {
		reason   string
		approval bool
		apart    time.Duration // how long it waits for the one, and then for the other
		restarts bool
		detail   v1alpha1.Detail
	}{
		"NoJob":    {"its time is over while there can be no Job", false, 3 * time.Minute, false, v1alpha1.DetailExecutorUnavailable},
		"Busy":     {"its time is over while another acts", false, 90 * time.Second, false, v1alpha1.DetailTargetBusy},
		"Approved": {"its time begins when it is approved", true, 3 * time.Minute, false, v1alpha1.DetailExecutorUnavailable},
		"Restarts": {"another operator does not begin anew either", true, 3 * time.Minute, true, v1alpha1.DetailExecutorUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.fault = func(what string, before bool) error {
				if what == "job" && before && w.looking == "a" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "x", errors.New("exceeded quota"))
				}
				return nil
			}
			r := w.newReconciler(Config{})
			if tc.approval {
				w.approval = true
				w.create("a", "web", nil)
				w.must(t, r, "a")
				w.now = w.now.Add(30 * time.Minute)
				w.edit("a", approve("bob"))
				w.approval = false // of the others
			} else {
				w.create("a", "web", nil)
			}
			ready := w.now
			w.must(t, r, "a")
			wantPhase(t, w, "a", w.get("a").Status.Phase, v1alpha1.DetailExecutorUnavailable)
			for n := 1; ; n++ {
				if tc.restarts {
					r = w.newReconciler(Config{})
				}
				other := fmt.Sprint("other-", n/2)
				want := v1alpha1.DetailExecutorUnavailable
				if n%2 == 1 {
					w.create(other, "web", nil)
					w.must(t, r, other)
					wantPhase(t, w, other, v1alpha1.PhaseExecuting, "")
					want = v1alpha1.DetailTargetBusy
				} else {
					other = fmt.Sprint("other-", n/2-1)
					w.end(other, action.CodeOK)
					w.targets["web"] = 3
					w.must(t, r, other)
				}
				w.must(t, r, "a")
				wantPhase(t, w, "a", w.get("a").Status.Phase, want)
				if next := w.now.Add(tc.apart); !next.Before(ready.Add(patience)) {
					break
				}
				w.now = w.now.Add(tc.apart)
				w.must(t, r, "a")
				if got := w.get("a").Status; got.Phase == v1alpha1.PhaseFailed {
					t.Fatalf("%s: it ended after %s: %s", tc.reason, w.now.Sub(ready), got.Message)
				}
			}
			w.now = ready.Add(patience)
			w.must(t, r, "a")
			wantPhase(t, w, "a", v1alpha1.PhaseFailed, tc.detail)
			if s := w.get("a").Status; s.Reason != v1alpha1.ReasonExecutionTimeout {
				t.Errorf("%s: it failed by %s: %s", tc.reason, s.Reason, s.Message)
			}
		})
	}
}
