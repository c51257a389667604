package execution_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// A world is a gate and the state expected from outside.
type world struct {
	cfg      execution.GateConfig
	gate     *execution.Gate
	now      time.Time
	stopped  bool
	nodes    int
	cordoned []string

	inside, waiting map[types.UID]*visitor
	after           map[types.UID]time.Time // when a visitor was told to come again
	woken           []types.UID
	past            []execution.PastExecution
	tick            int // counts what happens
	made            int
}

type visitor struct {
	execution.Claim
	arrived int // tick
	woken   int // tick; 0 is never
}

func newWorld(t *rapid.T, patience time.Duration) *world {
	w := &world{
		cfg: execution.GateConfig{
			MaxConcurrent:   rapid.IntRange(1, 4).Draw(t, "concurrent"),
			MaxPerNamespace: rapid.IntRange(0, 2).Draw(t, "perNamespace"),
			MaxPerRequester: rapid.IntRange(0, 2).Draw(t, "perRequester"),
			MaxPerAction:    map[string]int{"drain_node": 2, "scale_deployment": rapid.IntRange(1, 3).Draw(t, "perAction")},
			MaxNodePercent:  rapid.IntRange(1, 60).Draw(t, "percent"),
			Cooldown:        rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "cooldown"),
			MaxFailures:     rapid.IntRange(0, 2).Draw(t, "failures"),
			Window:          10 * time.Minute,
			QueueTimeout:    patience,
		},
		now:    startGate(),
		inside: map[types.UID]*visitor{}, waiting: map[types.UID]*visitor{},
		after: map[types.UID]time.Time{},
	}
	w.open(t)
	return w
}

