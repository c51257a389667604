package nodefault

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

func cordon(n *corev1.Node)   { n.Spec.Unschedulable = true }
func uncordon(n *corev1.Node) { n.Spec.Unschedulable = false }

// extended also enables events about changes that a person has reverted.
const extended = "change_events: {include_optional_actions: true}\n"

// TestOwnership verifies that changes of a person are never reverted, and that no change
// of the controller stays behind.
func TestOwnership(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	c.StartController(nil, "--config="+c.WriteTempFile("config.yaml", extended))
	for name, tc := range map[string]struct {
		reason string
		do     func(t *testing.T, c *faulttest.Cluster, node string)
		told   string
	}{
		"CordonedBefore":     {"a cordon that was there stays after recovery", cordonedBefore, "drain-completed"},
		"Uncordoned":         {"it is not cordoned again for the same fault, and is for another", uncordoned, "cordon drain-completed override-detected cordon drain-completed"},
		"AllowedAgain":       {"taking the annotation away has us act again", allowedAgain, "cordon drain-completed override-detected cordon drain-completed"},
		"UncordonedCordoned": {"the second cordon is theirs", uncordonedCordoned, "cordon drain-completed override-detected"},
		"Held":               {"it is kept for as long as a person wants", held, "cordon drain-completed uncordon"},
		"OptedOut":           {"it is never touched", optedOut, ""},
		"OptedOutLater":      {"what is ours goes at once", optedOutLater, "cordon drain-completed uncordon"},
	} {
		t.Run(name, func(t *testing.T) {
			c, node := c.For(t), "node-"+strings.ToLower(name)
			c.CreateReadyNode(node, nil)
			tc.do(t, c, node)
			c.Sink.AwaitActions(t, node, tc.told)
			if t.Failed() {
				t.Error(tc.reason)
			}
		})
	}
}

// wantNode verifies whether a node is cordoned, and whether it is marked as quarantined.
func wantNode(t *testing.T, c *faulttest.Cluster, name string, cordoned, ours bool) {
	t.Helper()
	n := c.GetNode(name)
	if n.Spec.Unschedulable != cordoned || (n.Annotations[v1alpha1.AnnotationOwned] != "") != ours || (n.Labels[v1alpha1.LabelPhase] != "") != ours {
		t.Errorf("node %q is cordoned: %t, want %t; something is ours, want %t: %v %v", name, n.Spec.Unschedulable, cordoned, ours, n.Annotations, n.Labels)
	}
}

func cordonedBefore(t *testing.T, c *faulttest.Cluster, node string) {
	t.Helper()
	c.PatchNodeWithRetry(node, cordon)
	fault := faulttest.Fatal(node, "disk")
	c.Report(fault)
	c.AwaitPhase(node, v1alpha1.PhaseQuarantined)
	wantNode(t, c, node, true, true)
	c.Report(fault.Healthy())
	c.AwaitPhase(node, v1alpha1.PhaseHealthy)
	wantNode(t, c, node, true, false)
}

// drained waits until a node is quarantined and drained.
func drained(c *faulttest.Cluster, node string) {
	c.Helper()
	c.AwaitFault(node, "a node that is drained", func(f *v1alpha1.NodeFault) bool {
		return f.Status.Phase == v1alpha1.PhaseQuarantined && f.Status.Drain != nil && f.Status.Drain.State == v1alpha1.DrainCompleted
	})
}

func uncordoned(t *testing.T, c *faulttest.Cluster, node string) {
	t.Helper()
	fault := faulttest.Fatal(node, "disk")
	c.Report(fault)
	drained(c, node)
	c.PatchNodeWithRetry(node, uncordon)
	c.AwaitPhase(node, v1alpha1.PhaseOverridden)
	fault.Message = "it is still there"
	c.Report(fault)
	if f := c.Seen(node); f.Status.Phase != v1alpha1.PhaseOverridden {
		t.Errorf("it is %s for a fault that the person knew of", f.Status.Phase)
	}
	wantNode(t, c, node, false, false)
	c.Report(faulttest.Fatal(node, "memory"))
	drained(c, node)
	wantNode(t, c, node, true, true)
}

