// Package faulttest provides tests with a cluster of nodes without machines. The node
// fault controller is a separate process, and a sink stores change events.
//
// All tests of a process share the cluster. Each test uses it exclusively while it runs,
// with its own nodes.
package faulttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	janitor "github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/kube"
)

// Namespace is the namespace of the controller's Leases.
const Namespace = "fleetloop-system"

// Token is the bearer token of reports.
const Token = "the-token-of-reports"

//nolint:gochecknoglobals // one cluster per test process; testing offers no other place to keep it
var shared struct {
	once sync.Once
	dir  string
	err  error
}

// Main runs the tests of a package. Call it from TestMain.
func Main(m *testing.M, crds string) {
	RunTestsWithControlPlane(m, kubebed.Options{CRDs: []string{crds}, Controllers: Controllers()})
}

// RunTestsWithControlPlane runs the tests of a package with another control plane.
func RunTestsWithControlPlane(m *testing.M, o kubebed.Options) {
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler)) // before the clients of the tests begin to log
	kubebedtest.Main(m, o, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(shared.dir); err != nil {
			code = max(code, 1)
		}
		os.Exit(code) //nolint:revive // as goleak.VerifyTestMain would
	}))
}

// Controllers returns the controllers that evictions need. The disruption controller
// counts the healthy pods.
func Controllers() []string { return []string{"disruption-controller", "namespace-controller"} }

// buildBinary builds the released binary of the controller.
func buildBinary(tb testing.TB) string {
	tb.Helper()
	shared.once.Do(func() { shared.dir, shared.err = buildOnce() })
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return filepath.Join(shared.dir, "node-fault-controller")
}

// buildOnce does not use the context of a test, because its result outlives the test.
func buildOnce() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "fleetloop-nodefault-"); err == nil {
		err = kubebedtest.BuildBinaries(context.Background(), dir, "node-fault-controller")
	}
	return dir, err
}

// A Cluster is the cluster of a test.
type Cluster struct {
	testing.TB

	Client client.WithWatch // with the rights of an administrator
	Sink   *Sink
	// Host is how the controller connects to the API server. A test may replace it with a
	// proxy.
	Host *rest.Config

	process *kubebedtest.Process
	token   string // path of the token file
}

// UseSharedCluster returns a cluster without nodes for a test. It does not start the controller.
func UseSharedCluster(tb testing.TB) *Cluster {
	tb.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), janitor.AddToScheme(scheme)); err != nil {
		tb.Fatal(err)
	}
	bed := kubebedtest.Bed(tb)
	unbounded := bed.Config()
	unbounded.QPS = -1 // no rate limit, because tests poll often
	c, err := client.NewWithWatch(unbounded, client.Options{Scheme: scheme})
	if err != nil {
		tb.Fatal(err)
	}
	t := &Cluster{TB: tb, Client: c, Sink: StartSink(tb), Host: bed.Config(), token: filepath.Join(tb.TempDir(), "tokens.yaml")}
	const mode = 0o600
	if err := os.WriteFile(t.token, []byte("tokens:\n- token: "+Token+"\n  subject: tests\n"), mode); err != nil {
		tb.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if err := c.Create(tb.Context(), ns); err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatal(err)
	}
	tb.Cleanup(t.killControllerAndDeleteAll)
	t.startPodCleanupLoop()
	return t
}

// For returns the cluster for a subtest.
func (c *Cluster) For(tb testing.TB) *Cluster {
	tb.Helper()
	within := *c
	within.TB = tb
	return &within
}

// killControllerAndDeleteAll deletes the objects of the test.
func (c *Cluster) killControllerAndDeleteAll() {
	if c.process != nil {
		c.process.Kill()
	}
	ctx, cancel := context.WithTimeout(context.Background(), kubebedtest.Patience)
	defer cancel()
	for _, kind := range []client.Object{&janitor.RebootNode{}, &janitor.TerminateNode{}, &v1alpha1.NodeFault{}, &corev1.Node{}} {
		if err := c.Client.DeleteAllOf(ctx, kind); err != nil {
			c.Errorf("clean up: %v", err)
		}
	}
	if err := c.Client.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(Namespace)); err != nil {
		c.Errorf("clean up: %v", err) // otherwise the next controller would wait for the Lease of a killed one
	}
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods); err != nil {
		c.Errorf("clean up: %v", err)
	}
	for i := range pods.Items {
		if err := c.Client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0)); err != nil && !apierrors.IsNotFound(err) {
			c.Errorf("clean up: %v", err)
		}
	}
}

