package janitor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/kube"
)

func TestMain(m *testing.M) {
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
	kubebedtest.Main(m, kubebed.Options{Controllers: kubebed.JobControllers(), CRDs: []string{"../../../deploy/crds"}})
}

// A machinery is a provider that the test controls.
type machinery struct {
	mu        sync.Mutex
	asked     map[types.UID]int // number of requests by key
	order     []string          // order of the requests
	withdrawn map[types.UID]int
	answer    func(r Request) error
	progress  Progress
	onAsk     func(r Request)
}

func newMachinery() *machinery {
	return &machinery{
		asked: map[types.UID]int{}, withdrawn: map[types.UID]int{}, progress: Progress{State: StateRunning},
		answer: func(Request) error { return nil }, onAsk: func(Request) {},
	}
}

func (m *machinery) Name() string { return "machinery" }

func (m *machinery) Start(_ context.Context, r Request) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.answer(r); err != nil {
		return "", err
	}
	if m.asked[r.Key]++; m.asked[r.Key] == 1 {
		m.order = append(m.order, r.By.Name)
		m.onAsk(r)
	}
	return "request of " + r.By.Name, nil
}

func (m *machinery) CheckProgress(context.Context, Request, string) (Progress, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.progress, nil
}

func (m *machinery) Withdraw(_ context.Context, r Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.withdrawn[r.Key]++
	return nil
}

// A fixture is a real API server with reconcilers that the test calls.
type fixture struct {
	*testing.T
	client   client.Client
	provider *machinery
	cfg      Config
	now      time.Time
	turns    *nodeActionQueue
	metrics  *metrics
	prefix   string // prefix of the names of the test
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cfg := kubebedtest.Bed(t).Config()
	cfg.QPS = -1
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	w := &fixture{
		T: t, client: c, provider: newMachinery(), cfg: Config{}.withDefaults(), now: time.Now().Truncate(time.Second),
		turns: &nodeActionQueue{live: c}, metrics: metrics, prefix: name[:min(len(name), 40)] + "-" + strings.ToLower(rand.Text()[:6]),
	}
	t.Cleanup(func() { w.clear() })
	return w
}

// clear deletes the objects that other tests would find.
func (w *fixture) clear() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), time.Minute)
	defer cancel()
	all, err := listActionsOnNode(ctx, w.client, w.node())
	if err != nil {
		w.Error(err)
	}
	for _, o := range all {
		_ = w.client.Delete(ctx, o)
	}
	_ = w.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node()}})
}

func (w *fixture) node() string { return w.prefix + "-node" }

// config returns the client configuration without a rate limit.
func (w *fixture) config() *rest.Config {
	cfg := kubebedtest.Bed(w).Config()
	cfg.QPS = -1
	return cfg
}

// reconciler returns a new reconciler.
func (w *fixture) reconciler(c client.Client, k func(Config, Providers) actionKind) *reconciler {
	return &reconciler{
		kind: k(w.cfg, Providers{w.provider, w.provider}), cfg: w.cfg, client: c, live: w.client, turns: w.turns,
		written: &kube.WrittenVersions{}, metrics: w.metrics, log: slog.New(slog.DiscardHandler), now: func() time.Time { return w.now },
	}
}

// addNode creates a node that is Ready with the boot ID boot-1.
func (w *fixture) addNode(change func(*corev1.Node)) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node()}}
	if change != nil {
		change(n)
	}
	if err := w.client.Create(w.Context(), n); err != nil {
		w.Fatal(err)
	}
	w.report("boot-1", corev1.ConditionTrue)
	return n
}

// report writes the node status like the kubelet.
func (w *fixture) report(boot string, ready corev1.ConditionStatus) {
	report(w.T, w.client, w.node(), boot, ready)
}

func report(t *testing.T, c client.Client, node, boot string, ready corev1.ConditionStatus) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q},"conditions":[{"type":"Ready","status":%q}]}}`, boot, ready)
	err := c.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.StrategicMergePatchType, patch))
	if err != nil {
		t.Error(err)
	}
}

func (w *fixture) ask(kind, name string, force bool) client.Object {
	w.Helper()
	about, spec := metav1.ObjectMeta{Name: w.prefix + "-" + name}, v1alpha1.NodeActionSpec{NodeName: w.node(), Force: force}
	var o client.Object = &v1alpha1.RebootNode{ObjectMeta: about, Spec: spec}
	if kind == v1alpha1.KindTerminate {
		o = &v1alpha1.TerminateNode{ObjectMeta: about, Spec: spec}
	}
	if err := w.client.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
	return o
}

// look reconciles an object and returns its new state, or nil if it is deleted.
func (w *fixture) look(o client.Object) client.Object {
	w.Helper()
	k := newRebootActionKind
	if kindOf(o) == v1alpha1.KindTerminate {
		k = newTerminateActionKind
	}
	r := w.reconciler(w.client, k)
	if _, err := r.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
		w.Fatal(err)
	}
	return w.read(o)
}

func (w *fixture) read(o client.Object) client.Object {
	w.Helper()
	err := w.client.Get(w.Context(), client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return o
}

// want verifies the two conditions of an object, as status/reason, and a part of its
// message.
func (w *fixture) want(o client.Object, sent, final, message string) {
	w.Helper()
	_, status := specAndStatus(o)
	last := v1alpha1.ConditionNodeReady
	if kindOf(o) == v1alpha1.KindTerminate {
		last = v1alpha1.ConditionNodeTerminated
	}
	gotSent, gotFinal := conditionStatusAndReason(status, v1alpha1.ConditionSignalSent), conditionStatusAndReason(status, last)
	if gotSent != sent || gotFinal != final || !strings.Contains(status.Message, message) {
		w.Errorf("%s is sent %s and ended %s: %q; want %s, %s and %q", o.GetName(), gotSent, gotFinal, status.Message, sent, final, message)
	}
	over := strings.HasPrefix(final, "True") || strings.HasPrefix(final, "False")
	if over != (status.CompletionTime != nil) {
		w.Errorf("%s has a completion time of %v", o.GetName(), status.CompletionTime)
	}
}
