package drain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

func TestFromTheFirstToTheLast(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	for _, name := range []string{"a", "b", "c"} {
		r.pod(name)
	}
	r.pod("config", func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.OwnerReferences = nil
	})
	r.pod("done", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	r.pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "another" })
	r.pod("failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })

	r.begin()
	r.wantPods("a", "b", "c", "config", "done", "elsewhere", "failed") // no pod is evicted before the start is stored
	if r.st.Drain.Remaining != 3 || r.st.Drain.Deadline.Sub(r.st.Drain.StartedAt.Time) != 30*time.Minute {
		t.Errorf("it begins with %+v", r.st.Drain)
	}
	if got := r.st.History[0].Reason; got != "pods to evict: 3" {
		t.Errorf("drain-started says %q", got)
	}
	r.step(later)
	r.wantPods("config", "done", "elsewhere", "failed")
	if r.st.Drain.Evicted != 3 {
		t.Errorf("%d evicted, want 3", r.st.Drain.Evicted)
	}
	r.now = r.now.Add(time.Second)
	r.step(Never)
	r.want(v1alpha1.DrainCompleted, "drain-started", "drain-completed")
	if diff := cmp.Diff("all pods have left the node, 3 were evicted", r.st.Drain.Message); diff != "" {
		t.Error(diff)
	}
	r.step(Never) // no further step after the end
	r.want(v1alpha1.DrainCompleted, "drain-started", "drain-completed")
	if got := r.wire.evictions(); got != 3 {
		t.Errorf("%d evictions were asked for, want 3", got)
	}
}

func TestNothingToDo(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.step(Never)
	r.want(v1alpha1.DrainCompleted, "drain-completed")

	r = newFixture(t, Config{})
	r.st.DesiredActions.Drain = false
	r.step(Never)
	if r.st.Drain != nil || len(r.st.History) > 0 || r.d.ProgressOrWaitMessage(r.st) != "" {
		t.Errorf("a drain that nobody asked for: %+v", r.st)
	}
	r.node.UID = "another"
	if _, err := r.d.Step(t.Context(), r.node, r.st, r.now); err == nil {
		t.Error("a node of the same name is drained for another")
	}
}

// TestABudgetIsRespected verifies that a blocking disruption budget is reported, and that
// the eviction is retried until it is allowed.
func TestABudgetIsRespected(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.pod("api-1")
	r.pod("api-2")
	r.budget("api-pdb", "web", 1, 2)
	r.begin()
	r.step(later)
	if r.wire.evictions() != 2 || r.st.Drain.Evicted != 1 {
		t.Fatalf("%d evictions asked for and %d accepted, want 2 and 1", r.wire.evictions(), r.st.Drain.Evicted)
	}
	if len(r.st.Drain.BlockedPods) != 1 || r.st.Drain.BlockedPods[0].BlockedBy != r.ns+"/api-pdb" || !strings.Contains(r.st.Drain.BlockedPods[0].Message, "api-pdb") {
		t.Fatalf("kept: %+v", r.st.Drain.BlockedPods)
	}
	left := r.st.Drain.BlockedPods[0].Pod
	if want := "blocked: " + left + " (" + r.ns + "/api-pdb)"; !strings.Contains(r.st.Drain.Message, want) {
		t.Errorf("it says %q, want %q in it", r.st.Drain.Message, want)
	}
	r.step(later) // no retry at the same time
	if r.wire.evictions() != 2 {
		t.Errorf("a pod that is kept is asked for again at once")
	}
	if len(r.st.Drain.BlockedPods) != 1 {
		t.Errorf("while it is not asked for, it is not named: %+v", r.st.Drain)
	}
	r.counted("api-pdb", 1)
	r.now = r.now.Add(11 * time.Second) // the API server may have suggested ten
	r.step(later)
	if r.wire.evictions() != 3 {
		t.Errorf("it is not asked again: %d", r.wire.evictions())
	}

	r.pod("api-3", func(p *corev1.Pod) { p.Spec.NodeName = "another" }) // the replacement exists
	r.counted("api-pdb", 2)
	r.now = r.now.Add(time.Minute)
	r.step(later)
	r.wantPods("api-3")
	r.now = r.now.Add(time.Second)
	r.step(Never)
	r.want(v1alpha1.DrainCompleted, "drain-started", "drain-completed")
	if r.st.Drain.BlockedPods != nil || r.st.Drain.Evicted != 2 {
		t.Errorf("in the end: %+v", r.st.Drain)
	}
}

