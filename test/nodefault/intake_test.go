package nodefault

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake/datamodels"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// A wayIn is a way to report that a node is faulty, and that it no longer is.
type wayIn struct {
	reason string
	say    func(t *testing.T, c *faulttest.Cluster, node string, healthy bool)
	// source, check and code belong to the fault.
	source, check, code string
}

// TestEveryWayIn verifies that each kind of report takes the node out of service and
// returns it, and that the events name the source.
func TestEveryWayIn(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	dir, err := os.MkdirTemp("", "fleetloop-reports-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket := filepath.Join(dir, "reports.sock")
	env := c.StartMachineWebhook().Env()
	env["NODE_FAULT_GRPC_SOCKET"] = socket
	c.StartController(env)
	for name, tc := range map[string]wayIn{
		"condition":    {"the node says so itself", byCondition, "node-conditions", "KernelDeadlock", "AUFSUmountHung"},
		"alertmanager": {"an alert fires, and is resolved", byAlert, "alertmanager", "GPUFellOff", "79"},
		"grpc":         {"a health monitor says so", byMonitor(socket), "syslog-health-monitor", "SysLogsXIDError", "79"},
		"cloudevent":   {"an event in an envelope", byEvent, "ipmi", "ecc", "ECC-2"},
		"json":         {"an event as it is", byJSON, "tests", "disk", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, node := c.For(t), "node-"+name
			c.CreateReadyNode(node, nil)
			tc.say(t, c, node, false)
			f := c.AwaitFault(node, "a node that is out of service, and repaired if it has to be", func(f *v1alpha1.NodeFault) bool {
				r := f.Status.Remediation
				repaired := f.Status.DesiredActions != nil && (len(f.Status.DesiredActions.Remedies) == 0 || r != nil && r.State == v1alpha1.RemedySucceeded)
				return f.Status.Phase == v1alpha1.PhaseQuarantined && f.Status.Drain != nil && repaired
			})
			tc.say(t, c, node, true)
			c.AwaitPhase(node, v1alpha1.PhaseHealthy)
			want := "cordon drain-completed uncordon"
			if f.Status.Remediation != nil {
				want = "cordon drain-completed reboot-requested reboot-sent reboot-executed uncordon"
			}
			c.Sink.AwaitActions(t, node, want)
			h := c.Sink.ReceivedEvents(node, true)[0].HealthEvent
			if h == nil || h.Agent != tc.source || h.CheckName != tc.check || h.ErrorCode != tc.code {
				t.Errorf("%s: it is told of %+v", tc.reason, h)
			}
		})
	}
}

// TestNoiseHidesNoFatalFault verifies that sixty-four non-fatal faults do not displace a
// fatal one, regardless of its source.
func TestNoiseHidesNoFatalFault(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	c.StartController(nil)
	for name, tc := range map[string]struct {
		reason string
		find   func(t *testing.T, c *faulttest.Cluster, node string, healthy bool)
	}{
		"report":    {"a report is taken", byJSON},
		"condition": {"a condition counts", byCondition},
	} {
		t.Run(name, func(t *testing.T) {
			c, node := c.For(t), "node-noisy-"+name
			c.CreateReadyNode(node, nil)
			var noise []faulttest.Report
			for i := range 64 {
				noise = append(noise, faulttest.Report{Agent: "chatty", CheckName: fmt.Sprintf("noise-%02d", i), NodeName: node})
			}
			body, err := json.Marshal(noise)
			if err != nil {
				t.Fatal(err)
			}
			c.Post("/v1/health-events", nil, string(body))
			c.AwaitFault(node, "64 faults", func(f *v1alpha1.NodeFault) bool { return len(f.Spec.Faults) == 64 })
			tc.find(t, c, node, false)
			f := c.AwaitFault(node, "a node that is out of service", func(f *v1alpha1.NodeFault) bool { return f.Status.Owned != nil })
			if n := len(f.Spec.Faults); n != 64 {
				t.Errorf("%s: %d faults are known", tc.reason, n)
			}
			if err := c.PostHealthEvent(t.Context(), faulttest.Report{Agent: "chatty", CheckName: "noise-64", NodeName: node}); err == nil || !strings.Contains(err.Error(), "409") {
				t.Errorf("more noise is answered with %v", err)
			}
		})
	}
}

func byCondition(t *testing.T, c *faulttest.Cluster, node string, healthy bool) {
	t.Helper()
	is := corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionTrue, Reason: "AUFSUmountHung", LastTransitionTime: metav1.Now()}
	if healthy {
		is.Status, is.Reason = corev1.ConditionFalse, "KernelHasNoDeadlock"
	}
	c.UpdateNodeStatusWithRetry(node, func(n *corev1.Node) {
		others := slices.DeleteFunc(n.Status.Conditions, func(other corev1.NodeCondition) bool { return other.Type == is.Type })
		n.Status.Conditions = append(others, is)
	})
}

