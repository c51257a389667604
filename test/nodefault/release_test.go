package nodefault

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// TestReleaseAll verifies that the binary, without a running controller, releases all
// quarantined nodes and no others.
func TestReleaseAll(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	c.CreateReadyNode("ours", nil)
	c.CreateReadyNode("theirs", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	p := c.StartController(nil)
	c.Report(faulttest.NewXidReport("ours"))
	c.Report(faulttest.NewXidReport("theirs"))
	c.AwaitPhase("ours", v1alpha1.PhaseRemediating)
	c.AwaitPhase("theirs", v1alpha1.PhaseRemediating)
	p.Kill()
	out := c.RunControllerCommand("release", "--all", "--reason=uninstalled")
	if !strings.Contains(out, "node ours: released") || !strings.Contains(out, "it stays cordoned") {
		t.Errorf("it says:\n%s", out)
	}
	for name, cordoned := range map[string]bool{"ours": false, "theirs": true} {
		n := c.GetNode(name)
		if _, left := n.Annotations[v1alpha1.AnnotationOwned]; left || n.Spec.Unschedulable != cordoned {
			t.Errorf("node %s is left unschedulable: %t, as ours: %t", name, n.Spec.Unschedulable, left)
		}
	}
}
