package budget

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// level returns a budget that limits only how many nodes are out of service.
func level(percent, least int) Config {
	return Config{MaxPercent: percent, MinAllowedNodes: least, OnExhausted: AutoResume}
}

func TestHowManyMayGo(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		cfg    Config
		nodes  int
		change func(nodes []*corev1.Node) // changes the first nodes
		ask    int                        // index of the first node that requests
		want   int
		denial string // of the first denied node
	}{
		"Percent":    {reason: "a tenth of thirty", cfg: level(10, 1), nodes: 30, want: 3, denial: "budget exhausted: 3 of 30 nodes are out of service (3 quarantined) in the cluster, at most 3 allowed"},
		"RoundsDown": {reason: "a tenth of 29 is two", cfg: level(10, 1), nodes: 29, want: 2},
		"SmallPool":  {reason: "a pool of three gets one repaired, though a tenth of it is none", cfg: level(10, 1), nodes: 3, want: 1},
		"NoFloor":    {reason: "who wants none in a small pool gets none", cfg: level(10, 0), nodes: 9, want: 0, denial: "budget exhausted: 0 of 9 nodes are out of service in the cluster, at most 0 allowed"},
		"Closed":     {reason: "nothing is allowed", cfg: level(0, 0), nodes: 30, want: 0},
		"Floor":      {reason: "the larger of both counts", cfg: level(10, 5), nodes: 20, want: 5},
		"All":        {reason: "who wants it may lose all", cfg: level(100, 0), nodes: 5, want: 5},
		"OthersCount": {
			reason: "those that people have cordoned, and those that are broken, are not there either",
			cfg:    level(20, 1), nodes: 20, ask: 3, want: 1,
			change: func(n []*corev1.Node) { take(noon().Add(-time.Hour), n[0]); cordon(n[1]); fail(n[2]) },
			denial: "budget exhausted: 4 of 20 nodes are out of service (2 quarantined, 1 cordoned by others, 1 not ready) in the cluster, at most 4 allowed",
		},
		"CountedOnce": {
			reason: "a node of ours that is not ready is one node",
			cfg:    level(10, 0), nodes: 20, ask: 1, want: 1,
			change: func(n []*corev1.Node) { take(noon().Add(-time.Hour), n[0]); fail(n[0]) },
		},
		"OutAlready": {
			reason: "the node that asks is not ready, and takes nothing more away",
			cfg:    level(10, 0), nodes: 10, ask: 0, want: 1,
			change: func(n []*corev1.Node) { fail(n[0]) },
		},
		"ManyOut": {
			reason: "when half of the nodes are not ready, it is the network: none of them is touched",
			cfg:    level(10, 1), nodes: 20, ask: 0, want: 0,
			change: func(n []*corev1.Node) { fail(n[:10]...) },
		},
		"Silent": {
			reason: "of a node that no kubelet ever spoke of, nobody says that it is not ready",
			cfg:    level(10, 1), nodes: 20, ask: 0, want: 2,
			change: func(n []*corev1.Node) {
				for _, node := range n[5:] {
					node.Status.Conditions = nil
				}
			},
		},
		"ControlPlane": {
			reason: "the control plane is no capacity, and none of ours to take",
			cfg:    level(10, 0), nodes: 20, ask: 0, want: 1,
			change: func(n []*corev1.Node) { label(n[:10], "node-role.kubernetes.io/control-plane", "") },
			denial: `node "node-000" is not covered by the budget: budget.selector or budget.control_plane excludes it`,
		},
		"ControlPlaneToo": {
			reason: "unless it is asked for",
			cfg:    Config{MaxPercent: 10, ControlPlane: true}, nodes: 20, ask: 0, want: 2,
			change: func(n []*corev1.Node) { label(n[:10], "node-role.kubernetes.io/control-plane", "") },
		},
		"Selected": {
			reason: "only nodes with processors of a kind count, and may go",
			cfg:    Config{MaxPercent: 10, Selector: "gpu=yes"}, nodes: 40, ask: 0, want: 2,
			change: func(n []*corev1.Node) { label(n[20:], "gpu", "yes") },
		},
		"Pools": {
			reason: "each pool has its own: a tenth of ten and of twenty",
			cfg:    Config{MaxPercent: 10, Pool: "pool"}, nodes: 30, ask: 0, want: 3,
			change: func(n []*corev1.Node) { label(n[:10], "pool", "a") },
			denial: `budget exhausted: 1 of 10 nodes are out of service (1 quarantined) in pool "a", at most 1 allowed`,
		},
		"Rate": {
			reason: "a twentieth within five minutes, though there is room for more",
			cfg:    Config{MaxPercent: 50, Window: 5 * time.Minute, WindowMaxPercent: 5, WindowMinAllowedNodes: 1}, nodes: 60, want: 3,
			denial: "budget exhausted: 3 nodes of the cluster were taken out of service within 5m0s, at most 3 allowed",
		},
		"RateFloor": {
			reason: "a small pool gets one within the window",
			cfg:    Config{MaxPercent: 50, Window: 5 * time.Minute, WindowMaxPercent: 5, WindowMinAllowedNodes: 1}, nodes: 6, want: 1,
		},
		"RateSeesTheNodes": {
			reason: "what another process took out a minute ago counts, what it took out before the window does not",
			cfg:    Config{MaxPercent: 50, Window: 5 * time.Minute, WindowMaxPercent: 10}, nodes: 40, ask: 4, want: 2,
			change: func(n []*corev1.Node) {
				take(noon().Add(-time.Minute), n[:2]...)
				take(noon().Add(-time.Hour), n[2:4]...)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := newNodes(tc.nodes)
			if tc.change != nil {
				tc.change(nodes)
			}
			b := newBudget(t, tc.cfg, always(nodes))
			got, first := 0, ""
			for _, n := range nodes[tc.ask:] {
				_, denial := b.Reserve(n, noon())
				if denial == "" {
					got++
				} else if first == "" {
					first = denial
				}
			}
			if got != tc.want {
				t.Errorf("%s: %d nodes may go, want %d", tc.reason, got, tc.want)
			}
			if tc.denial != "" && first != tc.denial {
				t.Errorf("%s: it says\n%s, want\n%s", tc.reason, first, tc.denial)
			}
		})
	}
}

