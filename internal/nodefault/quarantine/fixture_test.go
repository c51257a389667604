package quarantine_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
	"github.com/fleetloop/fleetloop/internal/nodefault/rules"
)

const (
	healthyFor  = 5 * time.Minute
	overrideTTL = 24 * time.Hour
)

// A tester is implemented by *testing.T and by rapid.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// testRules match faults by the name of their check.
func testRules(t tester) *rules.Set {
	no, yes := false, true
	s, err := rules.Compile(rules.Config{
		{Name: "cordon", Match: `fault.check.startsWith("cordon")`, Cordon: &yes},
		{Name: "taint", Match: `fault.check == "taint"`, Cordon: &no, Taints: []string{"sick=gpu:NoSchedule"}},
		{Name: "both", Match: `fault.check == "both"`, Taints: []string{"sick=gpu:NoSchedule", "worse:NoExecute"}, Drain: &yes},
		{Name: "support", Match: `fault.check == "support"`, Cordon: &no, Remedies: []v1alpha1.Remedy{v1alpha1.RemedySupport}},
		{Name: "slow", Match: `fault.check == "slow"`, For: time.Minute},
		{Name: "dry", Match: `fault.check == "dry"`, DryRun: true},
		{Name: "broken", Match: `fault.check == "broken" && fault.errorCodes[0] == "x"`},
	})
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	return s
}

// A fixture holds one node with its NodeFault in an API server, and simulates people.
type fixture struct {
	t     tester
	now   time.Time
	rules *rules.Set
	cfg   quarantine.Config

	node    *corev1.Node // nil if it does not exist
	faults  []v1alpha1.Fault
	status  v1alpha1.NodeFaultStatus
	denial  string
	busy    bool
	version int
	uids    int

	reserved, undone int
	judge            func(before, after *corev1.Node) // called for each write of the controller
}

func newFixture(t tester) *fixture {
	w := &fixture{t: t, now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), rules: testRules(t)}
	w.cfg = quarantine.Config{HealthyFor: healthyFor, OverrideTTL: overrideTTL}
	w.join()
	return w
}

// Reserve implements the budget.
func (w *fixture) Reserve(*corev1.Node, time.Time) (release func(), denial string) {
	if w.denial != "" {
		return nil, w.denial
	}
	w.reserved++
	return func() { w.undone++ }, ""
}

func (*fixture) LimitOf(*corev1.Node) *v1alpha1.PoolBudget { return nil }

// join adds a node with the name.
func (w *fixture) join() {
	w.uids++
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "gpu-1", UID: types.UID("uid-" + strconv.Itoa(w.uids)), Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	w.stamp()
}

func (w *fixture) stamp() {
	w.version++
	w.node.ResourceVersion = strconv.Itoa(w.version)
}

// edit changes the node as a manager. Changes of the cordon update the managed fields,
// like in the API server.
func (w *fixture) edit(manager string, change func(n *corev1.Node)) {
	w.t.Helper()
	was := w.node.Spec.Unschedulable
	change(w.node)
	switch is := w.node.Spec.Unschedulable; {
	case was && !is:
		w.node.ManagedFields = nil
	case !was && is:
		w.node.ManagedFields = []metav1.ManagedFieldsEntry{manages(manager, metav1.ManagedFieldsOperationUpdate, w.now)}
	}
	w.stamp()
}

