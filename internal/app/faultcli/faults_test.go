package faultcli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// xidFault returns a fault of a node.
func xidFault() v1alpha1.Fault {
	return v1alpha1.Fault{
		Source: "syslog-health-monitor", Check: "xid-check", Entity: "GPU/3", ErrorCodes: []string{"XID-79"}, Fatal: true,
		Message: "the GPU has fallen off the bus\x1b[31m", DetectedAt: metav1.NewMicroTime(now.Add(-20 * time.Minute)),
	}
}

// drainingStatus is a node whose pods do not all go.
func drainingStatus() v1alpha1.NodeFaultStatus {
	fault := xidFault()
	return v1alpha1.NodeFaultStatus{
		Session: "k3f9c2ab", Phase: v1alpha1.PhaseDraining, PhaseChangedAt: timeBefore(10 * time.Minute), FaultCode: "XID-79", TriggeredBy: &fault,
		Message: "1 of 3 pods left, blocked by payments/api-pdb",
		DesiredActions: &v1alpha1.DesiredActions{
			MatchedRules: []string{"fatal"}, Cordon: true, Drain: true, Remedies: []v1alpha1.Remedy{v1alpha1.RemedyReboot, v1alpha1.RemedySupport},
			Taints: []corev1.Taint{{Key: "fleetloop.io/sick", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}},
		},
		Owned: &v1alpha1.Owned{Session: "k3f9c2ab", Cordon: true, AppliedAt: metav1.NewMicroTime(now.Add(-10 * time.Minute))},
		Drain: &v1alpha1.DrainStatus{
			State: v1alpha1.DrainRunning, StartedAt: *timeBefore(10 * time.Minute), Deadline: metav1.NewTime(now.Add(50 * time.Minute)), Remaining: 1, Evicted: 2,
			BlockedPods: []v1alpha1.BlockedPod{{Pod: "payments/api-1", BlockedBy: "payments/api-pdb", Message: "needs 2 pods, has 2"}},
		},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionQuarantined, Status: metav1.ConditionTrue, Reason: "Ours", Message: "cordoned", LastTransitionTime: *timeBefore(10 * time.Minute),
		}},
		History: []v1alpha1.Record{
			{Sequence: 1, ID: "id-1", Action: "cordon", Source: "nvsentinel/fault-quarantine", At: metav1.NewMicroTime(now.Add(-10 * time.Minute)), Session: "k3f9c2ab", Outcome: "succeeded", ErrorCodes: []string{"XID-79"}},
			{Sequence: 2, ID: "id-2", Action: "drain-started", Source: "nvsentinel/node-drainer", At: metav1.NewMicroTime(now.Add(-9 * time.Minute)), Session: "k3f9c2ab", Outcome: "succeeded"},
		},
		LastSequence: 2,
		SinkDeliveries: map[string]v1alpha1.DeliveryStatus{
			"default": {ProcessedSequence: 2, LastDeliveredAt: timeBefore(9 * time.Minute)},
			"on-call": {ProcessedSequence: 1, LastError: "server_error", LastFailedAt: timeBefore(time.Minute), Rejected: []int64{1}},
			"added":   {ProcessedSequence: 2, LastDeliveredAt: timeBefore(9 * time.Minute), EnabledAt: timeBefore(9*time.Minute + 30*time.Second)},
		},
		UndeliveredChangeEvents: 1,
	}
}