// StartController starts the controller with additional arguments and environment, and
// waits until it is ready.
func (c *Cluster) StartController(env map[string]string, args ...string) *kubebedtest.Process {
	c.Helper()
	file := filepath.Join(c.TempDir(), "kubeconfig")
	const mode = 0o600
	if err := os.WriteFile(file, []byte(kubebedtest.FormatKubeconfig(c, c.Host)), mode); err != nil {
		c.Fatal(err)
	}
	all := map[string]string{
		"LOG_FORMAT": "json", "KUBECONFIG": file, "METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0",
		"LISTEN_ADDRESS": "127.0.0.1:0", "NODE_FAULT_INTAKE_AUTH_MODE": "file", "NODE_FAULT_INTAKE_TOKEN_FILE": c.token,
		"CHANGE_EVENTS_ENABLED": "true", "CHANGE_EVENTS_ENDPOINT": c.Sink.URL(), "CHANGE_EVENTS_ALLOW_ADDRESSES": "127.0.0.0/8", "CHANGE_EVENTS_ALLOW_HTTP": "true",
		"CLUSTER_NAME": "bed", "LEADER_ELECT": "false",
		// The tests use only a few nodes.
		"NODE_FAULT_BUDGET_MAX_PERCENT": "100", "NODE_FAULT_BUDGET_WINDOW": "0s", "NODE_FAULT_HEALTHY_FOR": "1s",
	}
	maps.Copy(all, env)
	c.process = kubebedtest.StartProcess(c, buildBinary(c), all, args...)
	c.process.WantReady()
	return c.process
}

// RunControllerCommand runs another command of the controller's binary as an administrator, and returns
// its output.
func (c *Cluster) RunControllerCommand(args ...string) string {
	c.Helper()
	file := c.WriteTempFile("kubeconfig-of-a-person", kubebedtest.FormatKubeconfig(c, c.Host))
	out, err := exec.CommandContext(c.Context(), buildBinary(c), append(args, "--kubeconfig", file)...).CombinedOutput() //nolint:gosec // our own program
	if err != nil {
		c.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// CreateReadyNode creates a Ready node.
func (c *Cluster) CreateReadyNode(name string, change func(*corev1.Node)) *corev1.Node {
	c.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if change != nil {
		change(n)
	}
	if err := c.Client.Create(c.Context(), n); err != nil {
		c.Fatal(err)
	}
	n.Status.NodeInfo.BootID = "boot-1"
	c.SetReadyCondition(n, corev1.ConditionTrue)
	return n
}

// SetReadyCondition writes the status of a node with its Ready condition.
func (c *Cluster) SetReadyCondition(n *corev1.Node, status corev1.ConditionStatus) {
	c.Helper()
	now := metav1.Now()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: now, LastTransitionTime: now}}
	if err := c.Client.Status().Update(c.Context(), n); err != nil {
		c.Fatal(err)
	}
}

// GetNode reads a node.
func (c *Cluster) GetNode(name string) *corev1.Node {
	c.Helper()
	var n corev1.Node
	if err := c.Client.Get(c.Context(), types.NamespacedName{Name: name}, &n); err != nil {
		c.Fatal(err)
	}
	return &n
}

// PatchNodeWithRetry changes a node like a person with kubectl.
func (c *Cluster) PatchNodeWithRetry(name string, change func(*corev1.Node)) {
	c.Helper()
	kubebedtest.Eventually(c, func(ctx context.Context) error {
		var n corev1.Node
		if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, &n); err != nil {
			return err
		}
		before := n.DeepCopy()
		change(&n)
		return c.Client.Patch(ctx, &n, client.MergeFrom(before), client.FieldOwner("kubectl-cordon"))
	})
}

// UpdateNodeStatusWithRetry changes the status of a node like its kubelet.
func (c *Cluster) UpdateNodeStatusWithRetry(name string, change func(*corev1.Node)) {
	c.Helper()
	kubebedtest.Eventually(c, func(ctx context.Context) error {
		var n corev1.Node
		if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, &n); err != nil {
			return err
		}
		change(&n)
		return c.Client.Status().Update(ctx, &n)
	})
}

// Fault reads a NodeFault.
func (c *Cluster) Fault(ctx context.Context, name string) (*v1alpha1.NodeFault, error) {
	var f v1alpha1.NodeFault
	err := c.Client.Get(ctx, types.NamespacedName{Name: name}, &f)
	return &f, err
}

// PatchFaultWithRetry changes a NodeFault like a person with kubectl.
func (c *Cluster) PatchFaultWithRetry(name string, change func(*v1alpha1.NodeFault)) {
	c.Helper()
	kubebedtest.Eventually(c, func(ctx context.Context) error {
		f, err := c.Fault(ctx, name)
		if err != nil {
			return err
		}
		before := f.DeepCopy()
		change(f)
		return c.Client.Patch(ctx, f, client.MergeFrom(before), client.FieldOwner("kubectl-edit"))
	})
}