// TestLimitOf verifies that each pool has its own limit, from its size as last counted.
func TestLimitOf(t *testing.T) {
	nodes := newNodes(31)
	label(nodes[:10], "pool", "a")
	nodes[30].Labels = map[string]string{"gpu": "no"}
	b := newBudget(t, Config{MaxPercent: 10, Pool: "pool", Selector: "gpu!=no"}, always(nodes))
	for i, want := range map[int]*v1alpha1.PoolBudget{0: {Pool: "a", Limit: 1}, 29: {Limit: 2}, 30: nil} {
		if diff := cmp.Diff(want, b.LimitOf(nodes[i])); diff != "" {
			t.Errorf("node %d (-want +got)\n%s", i, diff)
		}
	}
}

// TestARestartChangesNothing verifies that grants of an earlier process count as soon as
// the nodes show them.
func TestARestartChangesNothing(t *testing.T) {
	nodes := newNodes(40)
	first := newBudget(t, level(10, 1), always(nodes))
	for _, node := range nodes {
		if _, denial := first.Reserve(node, noon()); denial == "" {
			take(noon(), node)
		}
	}
	second := newBudget(t, level(10, 1), always(nodes))
	if got := grants(second, noon().Add(time.Second), nodes[4:]...); len(got) > 0 {
		t.Errorf("after a restart %v may go, too", got)
	}
	if _, denial := second.Reserve(nodes[0], noon()); denial != "" {
		t.Errorf("a node that is ours is denied: %s", denial)
	}
}

// TestARestartForgetsNoTaking verifies that a new process counts the nodes that were
// taken within the window, also those that are back in service.
func TestARestartForgetsNoTaking(t *testing.T) {
	at := func(d time.Duration) string { return noon().Add(d).Format("2006-01-02T15:04:05.000000Z07:00") }
	ended := func(since time.Duration) string {
		return fmt.Sprintf(`{"session":"k3f9c2aa","since":%q,"at":%q}`, at(since), at(-time.Second))
	}
	for name, tc := range map[string]struct {
		reason    string
		key, text string
		may       bool
	}{
		"Released":     {"we gave it back", v1alpha1.AnnotationReleased, ended(-time.Minute), false},
		"Undone":       {"a person took it back", v1alpha1.AnnotationOverridden, ended(-time.Minute), false},
		"ReleasedLong": {"it was taken before the window", v1alpha1.AnnotationReleased, ended(-6 * time.Minute), true},
		"Unsaid":       {"it does not say when it was taken", v1alpha1.AnnotationOverridden, fmt.Sprintf(`{"at":%q}`, at(-time.Second)), true},
		"Garbage":      {"it says nothing", v1alpha1.AnnotationReleased, "{", true},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := newNodes(20)
			nodes[0].Annotations = map[string]string{tc.key: tc.text}
			b := newBudget(t, Default(), always(nodes))
			if got := grants(b, noon(), nodes[1]); (len(got) == 1) != tc.may {
				t.Errorf("%s: beside it %v may go", tc.reason, got)
			}
		})
	}
}

