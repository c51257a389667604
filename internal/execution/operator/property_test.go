package operator

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// TestNothingWithoutLeave verifies invariants for random edits, faults and changes. Without a valid
// approval of its plan, an execution has no effect. No execution has two effects, no target has two
// concurrent ones, and every transition is allowed. At the end, no execution holds a gate slot or a
// finalizer.
func TestNothingWithoutLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // an action waits between its requests
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			m := &machine{t: t, w: newFixture(), seen: map[string][]v1alpha1.Phase{}}
			m.w.approval = rapid.Bool().Draw(t, "approval")
			m.w.window = rapid.SampledFrom([]time.Duration{0, 5 * time.Minute}).Draw(t, "window")
			m.restart()
			t.Repeat(m.actions())
			m.calm(t)
		})
	})
}

// A machine is a fixture in which anything can happen.
type machine struct {
	t       *rapid.T
	w       *fixture
	r       *reconciler
	a       *auditReconciler
	mirror  *mirror
	names   []string
	seen    map[string][]v1alpha1.Phase
	faults  int  // after so many there is one
	deadly  bool // it is a death, and not an answer that is lost or a request that fails
	changes int  // of targets, by others
	acts    int  // that were looked at
}

func (m *machine) restart() {
	m.r = m.w.newReconciler(inline())
	m.a = &auditReconciler{executions: storedExecutions{m.w}, auditor: recorder{}, log: m.r.log, now: m.r.now}
	m.mirror = newMirror(m.w)
	m.r.writer.executions = m.mirror
	m.w.fault = func(string, bool) error {
		if m.faults--; m.faults == 0 {
			if m.deadly {
				panic(errCrash)
			}
			return errCrash
		}
		return nil
	}
}

// pick gives one of the executions that there are.
func (m *machine) pick(t *rapid.T) string {
	there := slices.DeleteFunc(slices.Clone(m.names), func(name string) bool { return m.w.get(name) == nil })
	if len(there) == 0 {
		t.Skip("there is none")
	}
	return rapid.SampledFrom(there).Draw(t, "name")
}

func (m *machine) actions() map[string]func(*rapid.T) {
	w := m.w
	edit := func(do func(t *rapid.T, ke *v1alpha1.KubernetesExecution)) func(*rapid.T) {
		return func(t *rapid.T) {
			name := m.pick(t)
			w.edit(name, func(ke *v1alpha1.KubernetesExecution) { do(t, ke) })
		}
	}
	return map[string]func(*rapid.T){
		"": func(t *rapid.T) { m.check(t) },
		"create": func(t *rapid.T) {
			if len(m.names) == 4 {
				t.Skip("enough")
			}
			name := fmt.Sprintf("e%d", len(m.names))
			mode := rapid.SampledFrom([]func(*v1alpha1.KubernetesExecution){nil, asksInline}).Draw(t, "mode")
			w.create(name, rapid.SampledFrom([]string{"web", "api"}).Draw(t, "target"), mode)
			m.names = append(m.names, name)
		},
		"look": func(t *rapid.T) { m.look(t, 0) },
		"look behind": func(t *rapid.T) {
			m.mirror.lag = rapid.IntRange(1, 3).Draw(t, "lag")
			defer func() { m.mirror.lag = 0 }()
			m.look(t, 0)
		},
		"look in trouble": func(t *rapid.T) { m.look(t, rapid.IntRange(1, 12).Draw(t, "writes")) },
		"look and be killed": func(t *rapid.T) {
			m.deadly = rapid.Bool().Draw(t, "at once")
			defer func() { m.deadly = false }()
			m.look(t, rapid.IntRange(1, 12).Draw(t, "writes"))
			m.restart()
		},
		"audit":  func(t *rapid.T) { m.audit(t, m.pick(t)) },
		"delete": func(t *rapid.T) { w.remove(m.pick(t)) },
		"away": func(t *rapid.T) {
			w.away = nil
			if rapid.Bool().Draw(t, "away") {
				w.away = errors.New("no token")
			}
		},
		"restart": func(*rapid.T) { m.restart() },
		"approve": edit(func(t *rapid.T, ke *v1alpha1.KubernetesExecution) {
			hash := "another"
			if ke.Status.Plan != nil && rapid.IntRange(0, 3).Draw(t, "right") > 0 {
				hash = ke.Status.Plan.Hash
			}
			by := rapid.SampledFrom([]string{"alice", "bob", "carol"}).Draw(t, "by")
			if !slices.ContainsFunc(ke.Spec.Approvals, func(a v1alpha1.Approval) bool { return a.Approver == by && a.PlanHash == hash }) {
				ke.Spec.Approvals = slices.DeleteFunc(ke.Spec.Approvals, func(a v1alpha1.Approval) bool { return a.Approver == by })
				ke.Spec.Approvals = append(ke.Spec.Approvals, v1alpha1.Approval{Approver: by, Decision: v1alpha1.Approve, PlanHash: hash})
			}
		}),
		"cancel":     edit(func(_ *rapid.T, ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true }),
		"finalize":   edit(func(_ *rapid.T, ke *v1alpha1.KubernetesExecution) { ke.Spec.Finalize = true }),
		"end":        m.end,
		"delete job": m.deleteJob,
		"change target": func(t *rapid.T) {
			m.changes++ // to what it never was: what somebody takes back was not done, for all that can be seen
			w.targets[rapid.SampledFrom([]string{"web", "api"}).Draw(t, "target")] = 100 + m.changes
		},
		"change policy": func(*rapid.T) { w.policy += "x" },
		"time passes": func(t *rapid.T) {
			w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{1, 60, 400, 4000}).Draw(t, "seconds")) * time.Second)
		},
		"gap of the guard": func(*rapid.T) {
			m.changes++
			w.period.ID = fmt.Sprintf("period-%d", m.changes)
		},
		"guard": func(t *rapid.T) {
			w.guard = nil
			if rapid.Bool().Draw(t, "missing") {
				w.guard = errors.New("missing")
			}
		},
	}
}

