package operator

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// TestNothingWithoutLeave holds that no sequence of edits, faults and changes of
// the world leads to an effect without a valid approval of that plan, to two effects
// of one execution, to two at a time on one target, or to a transition that there is not.
func TestNothingWithoutLeave(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{t: t, w: newWorld(), seen: map[string][]v1alpha1.Phase{}}
		m.w.approval = rapid.Bool().Draw(t, "approval")
		m.restart()
		t.Repeat(m.actions())
	})
}

// A machine is a world in which anything can happen.
type machine struct {
	t      *rapid.T
	w      *world
	r      *reconciler
	names  []string
	seen   map[string][]v1alpha1.Phase
	faults int
}

func (m *machine) restart() {
	m.r = m.w.newReconciler(Config{Audited: true})
	m.w.fault = func(string, bool) error {
		if m.faults--; m.faults == 0 {
			return errCrash
		}
		return nil
	}
}

func (m *machine) pick(t *rapid.T) string {
	if len(m.names) == 0 {
		t.Skip("there is none yet")
	}
	return rapid.SampledFrom(m.names).Draw(t, "name")
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
			w.create(name, rapid.SampledFrom([]string{"web", "api"}).Draw(t, "target"), nil)
			m.names = append(m.names, name)
		},
		"look": func(t *rapid.T) { m.look(t, 0) },
		"look and be killed": func(t *rapid.T) {
			m.look(t, rapid.IntRange(1, 12).Draw(t, "writes"))
			m.restart()
		},
		"restart": func(*rapid.T) { m.restart() },
		"approve": edit(func(t *rapid.T, ke *v1alpha1.KubernetesExecution) {
			hash := "another"
			if ke.Status.Plan != nil && rapid.IntRange(0, 3).Draw(t, "right") > 0 {
				hash = ke.Status.Plan.Hash
			}
			by := rapid.SampledFrom([]string{"alice", "bob", "carol"}).Draw(t, "by")
			if !slices.ContainsFunc(ke.Spec.Approvals, func(a v1alpha1.Approval) bool { return a.Approver == by }) {
				ke.Spec.Approvals = append(ke.Spec.Approvals, v1alpha1.Approval{Approver: by, Decision: v1alpha1.Approve, PlanHash: hash})
			}
		}),
		"cancel":        edit(func(_ *rapid.T, ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true }),
		"finalize":      edit(func(_ *rapid.T, ke *v1alpha1.KubernetesExecution) { ke.Spec.Finalize = true }),
		"end":           m.end,
		"delete job":    m.deleteJob,
		"change target": func(t *rapid.T) { w.targets[rapid.SampledFrom([]string{"web", "api"}).Draw(t, "target")]++ },
		"change policy": func(*rapid.T) { w.policy += "x" },
		"time passes": func(t *rapid.T) {
			w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{1, 60, 400, 4000}).Draw(t, "seconds")) * time.Second)
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
	_, err := m.w.reconcile(m.r, name)
	m.faults = -1
	if err != nil && !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	for _, e := range m.w.effects[before:] {
		m.allowed(t, e)
	}
}

// allowed holds an effect to what it takes.
func (m *machine) allowed(t *rapid.T, e effect) {
	if e.needed {
		if m.w.guard != nil {
			t.Fatalf("%s began while the guard is missing", e.execution)
		}
		if !slices.ContainsFunc(e.approvals, func(a v1alpha1.Approval) bool {
			return a.Decision == v1alpha1.Approve && a.PlanHash == e.plan.Hash && a.Approver != e.requester
		}) {
			t.Fatalf("%s began without an approval of its plan %s: %+v", e.execution, e.plan.Hash, e.approvals)
		}
	}
	if want := fmt.Sprintf(`{"replicas":%d}`, m.w.targets[e.plan.Target.Name]); string(e.plan.Before.Raw) != want {
		t.Fatalf("%s began with a plan for %s, and there is %s", e.execution, e.plan.Before.Raw, want)
	}
	if e.plan.PolicyHash != m.w.policy {
		t.Fatalf("%s began with a plan by the policies before", e.execution)
	}
}

func (m *machine) end(t *rapid.T) {
	name := m.pick(t)
	j := m.w.jobs[runName(m.w.get(name))]
	if j == nil || len(j.Status.Conditions) > 0 {
		t.Skip("nothing runs")
	}
	m.w.end(name, rapid.SampledFrom([]action.Code{action.CodeOK, action.CodeOK, action.CodeGuard, action.CodePartial}).Draw(t, "code"))
}

func (m *machine) deleteJob(t *rapid.T) {
	name := m.pick(t)
	j := m.w.jobs[runName(m.w.get(name))]
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
			if !execution.CanPass(from, p) {
				t.Fatalf("%s passed from %q to %q", name, from, p)
			}
			from = p
		}
		m.seen[name] = got
		j := m.w.jobs[runName(ke)]
		if j == nil || len(j.Status.Conditions) > 0 || j.Spec.Suspend != nil {
			continue
		}
		if execution.Ended(from) {
			t.Fatalf("%s is %s (%s), and its Job runs", name, from, ke.Status.ReasonDetail)
		}
		target := string(ke.Spec.Parameters.Raw)
		if other := busy[target]; other != "" {
			t.Fatalf("%s and %s act on one target at a time", other, name)
		}
		busy[target] = name
	}
}