func TestAGrantCountsUntilItIsSeen(t *testing.T) {
	nodes := newNodes(20)
	b := newBudget(t, level(10, 0), always(nodes))
	if _, denial := b.Reserve(nodes[0], noon()); denial != "" {
		t.Fatal(denial)
	}
	release, denial := b.Reserve(nodes[0], noon()) // by a worker with a stale cache
	if denial != "" {
		t.Fatalf("asked twice for one node: %s", denial)
	}
	if got := grants(b, noon(), nodes[1], nodes[2]); !cmp.Equal(got, []string{"node-001"}) {
		t.Fatalf("beside one grant %v may go, want one node", got)
	}
	release() // the write was rejected because the node had changed
	if got := grants(b, noon(), nodes[3]); len(got) > 0 {
		t.Errorf("who asked for a node again has released the grant of the first time: %v", got)
	}

	// The node shows an older session: the cache is stale, and the grant stays.
	take(noon().Add(-time.Hour), nodes[1])
	if s := b.Status(noon()); s[0].Ours != 2 {
		t.Errorf("out of service are %d, want 2", s[0].Ours)
	}
	nodes[1].Annotations, nodes[1].Spec.Unschedulable = nil, false
	if s := b.Status(noon()); s[0].Ours != 2 {
		t.Errorf("a grant was forgotten for an annotation of a session before: %+v", s)
	}

	// The node shows this session and is released: it no longer counts.
	take(noon().Add(time.Nanosecond), nodes[1]) // the annotation has the time in microseconds
	b.Status(noon())
	nodes[1].Annotations, nodes[1].Spec.Unschedulable = nil, false
	if s := b.Status(noon()); s[0].Ours != 1 {
		t.Errorf("a node that was given back counts: %+v", s)
	}

	// A grant that is never shown expires after the patience.
	if s := b.Status(noon().Add(grantTimeout + time.Second)); s[0].Ours != 0 {
		t.Errorf("a grant that nobody ever saw counts for ever: %+v", s)
	}
}

func TestReleasedAtOnce(t *testing.T) {
	nodes := newNodes(10)
	cfg := Config{MaxPercent: 10, Window: time.Minute, WindowMaxPercent: 10, OnExhausted: AutoResume}
	b := newBudget(t, cfg, always(nodes))
	for range 3 { // neither limit counts it
		release, denial := b.Reserve(nodes[0], noon())
		if denial != "" {
			t.Fatal(denial)
		}
		release()
		release()
	}
	if got := grants(b, noon(), nodes[1]); len(got) != 1 {
		t.Error("what was released counts")
	}
}

// TestDeletedNodes verifies that a deleted node is no capacity, but counts as recently
// taken.
func TestDeletedNodes(t *testing.T) {
	nodes := newNodes(20)
	there := nodes
	b := newBudget(t, Config{MaxPercent: 50, Window: time.Minute, WindowMaxPercent: 10, OnExhausted: AutoResume}, func() []*corev1.Node { return there })
	if got := grants(b, noon(), nodes[0], nodes[1]); len(got) != 2 {
		t.Fatal(got)
	}
	there = nodes[2:]
	if s := b.Status(noon()); s[0].Ours != 0 || s[0].Recent != 2 {
		t.Errorf("after two nodes were deleted: %+v", s)
	}
	if got := grants(b, noon().Add(30*time.Second), nodes[2]); len(got) > 0 {
		t.Error("the rate forgets nodes that were deleted")
	}
	if got := grants(b, noon().Add(time.Minute), nodes[2]); len(got) != 1 {
		t.Error("the rate never forgets nodes that were deleted")
	}
}

func TestHoldGoesOnWhenAFifthIsFree(t *testing.T) {
	nodes := newNodes(100)
	b := newBudget(t, level(10, 1), always(nodes))
	take(noon(), nodes[:10]...)
	if _, denial := b.Reserve(nodes[20], noon()); denial == "" {
		t.Fatal("an eleventh node may go")
	}
	give := func(node *corev1.Node) { node.Annotations, node.Spec.Unschedulable = nil, false }
	give(nodes[0])
	_, denial := b.Reserve(nodes[20], noon())
	if want := "budget exhausted: 9 of 100 nodes are out of service (9 quarantined) in the cluster, at most 10 allowed; further nodes wait until at most 8 are out of service"; denial != want {
		t.Errorf("it says %q, want %q", denial, want)
	}
	if s := b.Status(noon()); !s[0].Exhausted || s[0].Latched {
		t.Errorf("it stands at %+v, want exhausted", s[0])
	}
	give(nodes[1])
	if got := grants(b, noon(), nodes[20:25]...); !cmp.Equal(got, []string{"node-020", "node-021"}) {
		t.Errorf("with eight out of service %v may go, want two", got)
	}
}

