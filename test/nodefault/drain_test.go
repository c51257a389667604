package nodefault

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// blocked reports whether a drain waits for a pod for a reason.
func blocked(pod, by string) func(*v1alpha1.NodeFault) bool {
	return func(f *v1alpha1.NodeFault) bool {
		d := f.Status.Drain
		return d != nil && d.State == v1alpha1.DrainRunning && len(d.BlockedPods) == 1 && d.BlockedPods[0].Pod == pod && d.BlockedPods[0].BlockedBy == by
	}
}

// TestBlockedDrain verifies that the blocker of a drain is shown, and that the drain
// continues without it.
func TestBlockedDrain(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	ns := kubebedtest.Namespace(t)
	const node = "node-kept"
	c.CreateReadyNode(node, nil)
	kept := c.CreateRunningPod(ns, "api-0", node)
	bare := c.CreateRunningPod(ns, "debug", node, faulttest.Bare, func(p *corev1.Pod) { p.Labels["app"] = "debug" })
	budget := c.CreatePDBAndAwaitPodCount(ns, "api", 1, 1)
	c.StartController(nil)
	c.Report(faulttest.Fatal(node, "disk"))

	c.AwaitFault(node, "both pods to be named", func(f *v1alpha1.NodeFault) bool {
		d := f.Status.Drain
		return d != nil && len(d.BlockedPods) == 2 && d.Remaining == 2 && d.BlockedPods[0].BlockedBy == ns+"/api" && d.BlockedPods[1].BlockedBy == "bare-pod"
	})
	row := c.GetFaultPrinterRow(node)
	for _, part := range []string{ns + "/api-0", ns + "/api)", ns + "/debug", "bare-pod"} {
		if !strings.Contains(row["MESSAGE"], part) {
			t.Errorf("kubectl does not show %q: %v", part, row)
		}
	}
	if row["PHASE"] != string(v1alpha1.PhaseDraining) || row["PODS LEFT"] != "2" || row["FAULT"] != "disk" {
		t.Errorf("kubectl shows %v", row)
	}
	c.Sink.AwaitActions(t, node, "cordon drain-started")

	before := budget.DeepCopy()
	none := intstr.FromInt32(0)
	budget.Spec.MinAvailable = &none
	if err := c.Client.Patch(t.Context(), budget, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	c.AwaitFault(node, "the bare pod alone to be left", blocked(ns+"/debug", "bare-pod"))
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is still there: %v", err)
	}
	c.DeletePod(bare)
	f := c.AwaitFault(node, "the drain to be over", func(f *v1alpha1.NodeFault) bool { return f.Status.Drain.State == v1alpha1.DrainCompleted })
	if f.Status.Drain.Evicted != 1 {
		t.Errorf("%d pods are said to be evicted, and it was one", f.Status.Drain.Evicted)
	}
	c.Sink.AwaitActions(t, node, "cordon drain-started drain-completed")
}

// TestFailedDrain verifies that a drain fails at its deadline and reports its blockers.
// Nothing is forced.
func TestFailedDrain(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	ns := kubebedtest.Namespace(t)
	const node = "node-late"
	c.CreateReadyNode(node, nil)
	kept := c.CreateRunningPod(ns, "api-0", node)
	slow := c.CreateRunningPod(ns, "batch-0", node, faulttest.Slow, func(p *corev1.Pod) { p.Labels["app"] = "batch" })
	c.CreatePDBAndAwaitPodCount(ns, "api", 1, 1)
	c.StartController(map[string]string{"NODE_FAULT_DRAIN_DEADLINE": "3s"})
	c.Report(faulttest.NewXidReport(node))
	f := c.AwaitPhase(node, v1alpha1.PhaseStuck)
	if d := f.Status.Drain; d.State != v1alpha1.DrainFailed || d.Remaining != 2 || d.Terminating != 1 || !strings.Contains(d.Message, ns+"/api") {
		t.Errorf("%+v", d)
	}
	c.Sink.AwaitActions(t, node, "cordon drain-started drain-failed support-required")
	if failed := c.Sink.ReceivedEvents(node, true)[2]; failed.Outcome != "failed" || !strings.Contains(failed.Reason, ns+"/api-0") {
		t.Errorf("%+v", failed)
	}
	for _, p := range []*corev1.Pod{kept, slow} {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			t.Errorf("pod %s: %v", p.Name, err)
		}
	}
	if kept.DeletionTimestamp != nil {
		t.Error("the pod that a budget keeps was told to go")
	}
}

// TestSilentNode verifies the drain of a node whose kubelet is unreachable, which fails
// because no pod ends. The node needs a person, and is rebooted with those pods only if a
// setting allows it.
func TestSilentNode(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	ns := kubebedtest.Namespace(t)
	for name, tc := range map[string]struct {
		reason string
		env    map[string]string
		phase  v1alpha1.Phase
		told   string
	}{
		"Default": {"nobody said that the pods may be lost", nil, v1alpha1.PhaseStuck, "cordon drain-started drain-failed support-required"},
		"Reboot":  {"somebody did", map[string]string{"NODE_FAULT_REBOOT_UNREACHABLE": "true"}, v1alpha1.PhaseRemediating, "cordon drain-started drain-failed reboot-requested"},
	} {
		t.Run(name, func(t *testing.T) {
			c, node := c.For(t), "node-silent-"+strings.ToLower(name)
			c.CreateReadyNode(node, nil)
			slow := c.CreateRunningPod(ns, "slow-"+strings.ToLower(name), node, faulttest.Slow)
			env := map[string]string{"NODE_FAULT_DRAIN_DEADLINE": "3s"}
			maps.Copy(env, tc.env)
			process := c.StartController(env)
			defer process.Kill()
			c.SetReadyCondition(c.GetNode(node), corev1.ConditionUnknown)
			c.Report(faulttest.NewXidReport(node))
			c.AwaitPhase(node, tc.phase)
			c.Sink.AwaitActions(t, node, tc.told)
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(slow), slow); err != nil {
				t.Errorf("the pod that cannot end: %v", err)
			}
			if t.Failed() {
				t.Error(tc.reason)
			}
		})
	}
}

// TestNodeGoesWhileDrained verifies that the deletion of a node ends its drain, and that
// sinks receive this.
func TestNodeGoesWhileDrained(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	ns := kubebedtest.Namespace(t)
	const node = "node-leaves"
	n := c.CreateReadyNode(node, nil)
	c.CreateRunningPod(ns, "slow-0", node, faulttest.Slow)
	c.StartController(nil)
	c.Report(faulttest.NewXidReport(node))
	c.AwaitPhase(node, v1alpha1.PhaseDraining)
	if err := c.Client.Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	c.AwaitPhase(node, v1alpha1.PhaseGone)
	c.Sink.AwaitActions(t, node, "cordon drain-started drain-cancelled")
	told := c.Sink.ReceivedEvents(node, true)
	if last := told[len(told)-1]; last.Reason != "the node was deleted" {
		t.Errorf("the drain ended because %q", last.Reason)
	}
}
