package remediation

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{"../../../deploy/crds"}})
}

// fataler is implemented by *testing.T and *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// A course is a sequence of events of a node with the expected results.
type course struct {
	reason   string
	cfg      Config
	remedies []faults.Remedy
	act      func(w *fixture)
	created  []string
	told     []string
	state    faults.RemedyState
	message  string
	busy     bool
}

func (c course) want(t *testing.T) {
	t.Helper()
	w := newFixture(t, c.cfg, c.remedies...)
	c.act(w)
	if diff := cmp.Diff(c.created, w.created); diff != "" {
		t.Errorf("%s: asked for (-want +got)\n%s", c.reason, diff)
	}
	if diff := cmp.Diff(c.told, w.told()); diff != "" {
		t.Errorf("%s: told (-want +got)\n%s", c.reason, diff)
	}
	var m faults.RemediationStatus
	if w.stored.Remediation != nil {
		m = *w.stored.Remediation
	}
	if m.State != c.state || !strings.Contains(m.Message, c.message) || w.r.BlocksRelease(w.stored) != c.busy {
		t.Errorf("%s: it is %q (busy %t): %q", c.reason, m.State, w.r.BlocksRelease(w.stored), m.Message)
	}
}

// A fixture holds one node with its faults, the stored status, and the objects of the
// janitor.
type fixture struct {
	fataler
	r      *Remediator
	client client.Client
	node   *corev1.Node // nil if the node is gone
	stored *faults.NodeFaultStatus
	now    time.Time

	created []string                  // in order
	lose    func() bool               // whether the next write of the status is lost
	create  func(client.Object) error // result of a create; nil means success
	hidden  map[string]bool           // names that are not in the cache yet
}

var errLost = errors.New("nobody has answered")

func newFixture(t fataler, cfg Config, remedies ...faults.Remedy) *fixture {
	w := &fixture{fataler: t, now: time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC), lose: func() bool { return false }, hidden: map[string]bool{}}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatalf("%v", err)
	}
	made := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.RebootNode{}, &v1alpha1.TerminateNode{}).Build()
	w.client = made
	w.r = New(cfg, interceptor.NewClient(made, interceptor.Funcs{Create: w.intercept, Get: w.get}))
	w.node = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", UID: "node-uid", CreationTimestamp: metav1.NewTime(w.now.Add(-time.Hour))},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot-1"}},
	}
	w.stored = &faults.NodeFaultStatus{
		NodeUID: "node-uid", Session: "s3ss10n0",
		TriggeredBy:    &faults.Fault{Source: "agent", Check: "xid", ErrorCodes: []string{"XID-79"}, Fatal: true, Message: "gone"},
		DesiredActions: &faults.DesiredActions{Cordon: true, Drain: true, Remedies: remedies},
		Drain:          &faults.DrainStatus{State: faults.DrainCompleted},
	}
	return w
}

// intercept handles creates of objects. Unlike the fake client, it rejects a dry-run
// create of an existing object.
func (w *fixture) intercept(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	var options client.CreateOptions
	options.ApplyOptions(opts)
	if slices.Contains(options.DryRun, metav1.DryRunAll) {
		there := newEmptyRebootOrTerminateNode(wrapActionObject(o).kind)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), there); err == nil {
			return apierrors.NewAlreadyExists(v1alpha1.GroupVersion.WithResource("x").GroupResource(), o.GetName())
		}
		return nil
	}
	if w.create != nil {
		if err := w.create(o); err != nil {
			return err
		}
	}
	m := w.stored.Remediation
	if m == nil || m.State != faults.RemedyRunning || strconv.Itoa(int(m.Attempt)) != o.GetLabels()[LabelAttempt] {
		w.Errorf("%s was made, and nothing of it is stored: %+v", o.GetName(), m)
	}
	o.SetUID(types.UID("uid-" + o.GetName()))
	o.SetCreationTimestamp(metav1.NewTime(w.now))
	err := c.Create(ctx, o)
	if err == nil {
		w.created = append(w.created, wrapActionObject(o).kind+" "+o.GetName())
	}
	return err
}

// get reads the cache.
func (w *fixture) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if w.hidden[key.Name] {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("x").GroupResource(), key.Name)
	}
	return c.Get(ctx, key, o)
}

// step makes a step and stores the result, unless the write is lost.
func (w *fixture) step() (changed bool) {
	w.Helper()
	st := w.stored.DeepCopy()
	_, err := w.r.Step(context.Background(), w.node, st, w.now)
	if err != nil {
		if !errors.Is(err, errLost) {
			w.Fatalf("step: %v", err)
		}
		return false
	}
	if w.lose() {
		return true
	}
	changed = !jsonEqual(w.stored, st)
	w.stored = st
	return changed
}

// settle makes steps until nothing changes.
func (w *fixture) settle() {
	w.Helper()
	for range 20 {
		if !w.step() {
			return
		}
	}
	w.Fatalf("it does not come to rest: %+v", w.stored.Remediation)
}

// current returns the object of the attempt in progress.
func (w *fixture) current() *action {
	w.Helper()
	m := w.stored.Remediation
	if m == nil || m.ObjectName == "" {
		w.Fatalf("nothing is under way: %+v", m)
	}
	o := newEmptyRebootOrTerminateNode(m.ObjectKind)
	if err := w.client.Get(context.Background(), client.ObjectKey{Name: m.ObjectName}, o); err != nil {
		w.Fatalf("%v", err)
	}
	return wrapActionObject(o)
}

// says sets a condition of an object like the janitor.
func (w *fixture) says(a *action, kind string, status metav1.ConditionStatus, reason string) {
	w.Helper()
	if a.status.NodeUID == "" {
		a.status.NodeUID, a.status.StartTime = w.stored.NodeUID, &metav1.Time{Time: w.now}
	}
	meta.SetStatusCondition(&a.status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(w.now)})
	if kind != v1alpha1.ConditionSignalSent {
		a.status.CompletionTime = &metav1.Time{Time: w.now}
		a.status.Message = "the janitor says " + reason
	}
	if err := w.client.Status().Update(context.Background(), a.Object); err != nil {
		w.Fatalf("%v", err)
	}
}

func (w *fixture) accepted() {
	w.Helper()
	w.says(w.current(), v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
}

// sending sets the condition of a request that the provider has not accepted yet.
func (w *fixture) sending() {
	w.Helper()
	w.says(w.current(), v1alpha1.ConditionSignalSent, metav1.ConditionUnknown, "Sending")
}

func (w *fixture) ends(status metav1.ConditionStatus, reason string) {
	w.Helper()
	a := w.current()
	w.says(a, actionNamesOf(a.kind).final, status, reason)
}

// boots gives the node another boot ID.
func (w *fixture) boots() { w.node.Status.NodeInfo.BootID += "+" }

// told returns the actions of the history with their objects.
func (w *fixture) told() []string {
	var all []string
	for _, h := range w.stored.History {
		text := h.Action
		if h.Object != "" {
			text += " " + h.Object
		}
		all = append(all, text)
	}
	return all
}

// failsSilently makes the drain fail with two pods left, some of them terminating, on a
// node with an unreachable kubelet.
func (w *fixture) failsSilently(terminating int32) {
	w.stored.Drain.State, w.stored.Drain.Remaining, w.stored.Drain.Terminating = faults.DrainFailed, 2, terminating
	w.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
}
