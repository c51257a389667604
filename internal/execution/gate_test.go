package execution_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// start is when all tests begin.
func startGate() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func newGate(tb testing.TB, cfg execution.GateConfig) *execution.Gate {
	tb.Helper()
	g, err := execution.NewGate(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func newClaim(name, target string) execution.Claim {
	return execution.Claim{
		UID: types.UID("uid-" + name), Key: types.NamespacedName{Namespace: "executor", Name: name},
		Action: "scale_deployment", Target: target, TargetNamespace: "shop", Created: startGate(),
	}
}

func wantIn(tb testing.TB, v execution.GateVerdict) {
	tb.Helper()
	if diff := cmp.Diff(execution.GateVerdict{In: true}, v); diff != "" {
		tb.Fatalf("not let in (-want +got):\n%s", diff)
	}
}

func wantHeld(tb testing.TB, v execution.GateVerdict, detail v1alpha1.Detail) {
	tb.Helper()
	if v.In || v.Failed || v.Detail != detail || v.Message == "" || v.After <= 0 {
		tb.Fatalf("want held up by %s, got %+v", detail, v)
	}
}

func wantFailed(tb testing.TB, v execution.GateVerdict, detail v1alpha1.Detail) {
	tb.Helper()
	if v.In || !v.Failed || v.Detail != detail || v.Message == "" {
		tb.Fatalf("want failed by %s, got %+v", detail, v)
	}
}

// woken hears who is woken.
func woken(g *execution.Gate) func() []string {
	var names []string
	g.OnWake(func(k types.NamespacedName) { names = append(names, k.Name) })
	return func() []string {
		n := names
		names = nil
		return n
	}
}

func TestOneAtATimeForATarget(t *testing.T) {
	g := newGate(t, execution.GateConfig{})
	told := woken(g)
	now := startGate()
	a, b, c := newClaim("a", "Deployment.apps/shop/web"), newClaim("b", "Deployment.apps/shop/web"), newClaim("c", "Deployment.apps/shop/web")
	wantIn(t, g.EnterOrQueue(a, now))
	wantIn(t, g.EnterOrQueue(a, now))
	wantHeld(t, g.EnterOrQueue(b, now), v1alpha1.DetailTargetBusy)
	c.Rollback = true
	wantHeld(t, g.EnterOrQueue(c, now.Add(time.Second)), v1alpha1.DetailTargetBusy)
	g.Leave(a.UID, v1alpha1.OutcomeSucceeded, now)
	if diff := cmp.Diff([]string{"c"}, told()); diff != "" {
		t.Errorf("woken: the rollback goes first (-want +got):\n%s", diff)
	}
	wantHeld(t, g.EnterOrQueue(b, now), v1alpha1.DetailTargetBusy)
	wantIn(t, g.EnterOrQueue(c, now))
	g.Forget(c.UID)
	if diff := cmp.Diff([]string{"b"}, told()); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	wantIn(t, g.EnterOrQueue(b, now))
}

func TestNobodyIsOvertaken(t *testing.T) {
	g := newGate(t, execution.GateConfig{MaxConcurrent: 1})
	told := woken(g)
	now := startGate()
	wantIn(t, g.EnterOrQueue(newClaim("a", "1"), now))
	wantHeld(t, g.EnterOrQueue(newClaim("b", "2"), now.Add(1)), v1alpha1.DetailBudgetExceeded)
	g.Leave("uid-a", v1alpha1.OutcomeSucceeded, now.Add(2))
	if diff := cmp.Diff([]string{"b"}, told()); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	wantHeld(t, g.EnterOrQueue(newClaim("c", "3"), now.Add(3)), v1alpha1.DetailBudgetExceeded) // b's place is kept
	wantIn(t, g.EnterOrQueue(newClaim("b", "2"), now.Add(4)))
}

func TestGateBudgets(t *testing.T) {
	node := func(c execution.Claim) execution.Claim {
		c.Node, c.TargetNamespace, c.Action = true, "", "drain_node"
		return c
	}
	now := startGate()
	t.Run("Namespace", func(t *testing.T) {
		g := newGate(t, execution.GateConfig{MaxPerNamespace: 1})
		wantIn(t, g.EnterOrQueue(newClaim("a", "1"), now))
		wantHeld(t, g.EnterOrQueue(newClaim("b", "2"), now), v1alpha1.DetailBudgetExceeded)
		other := newClaim("c", "3")
		other.TargetNamespace = "blog"
		wantIn(t, g.EnterOrQueue(other, now))
		wantIn(t, g.EnterOrQueue(node(newClaim("d", "4")), now))
		g.SetNodeCount(100)
		wantIn(t, g.EnterOrQueue(node(newClaim("e", "5")), now)) // what is outside of namespaces has no such bound
		g.Leave("uid-a", v1alpha1.OutcomeSucceeded, now)
		wantIn(t, g.EnterOrQueue(newClaim("b", "2"), now))
	})
	t.Run("Action", func(t *testing.T) {
		g := newGate(t, execution.GateConfig{MaxPerAction: map[string]int{"scale_deployment": 1}})
		wantIn(t, g.EnterOrQueue(newClaim("a", "1"), now))
		wantHeld(t, g.EnterOrQueue(newClaim("b", "2"), now), v1alpha1.DetailBudgetExceeded)
		other := newClaim("c", "3")
		other.Action = "restart_pod"
		wantIn(t, g.EnterOrQueue(other, now))
	})
	t.Run("NoRequester", func(t *testing.T) {
		g := newGate(t, execution.GateConfig{MaxConcurrent: 10, MaxPerRequester: 4})
		wantIn(t, g.EnterOrQueue(newClaim("a", "a"), now))
		wantIn(t, g.EnterOrQueue(newClaim("b", "b"), now)) // half of what somebody has who is named
		v := g.EnterOrQueue(newClaim("c", "c"), now)
		wantHeld(t, v, v1alpha1.DetailBudgetExceeded)
		if want := "2 executions without a requester are running"; !strings.Contains(v.Message, want) {
			t.Errorf("it says %q, want %q", v.Message, want)
		}
		one := newGate(t, execution.GateConfig{MaxConcurrent: 10, MaxPerRequester: 1})
		wantIn(t, one.EnterOrQueue(newClaim("a", "a"), now))
	})
	t.Run("Requester", func(t *testing.T) {
		g := newGate(t, execution.GateConfig{MaxConcurrent: 3, MaxPerRequester: 2})
		of := func(name, requester string) execution.Claim {
			c := newClaim(name, name)
			c.Requester = requester
			return c
		}
		wantIn(t, g.EnterOrQueue(of("a", "alice"), now))
		wantIn(t, g.EnterOrQueue(of("b", "alice"), now))
		v := g.EnterOrQueue(of("c", "alice"), now)
		if wantHeld(t, v, v1alpha1.DetailBudgetExceeded); !strings.Contains(v.Message, `"alice"`) {
			t.Errorf("%q does not say whose", v.Message)
		}
		wantIn(t, g.EnterOrQueue(of("d", "bob"), now.Add(1))) // he comes later, and has a share of his own
		g.Leave("uid-a", v1alpha1.OutcomeSucceeded, now)
		wantIn(t, g.EnterOrQueue(of("c", "alice"), now))
	})
	t.Run("ReadOnly", func(t *testing.T) {
		g := newGate(t, execution.GateConfig{MaxConcurrent: 1, MaxPerNamespace: 1, MaxPerRequester: 1})
		look := func(name string) execution.Claim {
			c := newClaim(name, "1")
			c.Action, c.ReadOnly = "collect_diagnostics", true
			return c
		}
		wantIn(t, g.EnterOrQueue(look("a"), now))
		wantHeld(t, g.EnterOrQueue(look("b"), now), v1alpha1.DetailBudgetExceeded)
		wantIn(t, g.EnterOrQueue(newClaim("c", "1"), now)) // the same target, namespace and requester
		wantHeld(t, g.EnterOrQueue(newClaim("d", "2"), now), v1alpha1.DetailBudgetExceeded)
		g.Leave("uid-c", v1alpha1.OutcomeSucceeded, now)
		wantIn(t, g.EnterOrQueue(newClaim("d", "2"), now))
		want := execution.InputInFlight{Total: 2, ByAction: map[string]int{"collect_diagnostics": 1, "scale_deployment": 1}, ByNamespace: map[string]int{"shop": 2}, SameTarget: []string{}}
		if diff := cmp.Diff(want, g.InFlight("uid-x")); diff != "" {
			t.Error(diff)
		}
		g.Leave("uid-a", v1alpha1.OutcomeSucceeded, now)
		wantIn(t, g.EnterOrQueue(look("b"), now))
	})
	t.Run("Nodes", func(t *testing.T) {
		g := newGate(t, execution.GateConfig{})
		wantIn(t, g.EnterOrQueue(node(newClaim("a", "n1")), now))
		wantHeld(t, g.EnterOrQueue(node(newClaim("b", "n2")), now), v1alpha1.DetailBudgetExceeded)
		g.SetNodeCount(29)
		wantIn(t, g.EnterOrQueue(node(newClaim("b", "n2")), now))
		wantHeld(t, g.EnterOrQueue(node(newClaim("c", "n3")), now), v1alpha1.DetailBudgetExceeded)
		g.SetCordonedNodes([]string{"n1"})
		g.Leave("uid-a", v1alpha1.OutcomeSucceeded, now)
		wantHeld(t, g.EnterOrQueue(node(newClaim("c", "n3")), now), v1alpha1.DetailBudgetExceeded) // n1 is still cordoned
		back := node(newClaim("d", "n1"))
		wantIn(t, g.EnterOrQueue(back, now)) // and may be acted on
		g.Leave(back.UID, v1alpha1.OutcomeSucceeded, now)
		g.SetCordonedNodes(nil)
		wantIn(t, g.EnterOrQueue(node(newClaim("c", "n3")), now))
	})
}

// TestNodesBetweenTwoLooks: a node that was drained is cordoned before anybody
// who watches nodes says so.
func TestNodesBetweenTwoLooks(t *testing.T) {
	g := newGate(t, execution.GateConfig{})
	now := startGate()
	drain := func(name, node string) execution.Claim {
		c := newClaim(name, node)
		c.Node, c.Action, c.TargetNamespace = true, "drain_node", ""
		return c
	}
	g.SetNodeCount(10)
	g.SetCordonedNodes(nil)
	wantIn(t, g.EnterOrQueue(drain("a", "n1"), now))
	wantHeld(t, g.EnterOrQueue(drain("b", "n2"), now), v1alpha1.DetailBudgetExceeded)
	g.Leave("uid-a", v1alpha1.OutcomeSucceeded, now)
	wantHeld(t, g.EnterOrQueue(drain("b", "n2"), now), v1alpha1.DetailBudgetExceeded)
	g.SetCordonedNodes([]string{"n1"})
	wantHeld(t, g.EnterOrQueue(drain("b", "n2"), now), v1alpha1.DetailBudgetExceeded)
	g.SetCordonedNodes(nil)
	g.SetCordonedNodes([]string{"n3"}) // while b's place is kept
	wantHeld(t, g.EnterOrQueue(drain("b", "n2"), now), v1alpha1.DetailBudgetExceeded)
	g.SetCordonedNodes(nil)
	wantIn(t, g.EnterOrQueue(drain("b", "n2"), now))
}

func TestCooldown(t *testing.T) {
	g := newGate(t, execution.GateConfig{Cooldown: time.Minute})
	now := startGate()
	wantIn(t, g.EnterOrQueue(newClaim("a", "1"), now))
	g.Leave("uid-a", v1alpha1.OutcomeSucceeded, now)
	v := g.EnterOrQueue(newClaim("b", "1"), now.Add(20*time.Second))
	wantHeld(t, v, v1alpha1.DetailCooldown)
	if v.After != 40*time.Second {
		t.Errorf("ask again after %s, want 40s", v.After)
	}
	other, back := newClaim("c", "1"), newClaim("d", "1")
	other.Action = "rollout_restart"
	wantHeld(t, g.EnterOrQueue(other, now.Add(21*time.Second)), v1alpha1.DetailTargetBusy)
	back.Rollback = true
	wantIn(t, g.EnterOrQueue(back, now.Add(22*time.Second)))
	g.Forget(back.UID)
	wantHeld(t, g.EnterOrQueue(newClaim("b", "1"), now.Add(59*time.Second)), v1alpha1.DetailCooldown)
	wantIn(t, g.EnterOrQueue(newClaim("b", "1"), now.Add(60*time.Second))) // due means that it is time
}

func TestCircuit(t *testing.T) {
	g := newGate(t, execution.GateConfig{MaxFailures: 2, Window: time.Hour})
	now := startGate()
	for i, outcome := range []v1alpha1.Outcome{v1alpha1.OutcomeFailed, v1alpha1.OutcomePartial, v1alpha1.OutcomeFailed, v1alpha1.OutcomeFailed} {
		wantIn(t, g.EnterOrQueue(newClaim("a", "1"), now.Add(time.Duration(i)*time.Minute)))
		g.Leave("uid-a", outcome, now.Add(time.Duration(i)*time.Minute))
	}
	wantFailed(t, g.EnterOrQueue(newClaim("b", "1"), now.Add(4*time.Minute)), v1alpha1.DetailCircuitOpen)
	wantIn(t, g.EnterOrQueue(newClaim("c", "2"), now))
	back := newClaim("d", "1")
	back.Rollback = true
	wantIn(t, g.EnterOrQueue(back, now.Add(4*time.Minute)))
	g.Forget(back.UID)
	wantFailed(t, g.EnterOrQueue(newClaim("b", "1"), now.Add(62*time.Minute-1)), v1alpha1.DetailCircuitOpen)
	wantIn(t, g.EnterOrQueue(newClaim("b", "1"), now.Add(62*time.Minute)))
}

// TestCircuitIsNotResetByACancel verifies that an end without an outcome does not reset the
// circuit. Otherwise, cancelling every second execution would allow endless attempts.
func TestCircuitIsNotResetByACancel(t *testing.T) {
	g := newGate(t, execution.GateConfig{MaxFailures: 2, Window: time.Hour})
	now := startGate()
	for i, outcome := range []v1alpha1.Outcome{v1alpha1.OutcomeFailed, "", "", v1alpha1.OutcomeFailed} {
		wantIn(t, g.EnterOrQueue(newClaim("a", "1"), now.Add(time.Duration(i)*time.Minute)))
		g.Leave("uid-a", outcome, now.Add(time.Duration(i)*time.Minute))
	}
	wantFailed(t, g.EnterOrQueue(newClaim("b", "1"), now.Add(time.Hour-1)), v1alpha1.DetailCircuitOpen)
	wantIn(t, g.EnterOrQueue(newClaim("b", "1"), now.Add(time.Hour)))
}

// TestRestoreGateFromAClockAhead verifies that the history of a target does not depend on the clock of
// the node that ran another action.
func TestRestoreGateFromAClockAhead(t *testing.T) {
	g := newGate(t, execution.GateConfig{MaxFailures: 2})
	now := startGate()
	ahead, a := newClaim("x", "2"), newClaim("a", "1")
	failed := execution.PastExecution{Action: a.Action, Target: a.Target, Outcome: v1alpha1.OutcomeFailed, Ended: now.Add(-time.Minute)}
	g.Restore(nil, []execution.PastExecution{failed, failed, {Action: ahead.Action, Target: ahead.Target, Outcome: v1alpha1.OutcomeSucceeded, Ended: now.Add(2 * time.Hour)}})
	wantFailed(t, g.EnterOrQueue(a, now), v1alpha1.DetailCircuitOpen)
	wantIn(t, g.EnterOrQueue(ahead, now))
	g.Leave(ahead.UID, v1alpha1.OutcomeSucceeded, now)
	wantFailed(t, g.EnterOrQueue(a, now), v1alpha1.DetailCircuitOpen)
}

func TestCircuitFailsThoseThatWait(t *testing.T) {
	g := newGate(t, execution.GateConfig{MaxFailures: 1})
	told := woken(g)
	now := startGate()
	wantIn(t, g.EnterOrQueue(newClaim("a", "1"), now))
	wantHeld(t, g.EnterOrQueue(newClaim("b", "1"), now), v1alpha1.DetailTargetBusy)
	wantHeld(t, g.EnterOrQueue(newClaim("c", "1"), now), v1alpha1.DetailTargetBusy)
	g.Leave("uid-a", v1alpha1.OutcomeFailed, now)
	for _, name := range []string{"b", "c"} {
		if diff := cmp.Diff([]string{name}, told()); diff != "" {
			t.Errorf("woken (-want +got):\n%s", diff)
		}
		wantFailed(t, g.EnterOrQueue(newClaim(name, "1"), now), v1alpha1.DetailCircuitOpen)
	}
	if s := g.Stats(); s != (execution.GateStats{}) {
		t.Errorf("still at the gate: %+v", s)
	}
}

func TestQueueTimeout(t *testing.T) {
	g := newGate(t, execution.GateConfig{QueueTimeout: time.Minute})
	now := startGate()
	wantIn(t, g.EnterOrQueue(newClaim("a", "1"), now))
	wantHeld(t, g.EnterOrQueue(newClaim("b", "1"), now), v1alpha1.DetailTargetBusy)
	v := g.EnterOrQueue(newClaim("b", "1"), now.Add(59*time.Second))
	wantHeld(t, v, v1alpha1.DetailTargetBusy)
	if v.After != time.Second {
		t.Errorf("ask again after %s, want 1s", v.After)
	}
	wantFailed(t, g.EnterOrQueue(newClaim("b", "1"), now.Add(time.Minute)), v1alpha1.DetailTargetBusy)
	waited := newClaim("c", "1")
	waited.Since = now.Add(-30 * time.Second) // at another gate
	wantHeld(t, g.EnterOrQueue(waited, now), v1alpha1.DetailTargetBusy)
	wantFailed(t, g.EnterOrQueue(waited, now.Add(30*time.Second)), v1alpha1.DetailTargetBusy)
}

func TestGateStop(t *testing.T) {
	g := newGate(t, execution.GateConfig{MaxConcurrent: 2})
	told := woken(g)
	now := startGate()
	wantIn(t, g.EnterOrQueue(newClaim("a", "1"), now))
	wantHeld(t, g.EnterOrQueue(newClaim("b", "1"), now), v1alpha1.DetailTargetBusy)
	g.Leave("uid-a", v1alpha1.OutcomeSucceeded, now) // b's place is kept
	g.Stop("the network is down")
	told()
	wantHeld(t, g.EnterOrQueue(newClaim("b", "1"), now), v1alpha1.DetailEmergencyStop)
	wantHeld(t, g.EnterOrQueue(newClaim("c", "2"), now), v1alpha1.DetailEmergencyStop)
	if diff := cmp.Diff(execution.GateStats{Waiting: 2, Stopped: true}, g.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	g.Resume()
	if got := told(); len(got) != 2 {
		t.Errorf("woken: %v, want b and c", got)
	}
	wantIn(t, g.EnterOrQueue(newClaim("c", "2"), now))
	wantIn(t, g.EnterOrQueue(newClaim("b", "1"), now))
}

func TestNoTargetIsNobodyElses(t *testing.T) {
	g := newGate(t, execution.GateConfig{Cooldown: time.Hour, MaxFailures: 1})
	now := startGate()
	wantIn(t, g.EnterOrQueue(newClaim("a", ""), now))
	wantIn(t, g.EnterOrQueue(newClaim("b", ""), now))
	g.Leave("uid-a", v1alpha1.OutcomeFailed, now)
	wantIn(t, g.EnterOrQueue(newClaim("c", ""), now))
}

func TestGateTraffic(t *testing.T) {
	g := newGate(t, execution.GateConfig{})
	now := startGate()
	wantIn(t, g.EnterOrQueue(newClaim("a", "1"), now))
	other := newClaim("b", "2")
	other.Action, other.TargetNamespace = "restart_pod", "blog"
	wantIn(t, g.EnterOrQueue(other, now))
	wantHeld(t, g.EnterOrQueue(newClaim("c", "1"), now), v1alpha1.DetailTargetBusy)
	for name, c := range map[string]struct {
		uid  types.UID
		want execution.InputInFlight
	}{
		"Itself":   {"uid-a", execution.InputInFlight{Total: 1, ByAction: map[string]int{"restart_pod": 1}, ByNamespace: map[string]int{"blog": 1}, SameTarget: []string{}}},
		"Waiting":  {"uid-c", execution.InputInFlight{Total: 2, ByAction: map[string]int{"restart_pod": 1, "scale_deployment": 1}, ByNamespace: map[string]int{"blog": 1, "shop": 1}, SameTarget: []string{"a"}}},
		"Stranger": {"uid-x", execution.InputInFlight{Total: 2, ByAction: map[string]int{"restart_pod": 1, "scale_deployment": 1}, ByNamespace: map[string]int{"blog": 1, "shop": 1}, SameTarget: []string{}}},
	} {
		if diff := cmp.Diff(c.want, g.InFlight(c.uid)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	g.Leave("uid-a", v1alpha1.OutcomeFailed, now)
	g.Forget("uid-c")
	wantIn(t, g.EnterOrQueue(newClaim("d", "1"), now.Add(time.Minute)))
	g.Leave("uid-d", v1alpha1.OutcomeSucceeded, now.Add(2*time.Minute))
	want := execution.InputPast{Count1h: 2, Failures1h: 1, LastOutcome: "Succeeded", LastFinishedAt: now.Add(2 * time.Minute).Unix()}
	if diff := cmp.Diff(want, g.History("scale_deployment", "1", now.Add(59*time.Minute))); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	want.Count1h, want.Failures1h = 1, 0
	if diff := cmp.Diff(want, g.History("scale_deployment", "1", now.Add(60*time.Minute))); diff != "" {
		t.Errorf("history after an hour (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(execution.InputPast{}, g.History("restart_pod", "1", now)); diff != "" {
		t.Errorf("history of another action (-want +got):\n%s", diff)
	}
}

func TestTargetKey(t *testing.T) {
	for name, c := range map[string]struct {
		target v1alpha1.PlanTarget
		want   string
	}{
		"Grouped": {v1alpha1.PlanTarget{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"}, "Deployment.apps/shop/web"},
		"Core":    {v1alpha1.PlanTarget{APIVersion: "v1", Kind: "Node", Name: "n1"}, "Node.//n1"},
		"None":    {v1alpha1.PlanTarget{}, ""},
	} {
		if got := execution.TargetKey(c.target); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestGateConfig(t *testing.T) {
	for name, cfg := range map[string]execution.GateConfig{
		"Concurrent": {MaxConcurrent: -1},
		"Percent":    {MaxNodePercent: 101},
		"Action":     {MaxPerAction: map[string]int{"restart_pod": 0}},
		"Cooldown":   {Cooldown: -1},
	} {
		if _, err := execution.NewGate(cfg); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