func (w *world) open(t *rapid.T) {
	g, err := execution.NewGate(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.gate = g
	w.woken = nil
	g.OnWake(func(k types.NamespacedName) {
		uid := types.UID(k.Name)
		w.woken = append(w.woken, uid)
		if v := w.waiting[uid]; v != nil {
			w.tick++
			v.woken = w.tick
		}
	})
}

func (w *world) draw(t *rapid.T) *visitor {
	w.made++
	name := fmt.Sprint("e", w.made)
	w.tick++
	v := &visitor{arrived: w.tick, Claim: execution.Claim{
		UID: types.UID(name), Key: types.NamespacedName{Namespace: "executor", Name: name},
		Created: w.now.Add(-time.Duration(rapid.IntRange(0, 100).Draw(t, "age")) * time.Second), Rollback: rapid.IntRange(0, 5).Draw(t, "rollback") == 0,
	}}
	v.Requester = rapid.SampledFrom([]string{"alice", "bob"}).Draw(t, "requester")
	if rapid.Bool().Draw(t, "node") {
		v.Node, v.Action = true, rapid.SampledFrom([]string{"drain_node", "uncordon_node"}).Draw(t, "action")
		v.Target = rapid.SampledFrom([]string{"n1", "n2", "n3", "n4"}).Draw(t, "target")
		return v
	}
	v.Action = rapid.SampledFrom([]string{"scale_deployment", "restart_pod"}).Draw(t, "action")
	if rapid.IntRange(0, 3).Draw(t, "reads") == 0 {
		v.Action, v.ReadOnly = "rollout_status", true
	}
	v.TargetNamespace = rapid.SampledFrom([]string{"shop", "blog"}).Draw(t, "namespace")
	v.Target = v.TargetNamespace + rapid.SampledFrom([]string{"/web", "/api"}).Draw(t, "target")
	return v
}

// enter has a visitor ask, and judges the answer.
func (w *world) enter(t *rapid.T, v *visitor) {
	w.now = w.now.Add(1) // no two at the same time
	known := w.inside[v.UID] != nil || w.waiting[v.UID] != nil
	if !known && v.Since.IsZero() {
		v.Since = w.now
	}
	verdict := w.gate.EnterOrQueue(v.Claim, w.now)
	delete(w.after, v.UID)
	switch {
	case w.inside[v.UID] != nil:
		if !verdict.In {
			t.Fatalf("%s was inside, and is told %+v", v.UID, verdict)
		}
	case verdict.In:
		w.judgeEntry(t, v)
		delete(w.waiting, v.UID)
		w.inside[v.UID] = v
	case verdict.Failed:
		delete(w.waiting, v.UID)
		w.judgeFailure(t, v, verdict)
	default:
		if verdict.After <= 0 || verdict.Detail == "" || verdict.Message == "" {
			t.Fatalf("%s must wait, and is told nothing: %+v", v.UID, verdict)
		}
		w.waiting[v.UID] = v
		w.after[v.UID] = w.now.Add(verdict.After)
	}
}

func (w *world) judgeFailure(t *rapid.T, v *visitor, verdict execution.GateVerdict) {
	late := !w.now.Before(v.Since.Add(w.cfg.QueueTimeout))
	if broken := w.broken(v); broken != (verdict.Detail == v1alpha1.DetailCircuitOpen) || !broken && !late {
		t.Fatalf("%s failed at %s, broken=%v late=%v: %+v", v.UID, w.now, broken, late, verdict)
	}
}

func (w *world) judgeEntry(t *rapid.T, v *visitor) {
	if w.stopped {
		t.Fatalf("%s was let in while all was stopped", v.UID)
	}
	total, action, namespace, requester, nodes := 1, 1, 1, 1, map[string]bool{v.Target: true}
	for _, o := range w.inside {
		if o.ReadOnly != v.ReadOnly {
			continue
		}
		total++
		if o.Requester == v.Requester {
			requester++
		}
		if o.Target == v.Target && !v.ReadOnly {
			t.Fatalf("%s was let in with %s, both on %s", v.UID, o.UID, v.Target)
		}
		if o.Action == v.Action {
			action++
		}
		if o.TargetNamespace == v.TargetNamespace {
			namespace++
		}
		if o.Node {
			nodes[o.Target] = true
		}
	}
	for _, c := range w.cordoned {
		nodes[c] = true
	}
	switch most, bound := w.cfg.MaxPerAction[v.Action]; {
	case total > w.cfg.MaxConcurrent:
		t.Fatalf("%d inside", total)
	case bound && action > most:
		t.Fatalf("%d inside of %s", action, v.Action)
	case !v.Node && w.cfg.MaxPerNamespace > 0 && namespace > w.cfg.MaxPerNamespace:
		t.Fatalf("%d inside of namespace %s", namespace, v.TargetNamespace)
	case w.cfg.MaxPerRequester > 0 && requester > w.cfg.MaxPerRequester:
		t.Fatalf("%d inside of %s", requester, v.Requester)
	case v.Node && !slices.Contains(w.cordoned, v.Target) && len(nodes) > max(1, w.nodes*w.cfg.MaxNodePercent/100):
		t.Fatalf("%d of %d nodes", len(nodes), w.nodes)
	case w.broken(v):
		t.Fatalf("%s was let in after too many failures", v.UID)
	case w.cooling(v):
		t.Fatalf("%s was let in during the cooldown", v.UID)
	}
	for _, o := range w.waiting {
		if o.Target != v.Target || o == v || o.ReadOnly || v.ReadOnly {
			continue
		}
		if v.woken > 0 && o.arrived > v.woken { // the place may have been given away before it came
			continue
		}
		if o.Rollback && !v.Rollback || o.Rollback == v.Rollback && o.Since.Before(v.Since) {
			t.Fatalf("%s (rollback %v) was let in before %s (rollback %v)", v.UID, v.Rollback, o.UID, o.Rollback)
		}
	}
}

func (w *world) broken(v *visitor) bool {
	if v.Rollback || v.ReadOnly || w.cfg.MaxFailures == 0 {
		return false
	}
	failures := 0
	for _, p := range slices.Backward(w.past) {
		if p.Action != v.Action || p.Target != v.Target || p.Outcome == "" {
			continue
		}
		if p.Outcome != v1alpha1.OutcomeFailed || w.now.Sub(p.Ended) >= w.cfg.Window {
			break
		}
		failures++
	}
	return failures >= w.cfg.MaxFailures
}

func (w *world) cooling(v *visitor) bool {
	return !v.Rollback && !v.ReadOnly && slices.ContainsFunc(w.past, func(p execution.PastExecution) bool {
		return p.Action == v.Action && p.Target == v.Target && w.now.Sub(p.Ended) < w.cfg.Cooldown
	})
}

func (w *world) leave(v *visitor, outcome v1alpha1.Outcome) {
	w.now = w.now.Add(1)
	delete(w.inside, v.UID)
	w.past = append(w.past, execution.PastExecution{Action: v.Action, Target: v.Target, Outcome: outcome, Ended: w.now})
	w.gate.Leave(v.UID, outcome, w.now)
	w.gate.SetCordonedNodes(w.cordoned) // until then the node counts as cordoned
}

// answer enters again for the executions that were woken.
func (w *world) answer(t *rapid.T) {
	for len(w.woken) > 0 {
		uid := w.woken[0]
		w.woken = w.woken[1:]
		if v := w.waiting[uid]; v != nil {
			w.enter(t, v)
		}
	}
	for _, uid := range sorted(w.after) {
		if v := w.waiting[uid]; v != nil && !w.now.Before(w.after[uid]) {
			w.enter(t, v)
		}
	}
}

func sorted[V any](m map[types.UID]V) []types.UID { return slices.Sorted(maps.Keys(m)) }

func pick(t *rapid.T, m map[types.UID]*visitor) *visitor {
	if len(m) == 0 {
		t.Skip("there is none")
	}
	return m[rapid.SampledFrom(sorted(m)).Draw(t, "who")]
}

// actions are what can happen.
func (w *world) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"Arrive": func(t *rapid.T) { w.enter(t, w.draw(t)) },
		"Crowd": func(t *rapid.T) {
			for range 4 {
				w.enter(t, w.draw(t))
			}
		},
		"Again":  func(t *rapid.T) { w.enter(t, pick(t, w.waiting)) },
		"Inside": func(t *rapid.T) { w.enter(t, pick(t, w.inside)) },
		"Answer": w.answer,
		"Leave": func(t *rapid.T) {
			outcome := rapid.SampledFrom([]v1alpha1.Outcome{v1alpha1.OutcomeSucceeded, v1alpha1.OutcomePartial, v1alpha1.OutcomeFailed, ""}).Draw(t, "outcome")
			w.leave(pick(t, w.inside), outcome)
		},
		"Forget": func(t *rapid.T) {
			v := pick(t, w.waiting)
			delete(w.waiting, v.UID)
			delete(w.after, v.UID)
			w.gate.Forget(v.UID)
		},
		"GiveUp": func(t *rapid.T) {
			v := pick(t, w.inside)
			delete(w.inside, v.UID)
			w.gate.Forget(v.UID)
		},
		"Time": func(t *rapid.T) {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
		},
		"Stop":   func(*rapid.T) { w.stopped = true; w.gate.Stop("test") },
		"Resume": func(*rapid.T) { w.stopped = false; w.gate.Resume() },
		"Nodes":  func(t *rapid.T) { w.nodes = rapid.IntRange(0, 10).Draw(t, "nodes"); w.gate.SetNodeCount(w.nodes) },
		"Cordon": func(t *rapid.T) {
			w.cordoned = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"n1", "n2", "n3", "n4"}), 0, 2, rapid.ID).Draw(t, "cordoned")
			w.gate.SetCordonedNodes(w.cordoned)
		},
		"Restart": func(t *rapid.T) {
			w.restart(t, func(waiting []*visitor) []*visitor { return rapid.Permutation(waiting).Draw(t, "waiting") })
		},
	}
}