// AwaitFault waits until a NodeFault satisfies a predicate, which what describes.
func (c *Cluster) AwaitFault(name, description string, condition func(*v1alpha1.NodeFault) bool) *v1alpha1.NodeFault {
	c.Helper()
	var f *v1alpha1.NodeFault
	kubebedtest.Eventually(c, func(ctx context.Context) (err error) {
		if f, err = c.Fault(ctx, name); err == nil && !condition(f) {
			err = fmt.Errorf("node %q: want %s; %d faults, %s (%s), delivered %+v, %d untold", name, description, len(f.Spec.Faults), f.Status.Phase, f.Status.Message, f.Status.SinkDeliveries, f.Status.UndeliveredChangeEvents)
		}
		return err
	})
	return f
}

// Seen waits until the controller has processed all reports about a node.
func (c *Cluster) Seen(name string) *v1alpha1.NodeFault {
	c.Helper()
	return c.AwaitFault(
		name,
		"all reports to be looked at",
		func(f *v1alpha1.NodeFault) bool { return f.Status.ObservedGeneration == f.Generation },
	)
}

// AwaitPhase waits until a node is in a phase.
func (c *Cluster) AwaitPhase(name string, phase v1alpha1.Phase) *v1alpha1.NodeFault {
	c.Helper()
	var f *v1alpha1.NodeFault
	kubebedtest.Eventually(c, func(ctx context.Context) (err error) {
		if f, err = c.Fault(ctx, name); err == nil && f.Status.Phase != phase {
			err = fmt.Errorf("node %q is %s (%s), want %s", name, f.Status.Phase, f.Status.Message, phase)
		}
		return err
	})
	return f
}

// Report is a health event in the format of the intake.
type Report struct {
	Agent             string   `json:"agent"`
	CheckName         string   `json:"checkName"`
	NodeName          string   `json:"nodeName"`
	IsFatal           bool     `json:"isFatal"`
	IsHealthy         bool     `json:"isHealthy"`
	Message           string   `json:"message,omitempty"`
	ErrorCode         []string `json:"errorCode,omitempty"`
	RecommendedAction string   `json:"recommendedAction,omitempty"`
}

// Fatal returns a fault that makes a node unusable and that has no remedy.
func Fatal(node, check string) Report {
	return Report{Agent: "tests", CheckName: check, NodeName: node, IsFatal: true, Message: "found by a test"}
}

// NewXidReport returns a fault of a GPU that requires a reboot.
func NewXidReport(node string) Report {
	return Report{
		Agent: "syslog-health-monitor", CheckName: "xid-check", NodeName: node, IsFatal: true, Message: "GPU error detected",
		ErrorCode: []string{"XID-79"}, RecommendedAction: "RESTART_VM",
	}
}

// Healthy returns the report that ends a fault.
func (r Report) Healthy() Report {
	r.IsHealthy, r.IsFatal = true, false
	return r
}

// WriteTempFile writes a file for the controller, and returns its path.
func (c *Cluster) WriteTempFile(name, text string) string {
	c.Helper()
	path := filepath.Join(c.TempDir(), name)
	const mode = 0o600
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		c.Fatal(err)
	}
	return path
}

// Report sends a health event, and waits until it is accepted.
func (c *Cluster) Report(r Report) {
	c.Helper()
	kubebedtest.Eventually(c, func(ctx context.Context) error { return c.PostHealthEvent(ctx, r) })
}

// PostHealthEvent sends a health event once.
func (c *Cluster) PostHealthEvent(ctx context.Context, r Report) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return c.postJSONToIntake(ctx, "/v1/health-events", nil, body)
}

// Post sends a report unchanged, and waits until it is accepted. The default content type
// is JSON.
func (c *Cluster) Post(path string, header http.Header, body string) {
	c.Helper()
	kubebedtest.Eventually(c, func(ctx context.Context) error { return c.postJSONToIntake(ctx, path, header, []byte(body)) })
}

func (c *Cluster) postJSONToIntake(ctx context.Context, path string, header http.Header, body []byte) error {
	address, err := c.process.LoggedField("listening for fault reports", "address")
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+Token)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if resp.StatusCode != http.StatusAccepted {
		var text bytes.Buffer
		_, _ = text.ReadFrom(resp.Body)
		return fmt.Errorf("reports are answered %s: %s", resp.Status, text.String())
	}
	return nil
}