func TestSeveralBudgets(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.pod("api-1")
	r.budget("second", "web", 0, 1)
	r.budget("first", "web", 0, 1)
	r.budget("other", "else", 0, 0)
	r.begin()
	r.step(later)
	r.wantBlockers("api-1 by first, second")
	if m := r.st.Drain.BlockedPods[0].Message; !strings.Contains(m, "more than one PodDisruptionBudget") {
		t.Errorf("it says %q", m)
	}
}

// TestTerminatingIsNotGone verifies that a terminating pod counts as left, and makes the
// drain fail at its deadline.
func TestTerminatingIsNotGone(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{Deadline: 5 * time.Minute})
	r.pod("slow", slow)
	r.pod("quick")
	r.pod("guarded", app("db"))
	r.budget("db-pdb", "db", 1, 1)
	r.begin()
	r.step(later)
	r.wantPods("guarded", "slow+")
	r.now = r.now.Add(20 * time.Second)
	r.step(later)
	if r.st.Drain.Remaining != 2 || r.st.Drain.Terminating != 1 {
		t.Errorf("on their way: %+v", r.st.Drain)
	}
	r.wantBlockers("guarded by db-pdb") // the other pod is within its grace period
	r.now = r.now.Add(time.Minute)
	r.step(later)
	r.wantBlockers("guarded by db-pdb", "slow by terminating")
	r.now = r.st.Drain.Deadline.Time
	r.step(Never)
	r.want(v1alpha1.DrainFailed, "drain-started", "drain-failed")
	r.wantBlockers("guarded by db-pdb", "slow by terminating")
	told := r.st.History[1]
	want := "pods left after 5m0s (2): " + r.ns + "/guarded (" + r.ns + "/db-pdb), " + r.ns + "/slow (terminating)"
	if told.Outcome != "failed" || told.Reason != want {
		t.Errorf("drain-failed says %q %q, want %q", told.Outcome, told.Reason, want)
	}
	r.kill("slow")
	r.step(failedDelay)
	r.want(v1alpha1.DrainFailed, "drain-started", "drain-failed")
	r.kill("guarded") // a person has removed the pod
	r.step(Never)
	r.want(v1alpha1.DrainCompleted, "drain-started", "drain-failed", "drain-completed")
}

// TestGoneAtTheDeadline verifies that pods that have left by the last check do not make
// the drain fail.
func TestGoneAtTheDeadline(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.pod("a", slow)
	r.begin()
	r.step(later)
	r.kill("a")
	r.now = r.st.Drain.Deadline.Add(time.Hour)
	r.step(Never)
	r.want(v1alpha1.DrainCompleted, "drain-started", "drain-completed")
}

