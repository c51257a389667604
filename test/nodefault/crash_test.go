package nodefault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	janitorv1alpha1 "github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/nodefault/janitor"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// mostWrites exceeds the number of writes of any kind about a node.
const mostWrites = 20

// course lists the actions of a node that is drained and rebooted.
const course = "cordon drain-started drain-completed reboot-requested reboot-sent reboot-executed uncordon"

// TestDiesAtEachWrite verifies that a new controller continues after a crash at any
// write. The result is the same, each action is recorded, and none is done twice. The
// controller crashes at each write, once before it is made and once before the response.
func TestDiesAtEachWrite(t *testing.T) {
	m := newMatrix(t)
	kinds := m.run(faulttest.Point{})
	t.Logf("writes: %v", kinds)
	for _, want := range []string{
		"patch nodes", "patch nodefaults", "patch nodefaults/status", "patch nodefaults/status by the outbox", "post pods/eviction",
		"post rebootnodes", "put rebootnodes/status", "the webhook",
	} {
		if kinds[want] == 0 {
			t.Errorf("there is no write %q among %v", want, kinds)
		}
	}
	deaths := 0
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		times := 0
		for n := 1; n <= mostWrites && !t.Failed(); n++ {
			if m.run(faulttest.Point{Kind: kind, N: n}); !m.way.Struck() {
				break
			}
			times = n
		}
		for n := 1; n <= times && !t.Failed(); n++ {
			m.run(faulttest.Point{Kind: kind, N: n, Answered: true})
		}
		if times == 0 {
			t.Errorf("it never died at %q", kind)
		}
		t.Logf("%s: %d times", kind, times)
		deaths += 2 * times
	}
	t.Logf("%d deaths", deaths)
}

// A matrix runs nodes through their course, one after the other.
type matrix struct {
	*testing.T

	c        *faulttest.Cluster
	way      *faulttest.KillingProxy
	machines *faulttest.Machines
	book     *faulttest.NodeStateLog
	ns       string

	process *kubebedtest.Process
	deaths  int // crashes that were followed by a restart
	nodes   int
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	c := faulttest.UseSharedCluster(t)
	m := &matrix{T: t, c: c, way: c.ProxyHost(), machines: c.StartMachineWebhook(), book: c.StartNodeStateLog(), ns: kubebedtest.Namespace(t)}
	m.machines.Way = m.way
	m.start()
	return m
}

func (m *matrix) start() {
	m.Helper()
	env := m.machines.Env()
	env["NODE_FAULT_HEALTHY_FOR"] = "1ms"
	m.process = m.c.StartController(env)
}

// until waits for a condition, and starts the next controller after a crash.
func (m *matrix) until(check func(ctx context.Context) error) {
	m.Helper()
	kubebedtest.Eventually(m, func(ctx context.Context) error {
		select {
		case <-m.process.Ended():
			if !m.way.Struck() {
				return errors.New("it has ended, and nobody has killed it")
			}
			m.deaths++
			m.start() //nolint:contextcheck // a process outlives one look
		default:
		}
		return check(ctx)
	})
}

// run takes a node through its course with a crash at a point, and returns the number of
// writes by kind.
func (m *matrix) run(at faulttest.Point) (kinds map[string]int) {
	m.Helper()
	m.nodes++
	name := fmt.Sprintf("node-%03d", m.nodes)
	node := m.c.CreateReadyNode(name, nil)
	m.c.CreateRunningPod(m.ns, "pod-of-"+name, name)
	point := &at
	if at.Kind == "" {
		point = nil
	}
	deaths := m.deaths
	m.way.Arm(name, point, m.process.Kill)
	defer func() {
		if m.Failed() {
			m.Errorf("that was node %q, with a death at %+v", name, at)
		}
	}()

	fault := faulttest.NewXidReport(name)
	m.until(func(ctx context.Context) error { return m.c.PostHealthEvent(ctx, fault) })
	m.until(func(ctx context.Context) error {
		f, err := m.c.Fault(ctx, name)
		if err == nil && (f.Status.Remediation == nil || f.Status.Remediation.State != v1alpha1.RemedySucceeded) {
			err = fmt.Errorf("the reboot is not proven: %s %+v", f.Status.Message, f.Status.Remediation)
		}
		return err
	})
	m.until(func(ctx context.Context) error { return m.c.PostHealthEvent(ctx, fault.Healthy()) })
	m.until(func(ctx context.Context) error { return m.over(ctx, name) })
	if m.way.Disarm() && m.deaths == deaths { // at a write that nothing depends on
		<-m.process.Ended()
		m.until(func(ctx context.Context) error { return m.over(ctx, name) })
	}
	m.check(node)
	return m.way.Counts()
}

// over returns nil when a node is healthy again and all actions are delivered.
func (m *matrix) over(ctx context.Context, name string) error {
	f, err := m.c.Fault(ctx, name)
	if err != nil {
		return err
	}
	told := f.Status.SinkDeliveries["default"]
	if f.Status.Phase != v1alpha1.PhaseHealthy || f.Status.UndeliveredChangeEvents != 0 || told.ProcessedSequence != f.Status.LastSequence || len(f.Spec.Faults) != 0 {
		return fmt.Errorf("node %q is %s (%s) with %d faults; %d of %d records are told", name, f.Status.Phase, f.Status.Message, len(f.Spec.Faults), told.ProcessedSequence, f.Status.LastSequence)
	}
	return nil
}

// check verifies the final state of a node, and the delivered actions.
func (m *matrix) check(node *corev1.Node) {
	m.Helper()
	name := node.Name
	if got := m.book.Of(node); got != "open cordoned open" {
		m.Errorf("node %q was %s", name, got)
	}
	n := m.c.GetNode(name)
	if n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationOwned] != "" || n.Labels[v1alpha1.LabelPhase] != "" {
		m.Errorf("something of ours is left: %+v %v %v", n.Spec, n.Annotations, n.Labels)
	}
	if err := m.c.Client.Get(m.Context(), client.ObjectKey{Namespace: m.ns, Name: "pod-of-" + name}, &corev1.Pod{}); !apierrors.IsNotFound(err) {
		m.Errorf("its pod is still there: %v", err)
	}
	var reboots janitorv1alpha1.RebootNodeList
	if err := m.c.Client.List(m.Context(), &reboots); err != nil {
		m.Fatal(err)
	}
	asked := 0
	for i := range reboots.Items {
		if reboots.Items[i].Spec.NodeName == name {
			asked++
		}
	}
	if done := m.machines.Done(janitor.ActionReboot, name); asked != 1 || len(done) != 1 {
		m.Errorf("there are %d RebootNodes, and its machine was rebooted %d times", asked, len(done))
	}
	m.checkTold(name)
}

// checkTold verifies that each action was delivered, in order and with increasing times.
// A repeated event must follow directly and be identical.
func (m *matrix) checkTold(name string) {
	m.Helper()
	if got := m.c.Sink.JoinReceivedActions(name); got != course {
		m.Errorf("told: %s; want %s", got, course)
	}
	var before, at string
	ids := map[string]bool{}
	for _, p := range m.c.Sink.ReceivedEvents(name, false) {
		if p.Timestamp < at {
			m.Errorf("%s was at %s, before what was told before it, at %s", p.Action, p.Timestamp, at)
		}
		at = p.Timestamp
		if ids[p.ID] && p.ID != before {
			m.Errorf("%s was told again after others", p.Action)
		}
		ids[p.ID], before = true, p.ID
	}
	if want := len(strings.Fields(course)); len(ids) != want {
		m.Errorf("there are %d ids, want %d", len(ids), want)
	}
}
