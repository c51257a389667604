// Package nodefault tests the node fault controller as a process, against a
// real API server.
package nodefault

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	janitorv1alpha1 "github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/nodefault/janitor"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

func TestMain(m *testing.M) { faulttest.Main(m, "../../deploy/crds") }

// TestRebooted tests the main path. A faulty node is cordoned, drained and rebooted, and
// released when its fault is gone; each action is delivered once, in order.
func TestRebooted(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	c.CreateReadyNode("gpu-node-01", nil)
	c.CreateReadyNode("gpu-node-02", nil)
	c.StartController(nil)
	c.Report(faulttest.NewXidReport("gpu-node-01"))

	f := c.AwaitPhase("gpu-node-01", v1alpha1.PhaseRemediating)
	if n := c.GetNode("gpu-node-01"); !n.Spec.Unschedulable {
		t.Error("it is not cordoned")
	}
	if n := c.GetNode("gpu-node-02"); n.Spec.Unschedulable {
		t.Error("another one is cordoned")
	}
	var reboot janitorv1alpha1.RebootNode
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		var all janitorv1alpha1.RebootNodeList
		if err := c.Client.List(ctx, &all); err != nil {
			return err
		}
		if len(all.Items) != 1 {
			return fmt.Errorf("there are %d RebootNodes", len(all.Items))
		}
		if reboot = all.Items[0]; reboot.Status.PreviousBootID == "" { // earlier states are incomplete
			return fmt.Errorf("it is not taken up yet: %+v", reboot.Status)
		}
		return nil
	})
	if reboot.Spec.NodeName != "gpu-node-01" {
		t.Errorf("%q is to be rebooted", reboot.Spec.NodeName)
	}

	// A person reboots the node.
	n := c.GetNode("gpu-node-01")
	n.Status.NodeInfo.BootID = "boot-2"
	c.SetReadyCondition(n, corev1.ConditionTrue)
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		got, err := c.Fault(ctx, "gpu-node-01")
		if err == nil && (got.Status.Remediation == nil || got.Status.Remediation.State != v1alpha1.RemedySucceeded) {
			err = fmt.Errorf("the reboot is not proven: %+v", got.Status.Remediation)
		}
		return err
	})
	c.Report(faulttest.NewXidReport("gpu-node-01").Healthy())
	c.AwaitPhase("gpu-node-01", v1alpha1.PhaseHealthy)
	if n := c.GetNode("gpu-node-01"); n.Spec.Unschedulable || len(n.Annotations[v1alpha1.AnnotationOwned]) > 0 {
		t.Errorf("something of ours is left: %v %v", n.Spec, n.Annotations)
	}
	const want = "cordon drain-completed reboot-requested reboot-sent reboot-executed uncordon"
	kubebedtest.Eventually(t, func(context.Context) error {
		if got := c.Sink.JoinReceivedActions("gpu-node-01"); got != want {
			return fmt.Errorf("told: %s; want %s", got, want)
		}
		return nil
	})
	for _, p := range c.Sink.ReceivedEvents("gpu-node-01", false) {
		t.Log(p.Timestamp, p.Source, p.Summary)
		if p.Session != f.Status.Session || p.Cluster != "bed" || p.HealthEvent == nil || p.HealthEvent.ErrorCode != "XID-79" || !p.HealthEvent.IsFatal {
			t.Errorf("%+v", p)
		}
	}
}

// TestRebootThatNeverHappens tests a webhook that accepts a reboot without doing it. The
// events say that the request was sent, and then that the reboot failed.
func TestRebootThatNeverHappens(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	machines := c.StartMachineWebhook()
	machines.Deaf = true
	env := machines.Env()
	env["NODE_FAULT_REBOOT_ATTEMPTS"] = "1"
	c.StartController(env)
	const node = "node-deaf"
	c.CreateReadyNode(node, nil)
	c.Report(faulttest.NewXidReport(node))
	const sent = "cordon drain-completed reboot-requested reboot-sent"
	c.Sink.AwaitActions(t, node, sent)
	machines.Fail()
	c.AwaitPhase(node, v1alpha1.PhaseStuck)
	c.Sink.AwaitActions(t, node, sent+" reboot-failed support-required")
	for _, p := range c.Sink.ReceivedEvents(node, true) {
		if p.Action == "reboot-failed" && p.Outcome != "failed" {
			t.Errorf("it is told as %q", p.Outcome)
		}
	}
	if n := len(machines.Done(janitor.ActionReboot, node)); n != 1 {
		t.Errorf("it was asked for %d times", n)
	}
}
