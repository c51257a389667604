package crash

import (
	"errors"
	"slices"
	"testing"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// What an inline action did is not known where its controller dies at it and
// somebody changes his mind, or the target, before the next one comes. That is
// what is said, and it is not done again.
func TestNobodyKnows(t *testing.T) {
	c := courseOf("inline")
	l := newLane(t, c)
	for name, tc := range map[string]struct {
		answered bool
		then     func(name string)
		reason   v1alpha1.Reason
		replicas int32
	}{
		"cancelled-before": {false, l.cancel, v1alpha1.ReasonCancelled, 3},
		"cancelled-after":  {true, l.cancel, v1alpha1.ReasonCancelled, 5},
		"changed-after": {true, func(name string) {
			l.PatchDeploymentAndAwaitObserved(l.targets(), name, `{"spec":{"replicas":9}}`)
		}, v1alpha1.ReasonExecutionFailed, 9},
	} {
		l.CreateDeploymentAndAwaitObserved(l.targets(), name, 3)
		l.way.arm(name, point{n: slices.Index(c.writes, acts) + 1, answered: tc.answered}, c.writes, l.Controller().Kill)
		l.ask(name, name)
		l.Until(func() error {
			select {
			case <-l.Controller().Ended():
				return nil
			default:
				return errors.New("it lives")
			}
		})
		if _, struck, _ := l.way.seen(); struck != acts {
			t.Fatalf("%s: it died at %q", name, struck)
		}
		tc.then(name)
		ke := l.until(name, over)
		if s := ke.Status; s.Phase != v1alpha1.PhaseFailed || s.Reason != tc.reason || s.ReasonDetail != v1alpha1.DetailResultUnknown || s.RollbackInformation == nil {
			t.Errorf("%s: it is %s by %s %s: %s", name, s.Phase, s.Reason, s.ReasonDetail, s.Message)
		}
		l.WantReplicas(l.targets(), name, tc.replicas)
		if _, _, made := l.way.seen(); made > 1 || made == 1 != tc.answered {
			t.Errorf("%s: there were %d effects", name, made)
		}
	}
	l.WantAuditIntact(l.audit)
}

func (l *lane) cancel(name string) {
	l.Helper()
	l.WantCommand(fleettest.Requester, cli.CodeOK, []string{"exec", "cancel", name})
}