func (m *machine) look(t *rapid.T, faults int) {
	name := m.pick(t)
	m.faults = faults
	if faults == 0 {
		m.faults = -1
	}
	before := len(m.w.effects)
	if err := m.reconcile(name); err != nil && !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	m.faults = -1
	for _, e := range m.w.effects[before:] {
		m.allowed(t, e)
	}
	for _, a := range m.w.acts[m.acts:] {
		m.letGo(t, a)
	}
	m.acts = len(m.w.acts)
}

// reconcile is a look that can be the operator's last.
func (m *machine) reconcile(name string) (err error) {
	defer func() {
		switch died := recover(); died {
		case nil:
		case errCrash:
			err = errCrash
		default:
			panic(died)
		}
	}()
	_, err = m.w.reconcile(m.r, name)
	return err
}

func (m *machine) audit(t *rapid.T, name string) {
	m.faults = -1
	if _, err := m.a.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// calm has all be over, and nobody in anybody's way.
func (m *machine) calm(t *rapid.T) {
	m.faults, m.w.guard, m.w.away = -1, nil, nil
	for range 8 {
		m.w.now = m.w.now.Add(time.Minute)
		for _, name := range m.names {
			if ke := m.w.get(name); ke != nil && !ke.Spec.Cancel {
				m.w.edit(name, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel, ke.Spec.Finalize = true, true })
			}
			if err := m.reconcile(name); err != nil {
				t.Fatal(err)
			}
			m.audit(t, name)
		}
		m.check(t)
	}
	for _, name := range m.names {
		if ke := m.w.get(name); ke != nil && (!execution.IsFinal(ke.Status.Phase) || len(ke.Finalizers) > 0) {
			t.Fatalf("%s is %s (%s) with the finalizers %q", name, ke.Status.Phase, ke.Status.Message, ke.Finalizers)
		}
	}
	if s := m.r.slots.gate.Stats(); s.Inside+s.Waiting != 0 {
		t.Fatalf("%d are inside and %d wait, and all have ended", s.Inside, s.Waiting)
	}
}

// letGo holds an act to what it takes: it is stored that this plan is executed.
func (m *machine) letGo(t *rapid.T, a act) {
	s := a.by.Status
	if s.Phase != v1alpha1.PhaseExecuting || s.ExecutionResults.EndTime != nil || a.by.Spec.Cancel && m.mirror.lag == 0 {
		t.Fatalf("%s acts, and is %s, cancelled: %t, with %+v", a.execution, s.Phase, a.by.Spec.Cancel, s.ExecutionResults)
	}
	if !slices.ContainsFunc(m.w.effects, func(e effect) bool { return e.execution == a.execution && e.plan.Hash == s.Plan.Hash }) {
		t.Fatalf("%s acts by the plan %s, which was not let go", a.execution, s.Plan.Hash)
	}
}

