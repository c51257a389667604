package budget

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// TestNeverAboveTheBound verifies that the limits hold with concurrent workers, a stale
// cache, and people who cordon nodes.
func TestNeverAboveTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"reserve": w.reserve, "write": w.write, "refuse": w.refuse, "see": w.see, "give back": w.giveBack,
			"person": w.person, "break": w.turn, "wait": w.wait, "restart": w.restart, "calm": w.calm, "": w.check,
		})
	})
}

// A world holds the real nodes, and the nodes in the cache.
type world struct {
	cfg     Config
	real    []*corev1.Node
	cached  []*corev1.Node
	granted map[int]func()    // not written yet
	at      map[int]time.Time // of the grant
	written map[int]time.Time
	recent  map[int]time.Time // time of the last grant of nodes, as far as a process can know it
	before  map[int]time.Time // the time before, of the nodes in granted
	now     time.Time
	b       *Budget
}

func newWorld(t *rapid.T) *world {
	w := &world{granted: map[int]func(){}, at: map[int]time.Time{}, written: map[int]time.Time{}, recent: map[int]time.Time{}, before: map[int]time.Time{}, now: noon()}
	w.cfg = Config{
		MaxPercent: rapid.IntRange(0, 100).Draw(t, "percent"), MinAllowedNodes: rapid.IntRange(0, 3).Draw(t, "least"),
		Window: time.Minute, WindowMaxPercent: rapid.IntRange(0, 100).Draw(t, "rate"), WindowMinAllowedNodes: rapid.IntRange(0, 3).Draw(t, "least rate"), OnExhausted: AutoResume,
	}
	w.real = newNodes(rapid.IntRange(1, 12).Draw(t, "nodes"))
	w.cached = copies(w.real)
	w.start()
	return w
}

func (w *world) start() {
	b, err := New(w.cfg, func() []*corev1.Node { return w.cached }, nil)
	if err != nil {
		panic(err)
	}
	w.b = b
	b.Status(w.now) // as metrics do: releases before any observation are unknown
}

func (w *world) one(t *rapid.T) int { return rapid.IntRange(0, len(w.real)-1).Draw(t, "node") }

// reserve requests a node from the cache, like a reconciler.
func (w *world) reserve(t *rapid.T) {
	i := w.one(t)
	if _, is := w.granted[i]; is || isQuarantinedByUs(w.cached[i]) {
		return // only one worker at a time handles a node
	}
	release, denial := w.b.Reserve(w.cached[i], w.now)
	if denial == "" {
		w.granted[i], w.at[i] = release, w.now
		w.before[i] = w.recent[i]
		if !isQuarantinedByUs(w.real[i]) { // otherwise it is not shown yet, and was granted then
			w.recent[i] = w.now
		}
	}
}

// write makes the API server store a grant. It rejects a write of an older node.
func (w *world) write(t *rapid.T) {
	for i, release := range w.granted {
		if isQuarantinedByUs(w.real[i]) || w.real[i].ResourceVersion != w.cached[i].ResourceVersion {
			w.release(i, release)
		} else {
			take(w.at[i], w.real[i])
			w.written[i] = w.at[i]
			w.change(i)
			delete(w.granted, i)
		}
		return
	}
}

func (w *world) refuse(t *rapid.T) {
	for i, release := range w.granted {
		w.release(i, release)
		return
	}
}

func (w *world) release(i int, release func()) {
	release()
	delete(w.granted, i)
	w.recent[i] = w.before[i]
}

// calm keeps all nodes healthy for a while. Then one node must be granted, if the limits
// allow any.
func (w *world) calm(t *rapid.T) {
	for len(w.granted) > 0 {
		w.refuse(t)
	}
	w.real = newNodes(len(w.real))
	w.cached = copies(w.real)
	w.now = w.now.Add(time.Hour)
	most, rate := w.cfg.limitsFor(len(w.real))
	release, denial := w.b.Reserve(w.cached[0], w.now)
	release()
	if may := most > 0 && rate > 0; may != (denial == "") {
		t.Fatalf("with all nodes well, of which %d may be out of service and %d be taken out, it says %q", most, rate, denial)
	}
}

func (w *world) change(i int) {
	w.real[i].ResourceVersion += "x"
}

func (w *world) see(t *rapid.T) {
	i := w.one(t)
	w.cached[i] = w.real[i].DeepCopy()
}

func (w *world) giveBack(t *rapid.T) {
	i := w.one(t)
	if isQuarantinedByUs(w.cached[i]) && w.real[i].ResourceVersion == w.cached[i].ResourceVersion {
		w.real[i].Annotations, w.real[i].Spec.Unschedulable = nil, false
		w.change(i)
	}
}

func (w *world) person(t *rapid.T) {
	i := w.one(t)
	w.real[i].Spec.Unschedulable = !w.real[i].Spec.Unschedulable
	w.change(i)
}

func (w *world) turn(t *rapid.T) {
	i := w.one(t)
	w.real[i].Status.Conditions[0].Status = rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}).Draw(t, "ready")
	w.change(i)
}

func (w *world) wait(t *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
}

// restart starts another process, with the current nodes in its cache.
func (w *world) restart(t *rapid.T) {
	clear(w.granted)
	clear(w.recent)
	for i, node := range w.real {
		if isQuarantinedByUs(node) {
			w.recent[i] = w.written[i]
		}
	}
	w.cached = copies(w.real)
	w.start()
}

func (w *world) check(t *rapid.T) {
	most, rate := w.cfg.limitsFor(len(w.real))
	out := 0
	for i, node := range w.real {
		if _, is := w.granted[i]; is || isQuarantinedByUs(node) {
			out++
		}
	}
	if out > most {
		t.Fatalf("%d nodes are out of service by us, %d may be", out, most)
	}
	recent := 0
	for _, at := range w.recent {
		if w.now.Sub(at) < w.cfg.Window {
			recent++
		}
	}
	if recent > rate {
		t.Fatalf("%d nodes were taken out within the window, %d may be", recent, rate)
	}
}

// TestSideBySide requests many nodes concurrently while the cache shows no change.
func TestSideBySide(t *testing.T) {
	nodes := newNodes(200)
	b := newBudget(t, level(10, 1), always(nodes))
	var granted atomic.Int32
	var asking sync.WaitGroup
	for part := range 16 {
		asking.Go(func() {
			for i := part; i < len(nodes); i += 16 {
				if release, denial := b.Reserve(nodes[i], noon()); denial == "" {
					if i%3 == 0 {
						release()
						continue
					}
					granted.Add(1)
				}
			}
		})
	}
	asking.Wait()
	for _, node := range nodes { // released places are available again
		if _, denial := b.Reserve(node, noon()); denial == "" {
			granted.Add(1)
		}
	}
	if s := b.Status(noon()); s[0].Ours > 20 || s[0].Ours < 16 {
		t.Errorf("%d nodes may go at the same time, want 20, or as few as a fifth less while it is held", s[0].Ours)
	}
}

func BenchmarkReserve(b *testing.B) {
	for _, n := range []int{150, 1500, 15000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			nodes := newNodes(n)
			take(noon().Add(-time.Hour), nodes[:n/3]...)
			budget := newBudget(b, level(50, 1), always(nodes))
			for b.Loop() {
				release, _ := budget.Reserve(nodes[n-1], noon())
				release()
			}
		})
	}
}