func TestForce(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.d = New(Config{Namespaces: []NamespaceRule{{Pattern: Pattern(r.ns), DeleteAfter: 10 * time.Minute, ForceDeleteAfter: 20 * time.Minute}}}, r.client, nil)
	r.pod("a", slow)
	r.budget("pdb", "web", 1, 1)
	r.begin()
	r.step(later)
	r.wantPods("a")
	r.now = r.now.Add(10*time.Minute - time.Second)
	r.step(later)
	r.wantPods("a")
	if after, err := r.d.Step(t.Context(), r.node, r.st, r.now); err != nil || after > time.Second {
		t.Errorf("it looks again in %s (%v), although it may be forced in a second", after, err)
	}
	r.now = r.now.Add(31 * time.Second)
	r.step(later)
	r.wantPods("a+") // with its grace period
	p, err := r.client.CoreV1().Pods(r.ns).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *p.DeletionGracePeriodSeconds != 30 {
		t.Errorf("it has %d seconds to end, want 30", *p.DeletionGracePeriodSeconds)
	}
	r.now = p.DeletionTimestamp.Add(20*time.Minute - time.Second) // by the clock of the API server, not of the test
	r.step(later)
	r.wantPods("a+")
	r.now = r.now.Add(time.Second)
	r.step(later)
	r.wantPods()
	r.now = r.now.Add(time.Second)
	r.step(Never)
	r.want(v1alpha1.DrainCompleted, "drain-started", "drain-completed")
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.d = New(Config{EmptyDir: TreatWait, Namespaces: []NamespaceRule{{Pattern: "none-*"}, {Pattern: Pattern(r.ns), Mode: ModeWaitThenEvict, EvictAfter: time.Minute}}}, r.client, nil)
	r.pod("a")
	r.pod("bare", orphan)
	r.pod("disk", volume(""))
	r.pod("memory", volume(corev1.StorageMediumMemory))
	r.begin()
	r.step(later)
	r.wantBlockers("a by waiting", "bare by waiting", "disk by waiting", "memory by waiting")
	r.now = r.now.Add(58 * time.Second)
	r.step(2 * time.Second)
	r.wantPods("a", "bare", "disk", "memory")
	r.now = r.now.Add(2 * time.Second)
	r.step(later)
	r.wantPods("bare", "disk")
	r.now = r.now.Add(time.Second)
	r.step(later)
	r.wantBlockers("bare by bare-pod", "disk by empty-dir")
	r.now = r.st.Drain.Deadline.Time
	r.step(Never)
	r.want(v1alpha1.DrainFailed, "drain-started", "drain-failed")
	r.wantPods("bare", "disk")
}

// TestTurns verifies that the limit of concurrent drains holds, also for drains of an
// earlier process.
func TestTurns(t *testing.T) {
	t.Parallel()
	first, second, third := newFixture(t, Config{MaxNodes: 2}), newFixture(t, Config{}), newFixture(t, Config{})
	second.d, third.d = first.d, first.d
	rigs := []*fixture{first, second, third}
	for _, r := range rigs {
		r.pod("a", slow)
	}
	first.begin()
	second.begin()
	third.step(slotRetryDelay)
	if third.st.Drain != nil || third.d.ProgressOrWaitMessage(third.st) != "waiting for a drain slot: at most 2 nodes are drained at a time" {
		t.Errorf("a third node: %+v, %q", third.st, third.d.ProgressOrWaitMessage(third.st))
	}
	first.step(later)
	first.kill("a")
	first.step(Never)
	third.begin()

	first = newFixture(t, Config{})
	first.pod("a", slow)
	first.d = third.d
	first.step(slotRetryDelay)
	second.d.Cancel(second.st, "the node is well again", second.now)
	second.want(v1alpha1.DrainCancelled, "drain-started", "drain-cancelled")
	first.begin()

	// A new process counts running drains.
	running := func() []types.UID { return []types.UID{first.node.UID, third.node.UID} }
	again := New(Config{MaxNodes: 2}, first.client, running)
	second.d, third.d = again, again
	second.step(slotRetryDelay)
	third.step(later)
	third.wantPods("a+")

	// Nodes without a recent step have lost their slots.
	fourth := newFixture(t, Config{})
	fourth.pod("a", slow)
	fourth.d = first.d
	fourth.step(slotRetryDelay)
	fourth.now = fourth.now.Add(slotTerm + time.Minute)
	fourth.begin()
}