// inTurn is whose turn comes first.
func inTurn(waiting []*visitor) []*visitor {
	slices.SortFunc(waiting, func(a, b *visitor) int {
		if a.Rollback != b.Rollback {
			return map[bool]int{true: -1, false: 1}[a.Rollback]
		}
		return a.Since.Compare(b.Since)
	})
	return waiting
}

// restart puts a new gate in the place of the old. Who waits comes again, in
// some order.
func (w *world) restart(t *rapid.T, order func([]*visitor) []*visitor) {
	old := w.gate
	w.open(t)
	var inside []execution.Claim
	for _, uid := range sorted(w.inside) {
		inside = append(inside, w.inside[uid].Claim)
	}
	past := slices.Clone(w.past)
	w.gate.Restore(rapid.Permutation(inside).Draw(t, "inside"), rapid.Permutation(past).Draw(t, "past"))
	w.gate.SetNodeCount(w.nodes)
	w.gate.SetCordonedNodes(w.cordoned)
	if w.stopped {
		w.gate.Stop("test")
	}
	for _, action := range []string{"drain_node", "uncordon_node", "scale_deployment", "restart_pod"} {
		for _, target := range []string{"n1", "n4", "shop/web", "blog/api"} {
			if diff := cmp.Diff(old.History(action, target, w.now), w.gate.History(action, target, w.now)); diff != "" {
				t.Fatalf("history of %s on %s (-before +after):\n%s", action, target, diff)
			}
		}
	}
	if s := w.gate.Stats(); s.Inside != len(w.inside) || s.Waiting != 0 {
		t.Fatalf("restored: %+v, and %d are inside", s, len(w.inside))
	}
	waiting := make([]*visitor, 0, len(w.waiting))
	for _, uid := range sorted(w.waiting) {
		waiting = append(waiting, w.waiting[uid])
	}
	clear(w.waiting)
	clear(w.after)
	for _, v := range order(waiting) {
		w.tick++
		v.arrived, v.woken = w.tick, 0
		w.enter(t, v)
	}
}

