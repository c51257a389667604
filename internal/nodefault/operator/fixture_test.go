package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/budget"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
	"github.com/fleetloop/fleetloop/internal/nodefault/rules"
)

const healthyFor = 5 * time.Minute

// A tester is implemented by *testing.T and by rapid.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

var errDied = errors.New("the process has died")

// A fixture is an in-memory API server with nodes and NodeFaults, and the dependencies of
// an operator. Like a real one, it rejects a write of an outdated version.
type fixture struct {
	tester

	now     time.Time
	version int
	uids    int
	nodes   map[string]*corev1.Node
	faults  map[string]*v1alpha1.NodeFault
	pods    map[string]int  // pods that are left on a node
	reboots map[string]bool // requested reboots by node

	// mishap is called before and after each write. The operator receives its error.
	mishap func(before bool) error

	flips  map[string][]string // changes of the controller to the cordon of a node, in order
	writes []string
}

func newFixture(t tester) *fixture {
	return &fixture{
		tester: t, now: time.Date(2026, 5, 4, 3, 0, 0, 0, time.UTC), nodes: map[string]*corev1.Node{}, faults: map[string]*v1alpha1.NodeFault{},
		pods: map[string]int{}, reboots: map[string]bool{}, flips: map[string][]string{}, mishap: func(bool) error { return nil },
	}
}

// join adds a node.
func (w *fixture) join(name string) {
	w.uids++
	w.nodes[name] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("n" + strconv.Itoa(w.uids)),
			CreationTimestamp: metav1.NewTime(w.now.Truncate(time.Second)), // like the API server
			Labels:            map[string]string{}, Annotations: map[string]string{},
		},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	w.stamp(&w.nodes[name].ObjectMeta)
}

func (w *fixture) stamp(m *metav1.ObjectMeta) {
	w.version++
	m.ResourceVersion = strconv.Itoa(w.version)
}

// edit changes a node like a person.
func (w *fixture) edit(name string, change func(n *corev1.Node)) {
	n := w.nodes[name]
	was := n.Spec.Unschedulable
	change(n)
	w.manage(n, was, "kubectl-cordon")
	w.stamp(&n.ObjectMeta)
}

