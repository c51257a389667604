package intake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake/datamodels"
)

// newServers starts the HTTP and gRPC servers on loopback.
func newServers(t *testing.T, c client.Client) (post func(path, body string) (int, string), send func(*datamodels.HealthEvent) error) {
	t.Helper()
	guard, err := intake.NewAuthenticator(intake.AuthConfig{Mode: intake.AuthModeNone}, intake.AuthDeps{ListenAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	s, metrics := newFaultStore(t, c), intake.NewMetrics(nil)
	h, err := intake.NewHTTPHandler(intake.HTTPConfig{}, intake.HTTPDeps{Store: s, Auth: guard, Metrics: metrics, NodeAt: intake.NewestNodeNameByAddressFunc(nodesByList(t, c)), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	post = func(path, body string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
		text, _ := io.ReadAll(w.Body)
		return w.Code, string(text)
	}
	server, err := intake.NewListeningGRPCServer(t.Context(), intake.GRPCConfig{Addr: "127.0.0.1:0"}, intake.GRPCDeps{Store: s, Auth: guard, Metrics: metrics, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		running.Wait()
	})
	return post, func(e *datamodels.HealthEvent) error {
		return intake.SendHealthEvents(t.Context(), conn, &datamodels.HealthEvents{Events: []*datamodels.HealthEvent{e}})
	}
}

// nodesByList looks up nodes with a live client.
func nodesByList(t *testing.T, c client.Client) func(address string) ([]*corev1.Node, error) {
	t.Helper()
	return func(address string) ([]*corev1.Node, error) {
		var all corev1.NodeList
		if err := c.List(t.Context(), &all); err != nil {
			return nil, err
		}
		var found []*corev1.Node
		for i := range all.Items {
			if slices.Contains(intake.CanonicalNodeIPs(&all.Items[i]), address) {
				found = append(found, &all.Items[i])
			}
		}
		return found, nil
	}
}

// wantChecks does not wait: acknowledged reports are stored.
func wantChecks(t *testing.T, c client.Client, node string, want ...string) {
	t.Helper()
	if got := checksOf(getNodeFault(t, c, node)); got != strings.Join(want, " ") {
		t.Errorf("faults %q, want %q", got, want)
	}
}

func checksOf(nf *v1alpha1.NodeFault) string {
	var got []string
	for _, f := range nf.Spec.Faults {
		got = append(got, f.Source+"/"+f.Check)
	}
	return strings.Join(got, " ")
}

// TestAPIServerOutage must not run in parallel, because the API server is unavailable for a while.
func TestAPIServerOutage(t *testing.T) {
	c := newClient(t)
	node := createNode(t, c)
	post, send := newServers(t, c)
	event := func(check string) string {
		return fmt.Sprintf(`{"agent":"a","checkName":%q,"isFatal":true,"nodeName":%q}`, check, node)
	}
	if code, text := post(intake.PathHealthEvents, event("first")); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, text)
	}
	wantChecks(t, c, node, "a/first")

	bed := kubebedtest.Bed(t)
	if err := bed.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	code, text := post(intake.PathHealthEvents, event("second"))
	err := send(&datamodels.HealthEvent{Agent: "a", CheckName: "third", NodeName: node})
	if err := bed.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code != http.StatusServiceUnavailable || strings.Contains(text, "127.0.0.1") {
		t.Errorf("HTTP while the API server is away: %d %s, want 503 that tells nothing of it", code, text)
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("gRPC while the API server is away: %v, want Unavailable", err)
	}
	wantChecks(t, c, node, "a/first")
	if code, text := post(intake.PathHealthEvents, event("second")); code != http.StatusAccepted {
		t.Errorf("after it: %d %s", code, text)
	}
	if err := send(&datamodels.HealthEvent{Agent: "a", CheckName: "third", NodeName: node}); err != nil {
		t.Errorf("after it: %v", err)
	}
	wantChecks(t, c, node, "a/first", "a/second", "a/third")
}

func TestAllWaysIn(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	node := createNode(t, c)
	post, send := newServers(t, c)
	setNodeStatus(t, c, node, func(s *corev1.NodeStatus) {
		s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.11.12.13"}}
	})
	alert := func(state string) string {
		return fmt.Sprintf(`{"version":"4","alerts":[{"status":%q,"labels":{"alertname":"Hot","instance":"10.11.12.13:9100"},"fingerprint":"f","startsAt":"2025-08-26T14:42:58Z","endsAt":"0001-01-01T00:00:00Z"}]}`, state)
	}
	if code, text := post(intake.PathAlertmanager, alert("firing")); code != http.StatusAccepted {
		t.Errorf("%d %s", code, text)
	}
	if err := send(&datamodels.HealthEvent{Agent: "gpu-health-monitor", CheckName: "GpuMemWatch", NodeName: node}); err != nil {
		t.Error(err)
	}
	wantChecks(t, c, node, "alertmanager/Hot", "gpu-health-monitor/GpuMemWatch")
	if code, text := post(intake.PathAlertmanager, alert("resolved")); code != http.StatusAccepted {
		t.Errorf("%d %s", code, text)
	}
	if code, _ := post(intake.PathHealthEvents, `{"agent":"a","checkName":"b","nodeName":"no-such-node"}`); code != http.StatusNotFound {
		t.Errorf("a node that does not exist: %d, want 404", code)
	}
	if err := send(&datamodels.HealthEvent{Agent: "a", CheckName: "b", NodeName: "no-such-node"}); status.Code(err) != codes.NotFound {
		t.Errorf("a node that does not exist: %v, want NotFound", err)
	}
	if err := send(&datamodels.HealthEvent{Agent: "a", CheckName: "b", IsHealthy: true, NodeName: "no-such-node"}); err != nil {
		t.Errorf("that a node that does not exist is well: %v, want that nothing is to be done", err)
	}
	wantChecks(t, c, node, "gpu-health-monitor/GpuMemWatch")
}

func setNodeStatus(t *testing.T, c client.Client, node string, change func(*corev1.NodeStatus)) {
	t.Helper()
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		var n corev1.Node
		if err := c.Get(ctx, types.NamespacedName{Name: node}, &n); err != nil {
			return err
		}
		change(&n.Status)
		return c.Status().Update(ctx, &n)
	})
}