// TestHoldNeverBlocksAPoolOfOne verifies that the next node is granted when the only one
// out of service returns.
func TestHoldNeverBlocksAPoolOfOne(t *testing.T) {
	nodes := newNodes(2)
	b := newBudget(t, level(10, 1), always(nodes))
	take(noon(), nodes[0])
	if got := grants(b, noon(), nodes[1]); len(got) > 0 {
		t.Fatal("both may go")
	}
	nodes[0].Annotations, nodes[0].Spec.Unschedulable = nil, false
	if got := grants(b, noon(), nodes[1]); len(got) != 1 {
		t.Error("the second may not go although the first is back")
	}
}

func TestLatchStaysUntilReset(t *testing.T) {
	cfg := level(10, 1)
	cfg.OnExhausted, cfg.Pool = ManualReset, "pool"
	nodes := newNodes(40)
	label(nodes[:20], "pool", "a")
	label(nodes[20:], "pool", "b")
	b := newBudget(t, cfg, always(nodes))
	if got := grants(b, noon(), nodes[:3]...); len(got) != 2 {
		t.Fatal(got)
	}
	later := noon().Add(time.Hour) // the two grants were never shown
	_, denial := b.Reserve(nodes[3], later)
	if !strings.HasPrefix(denial, `the budget of pool "a" was exhausted at 2026-05-04T12:00:00Z and waits for a manual reset: 0 of 20`) {
		t.Errorf("it says %q", denial)
	}
	if got := grants(b, later, nodes[20]); len(got) != 1 {
		t.Error("another pool is closed, too")
	}
	s := b.Status(later)
	if diff := cmp.Diff([]bool{true, true, false, false}, []bool{s[0].Exhausted, s[0].Latched, s[1].Exhausted, s[1].Latched}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !b.Reset("a") || b.Reset("a") {
		t.Error("a reset does not say whether there was something to reset")
	}
	if got := grants(b, later, nodes[3]); len(got) != 1 {
		t.Error("it stays closed after a reset")
	}

	again := newBudget(t, cfg, always(nodes))
	again.CloseUntilReset("b", noon())
	if got := grants(again, later, nodes[3], nodes[20]); !cmp.Equal(got, []string{"node-003"}) {
		t.Errorf("with pool b latched by a process before, %v may go", got)
	}
}

func TestUnreadableAnnotation(t *testing.T) {
	nodes := newNodes(20)
	take(noon(), nodes[0])
	nodes[0].Annotations["fleetloop.io/node-fault-owned"] = "{"
	b := newBudget(t, Config{MaxPercent: 10, Window: time.Minute, WindowMaxPercent: 50, OnExhausted: AutoResume}, always(nodes))
	if got := grants(b, noon(), nodes[1], nodes[2]); len(got) != 1 {
		t.Errorf("beside a node whose annotation says nothing %v may go, want one", got)
	}
}

func TestConfig(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  Config
		want string
	}{
		"Percent":  {Config{MaxPercent: 101}, "max_percent is 101"},
		"Rate":     {Config{WindowMaxPercent: -1}, "window_max_percent is -1"},
		"Negative": {Config{MinAllowedNodes: -1}, "must not be negative"},
		"OnTrip":   {Config{OnExhausted: "panic"}, "must be auto-resume or manual-reset"},
		"Selector": {Config{Selector: "a in"}, "parse selector"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(tc.cfg, nil, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("New gives %v, want %q", err, tc.want)
			}
		})
	}
	var cfg Config
	if _, err := settings.Load(&cfg, settings.Source{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), cfg); diff != "" {
		t.Errorf("the defaults of the settings are others (-want +got):\n%s", diff)
	}
}

func TestMetrics(t *testing.T) {
	nodes := newNodes(20)
	cordon(nodes[5])
	fail(nodes[6])
	reg := registry()
	b, err := New(Config{MaxPercent: 20, Window: time.Minute, WindowMaxPercent: 50, OnExhausted: AutoResume}, always(nodes), reg)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	grants(b, now, nodes[0], nodes[1], nodes[2])
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "fleetloop_node_fault_budget_")
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	want := map[string]float64{
		"nodes/in_service": 16, "nodes/quarantined": 2, "nodes/cordoned_by_others": 1, "nodes/not_ready": 1,
		"limit_nodes/out_of_service": 4, "limit_nodes/window": 10, "window_nodes": 2,
		"exhausted_pools/false": 1, "exhausted_pools/true": 0,
		"denials_total/max_nodes": 1, "denials_total/recovering": 0, "denials_total/window": 0, "denials_total/manual_reset": 0, "denials_total/not_selected": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