func allowedAgain(t *testing.T, c *faulttest.Cluster, node string) {
	t.Helper()
	c.Report(faulttest.Fatal(node, "disk"))
	drained(c, node)
	c.PatchNodeWithRetry(node, uncordon)
	c.AwaitPhase(node, v1alpha1.PhaseOverridden)
	c.PatchNodeWithRetry(node, func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationOverridden) })
	drained(c, node)
	wantNode(t, c, node, true, true)
}

func uncordonedCordoned(t *testing.T, c *faulttest.Cluster, node string) {
	t.Helper()
	fault := faulttest.Fatal(node, "disk")
	c.Report(fault)
	drained(c, node)
	c.PatchNodeWithRetry(node, uncordon)
	c.AwaitPhase(node, v1alpha1.PhaseOverridden)
	c.PatchNodeWithRetry(node, cordon)
	c.Report(fault.Healthy())
	c.AwaitPhase(node, v1alpha1.PhaseHealthy)
	wantNode(t, c, node, true, false)
}

func held(t *testing.T, c *faulttest.Cluster, node string) {
	t.Helper()
	fault := faulttest.Fatal(node, "disk")
	c.Report(fault)
	drained(c, node)
	c.PatchNodeWithRetry(node, func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationHold] = "looking at the disk" })
	c.Report(fault.Healthy())
	c.AwaitPhase(node, v1alpha1.PhaseHeld)
	wantNode(t, c, node, true, true)
	c.PatchNodeWithRetry(node, func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationHold) })
	c.AwaitPhase(node, v1alpha1.PhaseHealthy)
	wantNode(t, c, node, false, false)
}

func optOut(n *corev1.Node) {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[v1alpha1.LabelOptOut] = v1alpha1.OptedOut
}

func optedOut(t *testing.T, c *faulttest.Cluster, node string) {
	t.Helper()
	c.PatchNodeWithRetry(node, optOut)
	before := c.GetNode(node)
	c.Report(faulttest.Fatal(node, "disk"))
	c.AwaitPhase(node, v1alpha1.PhaseObserved)
	if after := c.GetNode(node); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("it was written: %+v", after.ObjectMeta)
	}
}

func optedOutLater(t *testing.T, c *faulttest.Cluster, node string) {
	t.Helper()
	c.Report(faulttest.Fatal(node, "disk"))
	drained(c, node)
	c.PatchNodeWithRetry(node, optOut)
	c.AwaitPhase(node, v1alpha1.PhaseObserved)
	wantNode(t, c, node, false, false)
}

// TestDryRun verifies that a dry run records its actions as such, and writes to no node.
func TestDryRun(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	const node = "node-dry"
	c.CreateReadyNode(node, nil)
	before := c.GetNode(node)
	c.StartController(map[string]string{"DRY_RUN": "true"})
	fault := faulttest.NewXidReport(node)
	c.Report(fault)
	c.AwaitPhase(node, v1alpha1.PhaseDryRun)
	c.Sink.AwaitActions(t, node, changeevent.ActionCordon)
	c.Report(fault.Healthy())
	c.AwaitPhase(node, v1alpha1.PhaseHealthy)
	c.Sink.AwaitActions(t, node, changeevent.ActionCordon+" "+changeevent.ActionUncordon)
	for _, p := range c.Sink.ReceivedEvents(node, false) {
		if !p.DryRun || !strings.HasPrefix(p.Summary, "[DRY-RUN] Fleetloop would have ") {
			t.Errorf("%+v", p)
		}
	}
	if after := c.GetNode(node); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("it was written: %+v", after)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		f, err := c.Fault(ctx, node)
		if err == nil && !settled("default")(f) {
			err = fmt.Errorf("%+v", f.Status)
		}
		return err
	})
}