// TestGate plays what can happen, in any order, and holds the gate to what it
// promises: see judgeEntry.
func TestGate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 5*time.Minute)
		t.Repeat(w.actions())
	})
}

// TestNobodyWaitsForEver ends each sequence with all executions leaving. Only woken executions
// retry.
func TestNobodyWaitsForEver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 1000*time.Hour) // so that it is not the timeout that ends it
		t.Repeat(w.actions())
		w.gate.SetCordonedNodes(nil)
		w.cordoned, w.stopped = nil, false
		w.gate.Resume()
		for round := 0; len(w.waiting) > 0 || len(w.inside) > 0; round++ {
			before := len(w.waiting)
			w.answer(t)
			for _, uid := range sorted(w.inside) {
				w.leave(w.inside[uid], v1alpha1.OutcomeSucceeded)
			}
			w.answer(t)
			if len(w.inside) == 0 && len(w.waiting) == before { // only a cooldown can be in the way, and says until when
				soonest := time.Time{}
				for _, at := range w.after {
					if soonest.IsZero() || at.Before(soonest) {
						soonest = at
					}
				}
				if soonest.Sub(w.now) > w.cfg.Window {
					t.Fatalf("%d wait, and nobody is inside: %v", len(w.waiting), w.after)
				}
				w.now = soonest
			}
			if round > 10_000 {
				t.Fatalf("%d still wait", len(w.waiting))
			}
		}
		if s := w.gate.Stats(); s != (execution.GateStats{}) {
			t.Fatalf("left behind: %+v", s)
		}
	})
}

// TestRestoreGateIsTheStateBefore has an old and a new gate let the same in, in the
// same order.
func TestRestoreGateIsTheStateBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 1000*time.Hour)
		t.Repeat(w.actions())
		for _, uid := range sorted(w.waiting) { // a place that is kept is not restored, and who must fail does so now
			w.enter(t, w.waiting[uid])
		}
		w.answer(t)
		now, old := w.now, w.gate
		old.SetCordonedNodes(w.cordoned)
		w.restart(t, inTurn)
		if w.stopped {
			w.gate.Resume()
			old.Resume()
		}
		for range 100 {
			if len(w.inside) == 0 {
				return
			}
			uid := sorted(w.inside)[0]
			entered := map[bool][]types.UID{}
			for first, g := range map[bool]*execution.Gate{true: old, false: w.gate} {
				g.Leave(uid, v1alpha1.OutcomeSucceeded, now)
				g.SetCordonedNodes(w.cordoned)
				for _, id := range sorted(w.waiting) {
					if g.EnterOrQueue(w.waiting[id].Claim, now).In {
						entered[first] = append(entered[first], id)
					}
				}
			}
			if diff := cmp.Diff(entered[true], entered[false]); diff != "" {
				t.Fatalf("after %s left (-old +new):\n%s", uid, diff)
			}
			delete(w.inside, uid)
			for _, id := range entered[true] {
				w.inside[id] = w.waiting[id]
				delete(w.waiting, id)
			}
		}
	})
}
