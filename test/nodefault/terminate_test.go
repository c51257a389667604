package nodefault

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/janitor"
	"github.com/fleetloop/fleetloop/internal/nodefault/rules"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// TestTerminated verifies that a node that must be replaced is terminated, and that this
// is delivered although it is gone. The next node of its name starts without state.
func TestTerminated(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	machines, book := c.StartMachineWebhook(), c.StartNodeStateLog()
	c.StartController(machines.Env())
	const name = "node-old"
	allowed := func(n *corev1.Node) { n.Labels = map[string]string{rules.LabelTerminate: "allowed"} }
	old := c.CreateReadyNode(name, allowed)
	fault := faulttest.NewXidReport(name)
	fault.RecommendedAction = "REPLACE_VM"
	c.Report(fault)
	f := c.AwaitPhase(name, v1alpha1.PhaseGone)
	const told = "cordon drain-completed terminate-requested terminate-sent terminate-executed"
	c.Sink.AwaitActions(t, name, told)
	if done := machines.Done(janitor.ActionTerminate, name); len(done) != 1 {
		t.Errorf("its machine was terminated %d times", len(done))
	}
	if got := book.Of(old); got != "open cordoned gone" {
		t.Errorf("it was %s", got)
	}

	c.CreateReadyNode(name, allowed)
	c.AwaitFault(name, "faults of the old node to be forgotten", func(g *v1alpha1.NodeFault) bool {
		return len(g.Spec.Faults) == 0 && g.Status.Phase != v1alpha1.PhaseGone
	})
	wantNode(t, c, name, false, false)
	c.Report(faulttest.Fatal(name, "disk"))
	next := c.AwaitFault(name, "the new node to be taken", func(g *v1alpha1.NodeFault) bool {
		return g.Status.Phase == v1alpha1.PhaseQuarantined && g.Status.Drain != nil
	})
	if next.Status.Session == f.Status.Session || next.Status.NodeUID == f.Status.NodeUID {
		t.Errorf("the session goes on: %+v", next.Status)
	}
	wantNode(t, c, name, true, true)
	c.Sink.AwaitActions(t, name, told+" cordon drain-completed")
}