func TestCancelledAndAskedForAgain(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.pod("a", slow)
	r.d.Cancel(r.st, "nothing to cancel", r.now)
	if r.st.Drain != nil || len(r.st.History) > 0 {
		t.Fatalf("a drain that never began is cancelled: %+v", r.st)
	}
	r.begin()
	r.st.DesiredActions.Drain = false
	r.step(Never)
	r.want(v1alpha1.DrainCancelled, "drain-started", "drain-cancelled")
	if got := r.st.History[1].Reason; got != "no rule requires the drain any more" {
		t.Errorf("it says %q", got)
	}
	r.d.Cancel(r.st, "again", r.now)
	r.wantPods("a")

	r.st.DesiredActions.Drain = true
	r.now = r.now.Add(time.Hour)
	r.step(0)
	r.want(v1alpha1.DrainRunning, "drain-started", "drain-cancelled")
	if !r.st.Drain.StartedAt.Time.Equal(r.now) {
		t.Errorf("its time began at %s", r.st.Drain.StartedAt)
	}
	r.step(later)
	r.kill("a")
	r.step(Never)
	r.want(v1alpha1.DrainCompleted, "drain-started", "drain-cancelled", "drain-completed")
}

// TestDryRun verifies that a dry run records its result once and evicts no pod.
func TestDryRun(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.st.DesiredActions.DryRun = true
	r.step(Never)
	if len(r.st.History) > 0 {
		t.Errorf("with nothing to drain it tells %+v", r.st.History)
	}
	r.pod("a")
	r.step(Never)
	r.step(Never)
	r.wantPods("a")
	if r.st.Drain != nil || len(r.st.History) != 1 || !r.st.History[0].DryRun || r.st.History[0].Reason != "pods that a drain would evict: 1" {
		t.Errorf("it tells %+v", r.st.History)
	}
}

// TestDryRunThatIsLifted verifies that a real drain is recorded after a dry run of the
// same session.
func TestDryRunThatIsLifted(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.st.DesiredActions.DryRun = true
	r.pod("a")
	r.step(Never)
	r.st.DesiredActions.DryRun = false
	r.step(0)
	r.want(v1alpha1.DrainRunning, "drain-started", "drain-started")
	if h := r.st.History; len(h) != 2 || !h[0].DryRun || h[1].DryRun {
		t.Errorf("it tells %+v", h)
	}
}

// TestANewProcessGoesOn verifies that a new process continues a drain and records nothing
// twice.
func TestANewProcessGoesOn(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	for _, name := range []string{"a", "b"} {
		r.pod(name, slow)
	}
	r.begin()
	stored := r.st.DeepCopy()
	r.step(later)
	r.wantPods("a+", "b+")

	r.st, r.d = stored, New(Config{}, r.client, nil) // it crashed before the write
	r.step(later)
	if r.wire.evictions() != 2 {
		t.Errorf("pods on their way are evicted again: %d evictions", r.wire.evictions())
	}
	r.kill("a")
	r.kill("b")
	r.step(Never)
	r.want(v1alpha1.DrainCompleted, "drain-started", "drain-completed")
	ids := []string{r.st.History[0].ID, r.st.History[1].ID}
	if ids[0] == ids[1] || slices.Contains(ids, "") {
		t.Errorf("ids %q", ids)
	}
}

// TestTheRateIsShared verifies that all nodes share the rate limit, and that delayed
// evictions follow soon.
func TestTheRateIsShared(t *testing.T) {
	t.Parallel()
	first, second := newFixture(t, Config{EvictionsPerSecond: 4, MaxPodsInFlight: 3}), newFixture(t, Config{})
	second.d = first.d
	second.now = first.now
	for _, r := range []*fixture{first, second} {
		for _, name := range []string{"a", "b"} {
			r.pod(name)
		}
		r.begin()
	}
	first.step(later)
	second.step(250 * time.Millisecond)
	first.wantPods()
	second.wantPods("b")
	second.now = second.now.Add(250 * time.Millisecond)
	second.step(later)
	second.wantPods()
}

func TestCountsAreMetrics(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.pod("a")
	reg := newRegistry()
	if err := r.d.RegisterMetrics(reg); err != nil {
		t.Fatal(err)
	}
	r.begin()
	r.step(later)
	got := gathered(t, reg)
	want := map[string]float64{"drain_pod_requests_total/evict/accepted": 1, "draining_nodes": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.now = r.now.Add(time.Second)
	r.step(Never)
	if got := gathered(t, reg); got["drains_total/Completed"] != 1 || got["draining_nodes"] != 0 {
		t.Errorf("in the end: %v", got)
	}
}