func manages(manager string, how metav1.ManagedFieldsOperationType, at time.Time) metav1.ManagedFieldsEntry {
	when := metav1.NewTime(at)
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: how, APIVersion: "v1", FieldsType: "FieldsV1", Time: &when,
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{}}},"f:spec":{"f:unschedulable":{}}}`),
	}
}

func (w *fixture) cordon() {
	w.edit("kubectl-cordon", func(n *corev1.Node) { n.Spec.Unschedulable = true })
}

func (w *fixture) uncordon() {
	w.edit("kubectl-cordon", func(n *corev1.Node) { n.Spec.Unschedulable = false })
}

// forgetManagers clears the managed fields.
func (w *fixture) forgetManagers() {
	w.edit("kubectl-patch", func(n *corev1.Node) { n.ManagedFields = nil })
}

// apply declares the cordon with server-side apply, also if the node is already cordoned.
func (w *fixture) apply() {
	w.cordon()
	w.node.ManagedFields = append(w.node.ManagedFields, manages("gitops", metav1.ManagedFieldsOperationApply, w.now))
}

func (w *fixture) annotate(key, value string) {
	w.edit("kubectl-annotate", func(n *corev1.Node) {
		if value == "" {
			delete(n.Annotations, key)
			return
		}
		n.Annotations[key] = value
	})
}

func (w *fixture) label(key, value string) {
	w.edit("kubectl-label", func(n *corev1.Node) {
		if value == "" {
			delete(n.Labels, key)
			return
		}
		n.Labels[key] = value
	})
}

func (w *fixture) untaint(key string) {
	w.edit("kubectl-taint", func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	})
}

func (w *fixture) taint(text string) {
	w.edit("kubectl-taint", func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, parseTaint(text)) })
}

func parseTaint(text string) corev1.Taint {
	name, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(name, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}

func (w *fixture) fault(checks ...string) {
	for _, check := range checks {
		w.faults = append(w.faults, v1alpha1.Fault{
			Source: "agent", Check: check, ErrorCodes: []string{"E-" + check}, Fatal: true, Message: check + " failed", DetectedAt: metav1.NewMicroTime(w.now),
		})
	}
}

func (w *fixture) heal(checks ...string) {
	w.faults = slices.DeleteFunc(w.faults, func(f v1alpha1.Fault) bool {
		return len(checks) == 0 || slices.Contains(checks, f.Check)
	})
}

// The results of a step.
type fate int

const (
	works      fate = iota
	crashes         // after the Node was written, before the status was
	conflicts       // another client has written the Node in between
	unanswered      // the Node was written, and the response was lost
)

// step makes a step of the controller with a node, which may be outdated, and writes the
// result.
func (w *fixture) step(seen *corev1.Node, what fate) quarantine.Step {
	w.t.Helper()
	w.now = w.now.Add(time.Millisecond) // no two steps have the same time
	before := w.status.DeepCopy()
	verdict, _ := w.rules.Decide(seen, w.faults, w.now)
	look := quarantine.StepInput{
		Now: w.now, Node: seen.DeepCopy(), Status: w.status.DeepCopy(), Verdict: verdict, Faults: w.faults, Busy: w.busy,
	}
	s, err := quarantine.New(w.cfg, w).Step(look)
	if err != nil {
		w.t.Fatalf("step: %v", err)
	}
	if s.Settle == nil || s.Undo == nil || s.Why == "" || s.Message == "" {
		w.t.Fatalf("the step lacks something: %+v", s)
	}
	if s.Node != nil {
		if what == conflicts || w.node == nil || s.Node.ResourceVersion != w.node.ResourceVersion || s.Node.UID != w.node.UID {
			s.Undo()
			return s
		}
		if w.judge != nil {
			w.judge(w.node, s.Node)
		}
		after := s.Node.DeepCopy()
		w.edit(v1alpha1.FieldManager, func(n *corev1.Node) {
			if len(n.ManagedFields) == 0 {
				n.ManagedFields = after.ManagedFields
			}
			n.Spec, n.Labels, n.Annotations = after.Spec, after.Labels, after.Annotations
		})
		if what == crashes || what == unanswered {
			if what == unanswered {
				s.Undo()
			}
			w.status = *before
			return s
		}
	}
	if what == crashes {
		return s
	}
	next := w.status.DeepCopy()
	s.Settle(next)
	next.Phase = phaseOf(s.Why)
	w.status = *next
	return s
}

// phaseOf returns the phase for the label.
func phaseOf(why quarantine.Situation) v1alpha1.Phase {
	switch why {
	case quarantine.Ours, quarantine.Foreign:
		return v1alpha1.PhaseQuarantined
	case quarantine.Recovering:
		return v1alpha1.PhaseRecovering
	case quarantine.Held:
		return v1alpha1.PhaseHeld
	case quarantine.Observing, quarantine.Denied, quarantine.DryRun, quarantine.Overridden, quarantine.Released, quarantine.OptedOut, quarantine.Gone:
	}
	return ""
}

// settle makes steps of the controller until it waits.
func (w *fixture) settle() quarantine.Step {
	w.t.Helper()
	for range 20 {
		s := w.step(w.node, works)
		if s.Node == nil && s.After != quarantine.AtOnce {
			return s
		}
	}
	w.t.Fatalf("the controller does not come to rest: %+v", w.status)
	return quarantine.Step{}
}

func (w *fixture) pass(d time.Duration) { w.now = w.now.Add(d) }

// told returns the recorded actions in order.
func (w *fixture) told() []string {
	var actions []string
	for _, r := range w.status.History {
		action := r.Action
		if r.DryRun {
			action = "dry-run " + action
		}
		actions = append(actions, action)
	}
	return actions
}

// on describes the changes on the node.
func (w *fixture) on() []string {
	var words []string
	if w.node.Spec.Unschedulable {
		words = append(words, "cordoned")
	}
	for _, t := range w.node.Spec.Taints {
		words = append(words, t.ToString())
	}
	for _, a := range []struct{ key, word string }{
		{v1alpha1.AnnotationOwned, "owned"},
		{v1alpha1.AnnotationReleased, "released"},
		{v1alpha1.AnnotationOverridden, "overridden"},
	} {
		if _, there := w.node.Annotations[a.key]; there {
			words = append(words, a.word)
		}
	}
	if state := w.node.Labels[v1alpha1.LabelPhase]; state != "" {
		words = append(words, fmt.Sprint("state=", state))
	}
	return words
}
