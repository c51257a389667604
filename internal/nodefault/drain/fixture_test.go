package drain

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// A fixture is a node with pods on a real API server. There is no kubelet: a pod with a grace
// period stays terminating until the test deletes it. The test controls the time.
type fixture struct {
	t      *testing.T
	client kubernetes.Interface
	wire   *wire
	ns     string
	node   *corev1.Node
	st     *v1alpha1.NodeFaultStatus
	now    time.Time
	d      *Drainer
}

func newFixture(t *testing.T, cfg Config) *fixture {
	t.Helper()
	ns := kubebedtest.Namespace(t)
	w := &wire{}
	rc := kubebedtest.Bed(t).Config()
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { w.next = next; return w })
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{}
	node.Name, node.UID = "node-of-"+ns, types.UID("uid-of-"+ns)
	node.Spec.Unschedulable = true
	node.Spec.Taints = []corev1.Taint{
		{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule},
		{Key: "fleetloop.io/fault", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
		{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule},
	}
	st := &v1alpha1.NodeFaultStatus{NodeUID: node.UID, Session: "k3f9c2aa", DesiredActions: &v1alpha1.DesiredActions{Cordon: true, Drain: true}}
	return &fixture{t: t, client: client, wire: w, ns: ns, node: node, st: st, now: time.Now().Truncate(time.Second), d: New(cfg, client, nil)}
}

// step makes a step and verifies the delay until the next one: a duration, or later.
func (r *fixture) step(want time.Duration) {
	r.t.Helper()
	after, err := r.d.Step(r.t.Context(), r.node, r.st, r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	if want != later && after != want || want == later && (after <= 0 || after == Never) {
		r.t.Fatalf("look again after %s, want %s; status %+v", after, want, r.st.Drain)
	}
}

// later is any delay that is neither zero nor Never.
const later = time.Duration(-1)

// begin makes the step that records the start of the drain.
func (r *fixture) begin() {
	r.t.Helper()
	r.step(0)
	r.want(v1alpha1.DrainRunning, "drain-started")
}

// want verifies the state and all records.
func (r *fixture) want(state v1alpha1.DrainState, actions ...string) {
	r.t.Helper()
	if r.st.Drain == nil || r.st.Drain.State != state {
		r.t.Fatalf("the drain is %+v, want %s", r.st.Drain, state)
	}
	var told []string
	for _, h := range r.st.History {
		told = append(told, h.Action)
	}
	if diff := cmp.Diff(actions, told); diff != "" {
		r.t.Errorf("told (-want +got):\n%s", diff)
	}
}

// wantBlockers verifies the blocked pods, as "pod by".
func (r *fixture) wantBlockers(want ...string) {
	r.t.Helper()
	var got []string
	for _, b := range r.st.Drain.BlockedPods {
		got = append(got, strings.ReplaceAll(b.Pod+" by "+b.BlockedBy, r.ns+"/", ""))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("pods are kept (-want +got):\n%s", diff)
	}
}

// wantPods verifies which pods exist. Terminating pods have a +.
func (r *fixture) wantPods(want ...string) {
	r.t.Helper()
	list, err := r.client.CoreV1().Pods(r.ns).List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	var got []string
	for _, p := range list.Items {
		if p.DeletionTimestamp != nil {
			p.Name += "+"
		}
		got = append(got, p.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// pod creates a running and ready pod of a ReplicaSet on the node. It ends at once when
// it is deleted.
func (r *fixture) pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	r.t.Helper()
	var none int64
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.ns, Name: name, Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "uid-of-web", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName: r.node.Name, TerminationGracePeriodSeconds: &none,
			Containers: []corev1.Container{{Name: "main", Image: "localhost/web:1"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, change := range changes {
		change(p)
	}
	status := p.Status
	p, err := r.client.CoreV1().Pods(r.ns).Create(r.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	p.Status = status
	if p, err = r.client.CoreV1().Pods(r.ns).UpdateStatus(r.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { r.kill(name) })
	return p
}

// kill removes a pod, like the kubelet after its containers have ended.
func (r *fixture) kill(name string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), time.Minute)
	defer cancel()
	var none int64
	err := r.client.CoreV1().Pods(r.ns).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &none})
	if err != nil && !apierrors.IsNotFound(err) {
		r.t.Error(err)
	}
}

// slow gives a pod a grace period.
func slow(p *corev1.Pod) {
	seconds := int64(30)
	p.Spec.TerminationGracePeriodSeconds = &seconds
}

func orphan(p *corev1.Pod) { p.OwnerReferences = nil }

func app(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels["app"] = name }
}

func volume(medium corev1.StorageMedium) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}})
	}
}

// budget creates a disruption budget for the pods of an app, and waits until the
// controller has counted them.
func (r *fixture) budget(name, of string, least, pods int) {
	r.t.Helper()
	available := intstr.FromInt32(int32(least))
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &available, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": of}}},
	}
	if _, err := r.client.PolicyV1().PodDisruptionBudgets(r.ns).Create(r.t.Context(), b, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.counted(name, pods)
}

// counted waits until a budget has counted a number of healthy pods.
func (r *fixture) counted(name string, pods int) {
	r.t.Helper()
	kubebedtest.Eventually(r.t, func(ctx context.Context) error {
		b, err := r.client.PolicyV1().PodDisruptionBudgets(r.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if b.Status.ObservedGeneration < b.Generation || b.Status.CurrentHealthy != int32(pods) {
			return fmt.Errorf("budget %q has counted %d healthy pods, want %d", name, b.Status.CurrentHealthy, pods)
		}
		return nil
	})
}

// A wire counts requests, makes all lists current, and can respond itself.
type wire struct {
	next http.RoundTripper

	mu     sync.Mutex
	asked  map[string]int
	answer func(*http.Request) *http.Response // nil means that the API server responds
}

// RoundTrip counts requests, and responds.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	if w.asked == nil {
		w.asked = map[string]int{}
	}
	what := req.Method
	if strings.HasSuffix(req.URL.Path, "/eviction") {
		what = "evict"
	}
	w.asked[what]++
	answer := w.answer
	w.mu.Unlock()
	if answer != nil {
		if resp := answer(req); resp != nil {
			return resp, nil
		}
	}
	if query := req.URL.Query(); query.Get("resourceVersion") == "0" { // the last change of a test must be visible
		query.Del("resourceVersion")
		req = req.Clone(req.Context())
		req.URL.RawQuery = query.Encode()
	}
	return w.next.RoundTrip(req)
}

func (w *wire) evictions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked["evict"]
}

func (w *wire) answers(f func(*http.Request) *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}