// manage records the manager of the cordon like the API server.
func (w *fixture) manage(n *corev1.Node, was bool, who string) {
	switch is := n.Spec.Unschedulable; {
	case was && !is:
		n.ManagedFields = nil
	case is && !was:
		at := metav1.NewTime(w.now)
		n.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: who, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", Time: &at,
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`),
		}}
	}
}

// report adds a fault of a source.
func (w *fixture) report(node, check string) {
	f := w.faults[node]
	if f == nil {
		w.uids++
		f = &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("f" + strconv.Itoa(w.uids))}}
		w.faults[node] = f
	}
	for _, there := range f.Spec.Faults {
		if there.Check == check {
			return
		}
	}
	f.Spec.Faults = append(f.Spec.Faults, v1alpha1.Fault{
		Source: "agent", Check: check, ErrorCodes: []string{"XID-79"}, Fatal: true, RecommendedAction: v1alpha1.ActionRestartVM, DetectedAt: metav1.NewMicroTime(w.now),
	})
	f.Generation++
	w.stamp(&f.ObjectMeta)
}

// heal removes all faults of a node.
func (w *fixture) heal(node string) {
	if f := w.faults[node]; f != nil && len(f.Spec.Faults) > 0 {
		f.Spec.Faults = nil
		f.Generation++
		w.stamp(&f.ObjectMeta)
	}
}

// out returns how many nodes are out of service.
func (w *fixture) out() int {
	n := 0
	for _, node := range w.nodes {
		if node.Spec.Unschedulable {
			n++
		}
	}
	return n
}

// write makes one write.
func (w *fixture) write(what string, do func() error) error {
	if err := w.mishap(true); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	w.writes = append(w.writes, what)
	return w.mishap(false)
}

func conflict(kind, name string) error {
	return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource(kind).GroupResource(), name, errors.New("it has changed"))
}

// storedNodes accesses the nodes of the fixture.
type storedNodes struct{ *fixture }

func (s storedNodes) Get(_ context.Context, name string) (*corev1.Node, error) {
	return s.nodes[name].DeepCopy(), nil
}

func (s storedNodes) Write(_ context.Context, before, after *corev1.Node) error {
	return s.write("node", func() error {
		there := s.nodes[after.Name]
		if there == nil || there.ResourceVersion != before.ResourceVersion {
			return conflict("nodes", after.Name)
		}
		was := there.Spec.Unschedulable
		s.manage(after, was, v1alpha1.FieldManager)
		s.stamp(&after.ObjectMeta)
		s.nodes[after.Name] = after.DeepCopy()
		switch is := after.Spec.Unschedulable; {
		case is && !was:
			s.flips[after.Name] = append(s.flips[after.Name], changeevent.ActionCordon)
		case was && !is:
			s.flips[after.Name] = append(s.flips[after.Name], changeevent.ActionUncordon)
		}
		return nil
	})
}

// storedFaults accesses the NodeFaults of the fixture.
type storedFaults struct{ *fixture }

func (s storedFaults) Get(_ context.Context, name string) (*v1alpha1.NodeFault, error) {
	return s.faults[name].DeepCopy(), nil
}

func (s storedFaults) Create(_ context.Context, name string) (*v1alpha1.NodeFault, error) {
	var made *v1alpha1.NodeFault
	err := s.write("create", func() error {
		s.uids++
		made = &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("f" + strconv.Itoa(s.uids))}}
		s.stamp(&made.ObjectMeta)
		s.faults[name] = made.DeepCopy()
		return nil
	})
	return made, err
}

func (s storedFaults) change(f *v1alpha1.NodeFault, what string, do func(there *v1alpha1.NodeFault)) error {
	return s.write(what, func() error {
		there := s.faults[f.Name]
		if there == nil || there.ResourceVersion != f.ResourceVersion {
			return conflict("nodefaults", f.Name)
		}
		do(there)
		s.stamp(&there.ObjectMeta)
		*f = *there.DeepCopy()
		return nil
	})
}

func (s storedFaults) WriteStatus(_ context.Context, _, after *v1alpha1.NodeFault) error {
	status := after.Status.DeepCopy()
	if from := s.faults[after.Name]; from != nil && from.ResourceVersion == after.ResourceVersion && !nodefault.CanTransition(from.Status.Phase, status.Phase) {
		s.Fatalf("node %q passes from %q to %q", after.Name, from.Status.Phase, status.Phase)
	}
	return s.change(after, "status", func(there *v1alpha1.NodeFault) { there.Status = *status })
}

func (s storedFaults) KeepOnlyFaults(_ context.Context, f *v1alpha1.NodeFault, keep []v1alpha1.Fault) error {
	return s.change(f, "faults", func(there *v1alpha1.NodeFault) {
		there.Spec.Faults = keep
		there.Generation++
	})
}

func (s storedFaults) Delete(_ context.Context, f *v1alpha1.NodeFault) error {
	return s.change(f, "delete", func(there *v1alpha1.NodeFault) { delete(s.faults, there.Name) })
}

// drains evicts one pod at each step, once the drain is recorded.
type drains struct{ *fixture }

func (d drains) Step(_ context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error) {
	tell := func(action string) {
		nodefault.AppendRecordOnceAndTrim(st, nodefault.NewRecord(st, changeevent.SourceNodeDrainer, action, "", now))
	}
	switch {
	case st.DesiredActions == nil || !st.DesiredActions.Drain:
		d.Cancel(st, "", now)
	case st.DesiredActions.DryRun:
		r := nodefault.NewRecord(st, changeevent.SourceNodeDrainer, changeevent.ActionDrainStarted, "", now)
		r.DryRun = true
		nodefault.AppendRecordOnceAndTrim(st, r)
	case (st.Drain == nil || st.Drain.State == v1alpha1.DrainCancelled) && d.pods[node.Name] == 0:
		st.Drain = &v1alpha1.DrainStatus{State: v1alpha1.DrainCompleted, StartedAt: metav1.NewTime(now), Deadline: metav1.NewTime(now.Add(time.Hour))}
		tell(changeevent.ActionDrainCompleted)
	case st.Drain == nil || st.Drain.State == v1alpha1.DrainCancelled:
		st.Drain = &v1alpha1.DrainStatus{State: v1alpha1.DrainRunning, StartedAt: metav1.NewTime(now), Deadline: metav1.NewTime(now.Add(time.Hour))}
		tell(changeevent.ActionDrainStarted)
	case st.Drain.State != v1alpha1.DrainRunning:
	case d.pods[node.Name] > 0:
		if stored := d.faults[node.Name].Status.Drain; stored == nil || !node.Spec.Unschedulable {
			d.Fatalf("a pod of node %q is evicted, and that is not written down, or the node takes others", node.Name)
		}
		d.pods[node.Name]--
		return time.Second, nil
	default:
		st.Drain.State = v1alpha1.DrainCompleted
		tell(changeevent.ActionDrainCompleted)
	}
	return 0, nil
}

func (drains) Cancel(st *v1alpha1.NodeFaultStatus, _ string, now time.Time) {
	if st.Drain != nil && st.Drain.State == v1alpha1.DrainRunning {
		st.Drain.State = v1alpha1.DrainCancelled
		nodefault.AppendRecordOnceAndTrim(st, nodefault.NewRecord(st, changeevent.SourceNodeDrainer, changeevent.ActionDrainCancelled, "", now))
	}
}

func (drains) ProgressOrWaitMessage(*v1alpha1.NodeFaultStatus) string { return "" }

// repairs reboots a drained node.
type repairs struct{ *fixture }

func (r repairs) Step(_ context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error) {
	switch m := st.Remediation; {
	case node == nil:
	case m == nil && st.DesiredActions != nil && len(st.DesiredActions.Remedies) > 0 && st.Drain != nil && st.Drain.State == v1alpha1.DrainCompleted:
		if r.pods[node.Name] > 0 {
			r.Fatalf("node %q is to be rebooted with %d pods", node.Name, r.pods[node.Name])
		}
		st.Remediation = &v1alpha1.RemediationStatus{State: v1alpha1.RemedyRunning, Action: v1alpha1.RemedyReboot, Attempt: 1, StartedAt: metav1.NewTime(now), Deadline: metav1.NewTime(now)}
		nodefault.AppendRecordOnceAndTrim(st, nodefault.NewRecord(st, changeevent.SourceFaultRemediation, changeevent.ActionRebootRequested, "1", now))
	case m != nil && m.State == v1alpha1.RemedyRunning:
		r.reboots[node.Name] = true
		m.State = v1alpha1.RemedySucceeded
		nodefault.AppendRecordOnceAndTrim(st, nodefault.NewRecord(st, changeevent.SourceJanitor, changeevent.ActionRebootExecuted, "1", now))
	}
	return 0, nil
}

func (repairs) RecordJanitorActions(context.Context, *corev1.Node, *v1alpha1.NodeFaultStatus) error {
	return nil
}

func (repairs) Cancel(_ context.Context, st *v1alpha1.NodeFaultStatus, _ string, _ time.Time) error {
	if st.Remediation != nil && st.Remediation.State == v1alpha1.RemedyRunning {
		st.Remediation.State = v1alpha1.RemedyFailed
	}
	return nil
}

func (repairs) BlocksRelease(st *v1alpha1.NodeFaultStatus) bool {
	return st.Remediation != nil && st.Remediation.State == v1alpha1.RemedyRunning
}

// newReconciler returns a new operator.
func (w *fixture) newReconciler(b budget.Config, dryRun bool) *reconciler {
	w.Helper()
	all := func() []*corev1.Node {
		var list []*corev1.Node
		for _, n := range w.nodes {
			list = append(list, n)
		}
		return list
	}
	allowance, err := budget.New(b, all, nil)
	if err != nil {
		w.Fatalf("%v", err)
	}
	set, err := rules.Compile(rules.Defaults())
	if err != nil {
		w.Fatalf("%v", err)
	}
	counted, err := newMetrics(prometheus.NewRegistry(), emptyLister{})
	if err != nil {
		w.Fatalf("%v", err)
	}
	return &reconciler{
		cfg: Config{TTL: 24 * time.Hour}, nodes: storedNodes{w}, faults: storedFaults{w}, rules: set,
		quarantine: quarantine.New(quarantine.Config{HealthyFor: healthyFor, DryRun: dryRun}, allowance), drain: drains{w}, remedy: repairs{w},
		enrollSinks:      func(*v1alpha1.NodeFaultStatus, time.Time) {},
		hasStartedAction: func(context.Context, string) (bool, error) { return false, nil },
		metrics:          counted, log: slog.New(slog.DiscardHandler), now: func() time.Time { return w.now },
	}
}

// look reconciles a node once, and reports whether the process is alive.
func (w *fixture) look(r *reconciler, node string) (again time.Duration, lives bool) {
	w.Helper()
	w.now = w.now.Add(time.Millisecond) // no two reconciles have the same time
	got, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
	if err != nil && !errors.Is(err, errDied) {
		w.Fatalf("look at node %q: %v", node, err)
	}
	return got.RequeueAfter, err == nil
}

// settle reconciles all nodes until nothing more is due soon.
func (w *fixture) settle(r *reconciler) {
	w.Helper()
	for range 200 {
		writes := len(w.writes)
		for _, name := range w.names() {
			if again, _ := w.look(r, name); again > 0 && again <= time.Second {
				writes = -1
			}
		}
		w.now = w.now.Add(time.Second)
		if writes == len(w.writes) {
			return
		}
	}
	w.Fatalf("it never comes to rest")
}

// names returns the names of all nodes and NodeFaults.
func (w *fixture) names() []string {
	var all []string
	for name := range w.nodes {
		all = append(all, name)
	}
	for name := range w.faults {
		if w.nodes[name] == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// told returns the recorded actions of a node.
func (w *fixture) told(node string) []string {
	var all []string
	if f := w.faults[node]; f != nil {
		for _, r := range f.Status.History {
			all = append(all, r.Action)
		}
	}
	return all
}

// phase returns the phase of the faulty node.
func (w *fixture) phase() v1alpha1.Phase {
	if f := w.faults[sick]; f != nil {
		return f.Status.Phase
	}
	return ""
}

func nodeName(i int) string { return fmt.Sprintf("node-%02d", i) }