// TestFaultsOfConditions runs the controller of node conditions in a manager.
func TestFaultsOfConditions(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	node := createNode(t, c)
	const gpu = "nvidia.com/gpu"
	set, err := intake.NewConditionSet(intake.ConditionConfig{Presets: []string{"npd"}, Resources: []intake.NodeResource{{Resource: gpu, ErrorCode: "GPULost", Fatal: true}}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := kube.NewManager(kubebedtest.Bed(t).Config(), kube.Options{
		Scheme:        c.Scheme(),
		ClusterScoped: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Node"), v1alpha1.GroupVersion.WithKind(v1alpha1.Kind)},
		Log:           quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := intake.NewFaultStore(intake.StoreConfig{}, intake.StoreDeps{Live: m.GetAPIReader(), Write: m.GetClient(), Nodes: m.GetClient()})
	if err != nil {
		t.Fatal(err)
	}
	if err := intake.AddConditionController(m, set, intake.NewMetrics(nil).NewCountingStore(intake.KindConditions, s), quiet()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })

	condition := func(bad corev1.ConditionStatus) func(*corev1.NodeStatus) {
		return func(s *corev1.NodeStatus) {
			s.Conditions = []corev1.NodeCondition{{
				Type: "KernelDeadlock", Status: bad, Reason: "TaskHung", Message: "blocked for more than 120 seconds",
				LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)), LastHeartbeatTime: metav1.Now(),
			}}
		}
	}
	gpus := func(n string) func(*corev1.NodeStatus) {
		return func(s *corev1.NodeStatus) {
			s.Capacity = corev1.ResourceList{gpu: resource.MustParse("8")}
			s.Allocatable = corev1.ResourceList{gpu: resource.MustParse(n)}
		}
	}
	awaitChecks := func(want string) {
		t.Helper()
		kubebedtest.Eventually(t, func(ctx context.Context) error {
			var nf v1alpha1.NodeFault
			if err := c.Get(ctx, types.NamespacedName{Name: node}, &nf); err != nil {
				return err
			}
			if got := checksOf(&nf); got != want {
				return fmt.Errorf("faults are %q, want %q", got, want)
			}
			return nil
		})
	}
	const deadlock, lost = "node-conditions/KernelDeadlock", "node-resources/nvidia.com/gpu"
	setNodeStatus(t, c, node, condition(corev1.ConditionTrue))
	awaitChecks(deadlock)
	if f := getNodeFault(t, c, node).Spec.Faults[0]; !f.Fatal || f.RecommendedAction != v1alpha1.ActionRestartVM || strings.Join(f.ErrorCodes, "") != "TaskHung" {
		t.Errorf("the fault is %+v", f)
	}
	setNodeStatus(t, c, node, gpus("7"))
	awaitChecks(deadlock + " " + lost)
	if err := c.Delete(t.Context(), &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: node}}); err != nil {
		t.Fatal(err)
	}
	awaitChecks(deadlock + " " + lost) // unchanged
	setNodeStatus(t, c, node, condition(corev1.ConditionFalse))
	awaitChecks(lost)
	setNodeStatus(t, c, node, gpus("8"))
	awaitChecks("")
}

func TestNewFaultStoreRefuses(t *testing.T) {
	t.Parallel()
	if _, err := intake.NewFaultStore(intake.StoreConfig{}, intake.StoreDeps{}); err == nil {
		t.Error("a store without an API server")
	}
}

// TestStoreQueueFull verifies that the number of waiting reports is limited, and that cancelled
// reports do not wait.
func TestStoreQueueFull(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	node := createNode(t, c)
	stuck := &slowReader{Client: c, asked: make(chan struct{}), answer: make(chan struct{})}
	s, err := intake.NewFaultStore(intake.StoreConfig{QueueSize: 3}, intake.StoreDeps{Live: stuck, Write: c, Nodes: c})
	if err != nil {
		t.Fatal(err)
	}
	stored := make(chan error, 1)
	go func() { stored <- s.Apply(t.Context(), reportsOf(node, "first", "second")) }()
	<-stuck.asked
	if err := s.Apply(t.Context(), reportsOf(node, "third", "fourth")); !errors.Is(err, intake.ErrBusy) {
		t.Errorf("more than may wait: %v, want %v", err, intake.ErrBusy)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	if err := s.Apply(ctx, reportsOf(node, "fifth")); !errors.Is(err, intake.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("what was given up: %v", err)
	}
	close(stuck.answer)
	if err := <-stored; err != nil {
		t.Errorf("what was waited for: %v", err)
	}
	wantChecks(t, c, node, "syslog-health-monitor/first", "syslog-health-monitor/second")
}