// allowed holds an effect to what it takes.
func (m *machine) allowed(t *rapid.T, e effect) {
	if e.needed {
		if e.unguarded {
			t.Fatalf("%s began by an approval that was counted without the guard", e.execution)
		}
		if !slices.ContainsFunc(e.approvals, func(a v1alpha1.Approval) bool {
			return a.Decision == v1alpha1.Approve && a.PlanHash == e.plan.Hash && a.Approver != e.requester
		}) {
			t.Fatalf("%s began without an approval of its plan %s: %+v", e.execution, e.plan.Hash, e.approvals)
		}
		if e.plan.AdmissionPolicyPeriod != m.w.period.ID {
			t.Fatalf("%s began with an approval from before a gap of the guard", e.execution)
		}
	}
	if want := fmt.Sprintf(`{"replicas":%d}`, e.replicas); string(e.plan.Before.Raw) != want {
		t.Fatalf("%s began with a plan for %s, and there is %s", e.execution, e.plan.Before.Raw, want)
	}
	if e.plan.PolicyHash != e.policy {
		t.Fatalf("%s began with a plan by the policies before", e.execution)
	}
}

func (m *machine) end(t *rapid.T) {
	name := m.pick(t)
	j := m.w.jobs[actionJobName(m.w.get(name))]
	if j == nil || len(j.Status.Conditions) > 0 {
		t.Skip("nothing runs")
	}
	m.w.end(name, rapid.SampledFrom([]action.Code{action.CodeOK, action.CodeOK, action.CodeGuard, action.CodePartial}).Draw(t, "code"))
}

func (m *machine) deleteJob(t *rapid.T) {
	name := m.pick(t)
	j := m.w.jobs[actionJobName(m.w.get(name))]
	// Of a Job whose operator was killed before it wrote that it runs nobody else
	// knows: it is looked at first.
	if j == nil || m.w.get(name).Status.ExecutionResults == nil {
		t.Skip("nothing runs that is known")
	}
	delete(m.w.jobs, j.Name)
}

// check holds what is always so.
func (m *machine) check(t *rapid.T) {
	count := map[string]int{}
	for _, e := range m.w.effects {
		if count[string(e.execution)]++; count[string(e.execution)] > 1 {
			t.Fatalf("%s began twice", e.execution)
		}
	}
	acts := map[types.UID]int{}
	for _, a := range m.w.acts {
		if acts[a.execution]++; acts[a.execution] > 1 {
			t.Fatalf("%s acted twice", a.execution)
		}
	}
	busy := map[string]string{}
	for _, name := range m.names {
		ke := m.w.get(name)
		if ke == nil {
			continue
		}
		got := phases(ke)
		before := m.seen[name]
		if len(got) < len(before) || !slices.Equal(got[:len(before)], before) {
			t.Fatalf("%s went from %v to %v", name, before, got)
		}
		from := v1alpha1.PhaseNew
		for _, p := range got {
			if !execution.CanTransition(from, p) {
				t.Fatalf("%s passed from %q to %q", name, from, p)
			}
			from = p
		}
		m.seen[name] = got
		if !m.acting(ke) {
			continue
		}
		if execution.IsFinal(from) {
			t.Fatalf("%s is %s (%s), and its Job runs", name, from, ke.Status.ReasonDetail)
		}
		target := string(ke.Spec.Parameters.Raw)
		if other := busy[target]; other != "" {
			t.Fatalf("%s and %s act on one target at a time", other, name)
		}
		busy[target] = name
	}
}

// acting says whether an execution may be changing its target.
func (m *machine) acting(ke *v1alpha1.KubernetesExecution) bool {
	if results := ke.Status.ExecutionResults; results != nil && results.Mode == v1alpha1.ExecuteInline {
		// What somebody deletes is heard for a while, and then neither done nor waited for.
		return ke.Status.Phase == v1alpha1.PhaseExecuting && results.EndTime == nil && (ke.DeletionTimestamp.IsZero() || mayStillReportResult(ke, m.w.now))
	}
	j := m.w.jobs[actionJobName(ke)]
	return j != nil && len(j.Status.Conditions) == 0 && j.Spec.Suspend == nil
}
