package wake

import (
	"testing"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// What people want is written into the spec.
func TestSpec(t *testing.T) {
	t.Parallel()
	each(t, map[string]func(w fixture){
		"approved": func(w fixture) {
			w.asksFirst()
			w.WantCommand(bob, cli.CodeOK, []string{"approve", w.own(), "--yes"})
			w.AwaitPhase(w.own(), v1alpha1.PhaseExecuting)
		},
		"rejected": func(w fixture) {
			w.asksFirst()
			w.WantCommand(bob, cli.CodeOK, []string{"reject", w.own(), "--reason=not now"})
			w.AwaitFailure(w.own(), v1alpha1.ReasonApprovalRejected, "")
		},
		"cancelled": func(w fixture) {
			w.asksFirst()
			w.WantCommand(alice, cli.CodeOK, []string{"exec", "cancel", w.own()})
			w.AwaitFailure(w.own(), v1alpha1.ReasonCancelled, "")
		},
		"cancelled-executing": func(w fixture) {
			j := w.executes(w.own(), nil)
			w.WantCommand(alice, cli.CodeOK, []string{"exec", "cancel", w.own()})
			w.suspends(j)
			w.AwaitFailure(w.own(), v1alpha1.ReasonCancelled, "")
		},
		"finalized": func(w fixture) {
			w.ends(w.runs(w.executes(w.own(), nil)), action.Result{Code: action.CodeOK, Changed: true, Count: 1})
			w.AwaitPhase(w.own(), v1alpha1.PhaseRollbackReady)
			w.rests()
			w.WantCommand(alice, cli.CodeOK, []string{"exec", "finalize", w.own()})
			w.AwaitPhase(w.own(), v1alpha1.PhaseCompleted)
		},
	})
}

// asksFirst has an execution wait for an approval.
func (w fixture) asksFirst() {
	w.Helper()
	w.asks(w.Dear, w.own(), nil)
	w.AwaitPhase(w.own(), v1alpha1.PhaseWaitingApproval)
	w.rests()
}
