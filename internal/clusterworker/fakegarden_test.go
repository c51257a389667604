package clusterworker

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A fakeShoot is a created Shoot.
type fakeShoot struct {
	cluster  string
	uid      string
	sent     int64
	deleting bool
}

// A fakeGarden keeps Shoots in memory, and records violations.
type fakeGarden struct {
	mu     sync.Mutex
	shoots map[string]*fakeShoot
	uids   int

	// on is called before each call; it can block, fail and panic.
	on func(ctx context.Context, v verb, name string) error
	// answer is called after a call was carried out.
	answer func(v verb, name string) error
	// read is called before each live read; it can fail and panic.
	read func(name string) error
	// probed returns the result of a probe.
	probed func(context.Context) error

	calls      map[string]int // by name
	begun      []time.Time
	probes     []time.Time
	running    map[string]int // by name
	inFlight   int
	most       int
	violations []string
}

func newFakeGarden() *fakeGarden {
	return &fakeGarden{shoots: map[string]*fakeShoot{}, calls: map[string]int{}, running: map[string]int{}}
}

func (g *fakeGarden) enter(ctx context.Context, v verb, name string) (func(), error) {
	g.mu.Lock()
	g.calls[name]++
	g.begun = append(g.begun, time.Now())
	g.inFlight++
	g.most = max(g.most, g.inFlight)
	if g.running[name]++; g.running[name] > 1 {
		g.violations = append(g.violations, "two calls at a time for "+name)
	}
	on := g.on
	g.mu.Unlock()
	leave := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inFlight--
		g.running[name]--
	}
	if on == nil {
		return leave, nil
	}
	defer func() {
		if p := recover(); p != nil {
			leave()
			panic(p)
		}
	}()
	return leave, on(ctx, v, name)
}

func (g *fakeGarden) ApplyShoot(ctx context.Context, m shoot.Manifest, seen bool) (shoot.Applied, error) {
	name := m.Metadata.Name
	leave, err := g.enter(ctx, verbApply, name)
	defer leave()
	if err != nil {
		return shoot.Applied{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	generation, _ := strconv.ParseInt(m.Metadata.Annotations[shoot.AnnotationGeneration], 10, 64)
	cluster := m.Metadata.Labels[shoot.LabelCluster]
	s, ok := g.shoots[name]
	switch {
	case ok && s.cluster != cluster:
		return shoot.Applied{}, shoot.NewClassErrorf(shoot.ClassForeign, "%q belongs to another cluster", name)
	case ok && s.sent > generation:
		return shoot.Applied{}, shoot.NewClassErrorf(shoot.ClassConflict, "%q is newer", name)
	case ok && !seen && s.sent == 0:
		g.violations = append(g.violations, "impossible")
	}
	applied := shoot.Applied{Created: !ok}
	if !ok {
		g.uids++
		s = &fakeShoot{cluster: cluster, uid: fmt.Sprintf("uid-%d", g.uids)}
		g.shoots[name] = s
	}
	applied.Changed, applied.SentBefore = ok && s.sent != generation, s.sent
	s.sent = generation
	applied.UID, applied.Generation = s.uid, generation
	if g.answer != nil {
		if err := g.answer(verbApply, name); err != nil {
			return shoot.Applied{}, err
		}
	}
	return applied, nil
}

func (g *fakeGarden) DeleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error) {
	leave, err := g.enter(ctx, verbDelete, ref.Name)
	defer leave()
	if err != nil {
		return shoot.Deletion{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.shoots[ref.Name]
	switch {
	case !ok:
		return shoot.Deletion{Absent: true}, nil
	case s.cluster != ref.Cluster || ref.Installation != "inst":
		return shoot.Deletion{}, shoot.NewClassErrorf(shoot.ClassForeign, "%q belongs to another cluster", ref.Name)
	}
	s.deleting = true
	if g.answer != nil {
		return shoot.Deletion{UID: s.uid}, g.answer(verbDelete, ref.Name)
	}
	return shoot.Deletion{UID: s.uid}, nil
}

func (g *fakeGarden) GetShoot(_ context.Context, name string) (shoot.Observed, error) {
	g.mu.Lock()
	read := g.read
	g.mu.Unlock()
	if read != nil {
		if err := read(name); err != nil {
			return shoot.Observed{}, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.shoots[name]
	if !ok {
		return shoot.Observed{}, shoot.ErrNotFound
	}
	return shoot.Observed{Name: name, UID: s.uid, Cluster: s.cluster, Installation: "inst", Generation: s.sent, Deleting: s.deleting}, nil
}

func (g *fakeGarden) Probe(ctx context.Context) error {
	g.mu.Lock()
	g.probes = append(g.probes, time.Now())
	probed := g.probed
	g.mu.Unlock()
	if probed != nil {
		return probed(ctx)
	}
	return nil
}

// set changes the behavior of the garden.
func (g *fakeGarden) set(on func(context.Context, verb, string) error, probed func(context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on, g.probed = on, probed
}

func (g *fakeGarden) total() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.calls {
		n += c
	}
	return n
}

// wantSound checks the invariants.
func (g *fakeGarden) wantSound(t *testing.T, most int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range g.violations {
		t.Error(v)
	}
	if g.most > most {
		t.Errorf("%d calls at a time, want %d at most", g.most, most)
	}
}

// takes is a call that takes the given time, or until its deadline.
func takes(d time.Duration) func(context.Context, verb, string) error {
	return func(ctx context.Context, _ verb, _ string) error {
		if err := backoff.Sleep(ctx, d); err != nil {
			return shoot.NewClassErrorf(shoot.ClassUnavailable, "no answer: %w", err)
		}
		return nil
	}
}

// refuses is a call that fails at once.
func refuses(c shoot.Class) func(context.Context, verb, string) error {
	return func(context.Context, verb, string) error { return shoot.NewClassErrorf(c, "refused as %s", c) }
}