func byAlert(_ *testing.T, c *faulttest.Cluster, node string, healthy bool) {
	status, end := "firing", "0001-01-01T00:00:00Z"
	if healthy {
		status, end = "resolved", "2026-05-01T04:00:00Z"
	}
	c.Post("/v1/alertmanager", nil, fmt.Sprintf(`{"version":"4","status":%q,"receiver":"nodes","alerts":[{"status":%q,
		"labels":{"alertname":"GPUFellOff","node":%q,"severity":"critical","xid":"79"},"annotations":{"summary":"a GPU fell off the bus"},
		"startsAt":"2026-05-01T03:00:00Z","endsAt":%q,"fingerprint":"c0ffee00c0ffee00"}]}`, status, status, node, end))
}

func byMonitor(socket string) func(*testing.T, *faulttest.Cluster, string, bool) {
	return func(t *testing.T, _ *faulttest.Cluster, node string, healthy bool) {
		t.Helper()
		conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // nothing is under way
		kubebedtest.Eventually(t, func(ctx context.Context) error {
			return intake.SendHealthEvents(ctx, conn, &datamodels.HealthEvents{Version: 1, Events: []*datamodels.HealthEvent{{
				Version: 1, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", NodeName: node,
				IsFatal: !healthy, IsHealthy: healthy, ErrorCode: []string{"79"},
			}}})
		})
	}
}

func byEvent(_ *testing.T, c *faulttest.Cluster, node string, healthy bool) {
	c.Post("/v1/health-events", http.Header{"Content-Type": {"application/cloudevents+json"}}, fmt.Sprintf(`{"specversion":"1.0","id":"%s-%t",
		"source":"/bmc","type":"com.example.health","time":"2026-05-01T03:00:00Z","datacontenttype":"application/json",
		"data":{"agent":"ipmi","checkName":"ecc","nodeName":%q,"isFatal":%t,"isHealthy":%t,"errorCode":"ECC-2",
		"generatedTimestamp":"2026-05-01T05:00:00.315+0200"}}`, node, healthy, node, !healthy, healthy))
}

func byJSON(_ *testing.T, c *faulttest.Cluster, node string, healthy bool) {
	fault := faulttest.Fatal(node, "disk")
	if healthy {
		fault = fault.Healthy()
	}
	c.Report(fault)
}

// holder returns the identity of the leader.
func holder(t *testing.T, c *faulttest.Cluster) string {
	t.Helper()
	var lease coordinationv1.Lease
	if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: faulttest.Namespace, Name: "fleetloop-node-fault-controller"}, &lease); err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Fatal("nobody holds the lease")
	}
	return *lease.Spec.HolderIdentity
}

// TestReplicaTakesOver verifies that one of two replicas acts, and both accept reports.
// When the leader crashes, the other one continues with the reports received meanwhile.
func TestReplicaTakesOver(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	book := c.StartNodeStateLog()
	elect := map[string]string{"LEADER_ELECT": "true"}
	first := c.StartController(elect)
	c.Report(faulttest.Fatal(c.CreateReadyNode("node-first", nil).Name, "disk"))
	c.AwaitPhase("node-first", v1alpha1.PhaseQuarantined)

	leader := holder(t, c)

	second := c.StartController(elect) // it receives the reports from now on
	for i := range 8 {
		name := fmt.Sprintf("node-second-%d", i)
		c.CreateReadyNode(name, nil)
		c.Report(faulttest.Fatal(name, "disk"))
		c.AwaitPhase(name, v1alpha1.PhaseQuarantined)
	}
	if now := holder(t, c); now != leader {
		t.Errorf("%q acts although %q lives", now, leader)
	}
	if n := second.Count(`"msg":"node change recorded"`); n > 0 {
		t.Errorf("the one that waits has acted %d times", n)
	}

	first.Kill()
	orphan := c.CreateReadyNode("node-orphan", nil)
	c.Report(faulttest.Fatal(orphan.Name, "disk"))
	c.Report(faulttest.Fatal("node-first", "disk").Healthy())
	c.AwaitPhase("node-orphan", v1alpha1.PhaseQuarantined)
	c.AwaitPhase("node-first", v1alpha1.PhaseHealthy)
	if now := holder(t, c); now == leader {
		t.Errorf("%q acts, and was killed", now)
	}
	c.Sink.AwaitActions(t, "node-orphan", "cordon drain-completed")
	c.Sink.AwaitActions(t, "node-first", "cordon drain-completed uncordon")
	if err := second.CheckLogged(`"msg":"node change recorded"`); err != nil {
		t.Error(err)
	}
	if got := book.Of(c.GetNode("node-first")); got != "open cordoned open" {
		t.Errorf("the node of the first one was %s", got)
	}
}