// TestFaults holds how sick nodes are shown.
func TestFaults(t *testing.T) {
	t.Parallel()
	newFault(t, "gpu-a", drainingStatus(), xidFault())
	newFault(t, "gpu-b", v1alpha1.NodeFaultStatus{Phase: v1alpha1.PhaseHealthy, PhaseChangedAt: timeBefore(time.Hour)})
	newFault(t, "gpu-c", v1alpha1.NodeFaultStatus{}, xidFault())
	newFault(t, "gpu-d", v1alpha1.NodeFaultStatus{
		Phase: v1alpha1.PhaseStuck, PhaseChangedAt: timeBefore(2 * time.Hour), FaultCode: "KernelDeadlock", Session: "aa11bb22",
		Message:     "3 reboots have failed",
		Remediation: &v1alpha1.RemediationStatus{State: v1alpha1.RemedyExhausted, Action: v1alpha1.RemedyReboot, Attempt: 3, StartedAt: *timeBefore(3 * time.Hour), Deadline: *timeBefore(2 * time.Hour), FinishedAt: timeBefore(2 * time.Hour), ObjectKind: "RebootNode", ObjectName: "gpu-d-aa11bb22-3"},
	})
	names := []string{"gpu-a", "gpu-b", "gpu-c", "gpu-d"}
	list := append([]string{"faults", "get"}, names...)
	wantGolden(t, "faults",
		wantRun(t, 0, "Draining", list...),
		wantRun(t, 0, "SESSION", append(list, "-o", "wide")...),
		wantRun(t, 0, "nodefault.fleetloop.io/gpu-a", "faults", "get", "gpu-a", "node/gpu-c", "-o", "name"),
		wantRun(t, 4, "has no NodeFault", "faults", "get", "gpu-a", "gpu-x"),
		wantRun(t, 3, "fleetloop faults get", "faults", "describe", "gpu-x"),
		wantRun(t, 0, "payments/api-pdb", "faults", "describe", "gpu-a"),
		wantRun(t, 0, "gpu-c", "faults", "describe", "gpu-c"),
		wantRun(t, 0, "gpu-d-aa11bb22-3", "faults", "describe", "gpu-d"),
	)

	all := wantRun(t, 0, "gpu-a", "faults", "list")
	if strings.Contains(all.out, "gpu-b") {
		t.Errorf("a healthy node is shown unasked:\n%s", all.out)
	}
	wantRun(t, 0, "gpu-b", "faults", "list", "--all")
	wantRun(t, 2, "use one of table, wide", "faults", "list", "-o", "xml")
	wantRun(t, 2, "did you mean get?", "faults", "gte")
	wantRun(t, 2, "did you mean --kube-context?", "faults", "list", "--kube-contxt=x")
	wantRun(t, 0, "gpu-d\tStuck", "__complete", "faults", "describe", "")

	sorted := wantRun(t, 0, "gpu-d", append(list, "--sort-by=.status.phaseChangedAt", "-o", "name")...)
	if sorted.out != "nodefault.fleetloop.io/gpu-c\nnodefault.fleetloop.io/gpu-d\nnodefault.fleetloop.io/gpu-b\nnodefault.fleetloop.io/gpu-a\n" {
		t.Errorf("sorted by the time of the phase:\n%s", sorted.out)
	}
	wantRun(t, 2, "no item has this field", append(list, "--sort-by=.status.fase")...)
	if plain := wantRun(t, 0, "", append(list, "--no-headers")...); strings.Contains(plain.out, "NODE ") {
		t.Errorf("with headers:\n%s", plain.out)
	}

	one := wantRun(t, 0, "", "faults", "get", "gpu-a", "-o", "json")
	var f v1alpha1.NodeFault
	if err := json.Unmarshal([]byte(one.out), &f); err != nil || f.Name != "gpu-a" || f.Kind != v1alpha1.Kind || f.Status.Session != "k3f9c2ab" {
		t.Errorf("JSON of one: %v\n%s", err, one.out)
	}
	some := wantRun(t, 0, "kind: List", "faults", "list", "gpu-a", "gpu-b", "-o", "yaml")
	if strings.Contains(some.out, "managedFields") {
		t.Error("YAML has the managed fields")
	}
}

// TestMayNot verifies the errors for a user without permission and for an unreachable cluster.
func TestMayNot(t *testing.T) {
	t.Parallel()
	kubeconfig, err := kubebedtest.Bed(t).WriteUserKubeconfig("nobody-of-faults", "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"faults", "list"}, {"changes", "deliveries"}, {"faults", "release", "--all"}} {
		if r := runCommand(t, kubeconfig, args...); r.code != 1 || !strings.Contains(r.errs, "ask an administrator") {
			t.Errorf("one without rights is told:\n%s", r.outputText())
		}
	}
	if r := runCommand(t, "/nowhere/kubeconfig", "faults", "list"); r.code != 2 || !strings.Contains(r.errs, "--kubeconfig") {
		t.Errorf("without a cluster:\n%s", r.outputText())
	}
}
