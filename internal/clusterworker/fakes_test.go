package clusterworker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("connection refused")

// A fakeRow is a row of cluster_sync with its cluster.
type fakeRow struct {
	id, spec            string
	deleting            bool
	generation          int64
	synced              bool
	syncedGeneration    int64
	dueAt               time.Time
	token               int64 // 0 is none
	owner               string
	attempts            int
	err                 string
	class               ErrorClass
	shootName, shootUID string
	deletionSent        bool
	gone                bool
	unsyncedSince       time.Time
}

// A fakeStore keeps rows in memory, under the rules of the database: leases,
// fences, generations, names that are unique.
type fakeStore struct {
	mu    sync.Mutex
	rows  map[string]*fakeRow
	token int64

	// fault is asked before each request, and wrote after it was carried out; an
	// error of either is the request's.
	fault, wrote func(context.Context, request) error
	// notify is called for each change, nil is nobody.
	notify func()

	claimed    []int // rows of each claim
	claimTimes []time.Time
	asked      map[request]int
	batches    []int
	released   []string
	lost       int
}

func newFakeStore() *fakeStore {
	return &fakeStore{rows: map[string]*fakeRow{}, asked: map[request]int{}}
}

func (s *fakeStore) before(ctx context.Context, r request) error {
	s.mu.Lock()
	s.asked[r]++
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, r); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (s *fakeStore) after(ctx context.Context, r request) error {
	s.mu.Lock()
	wrote := s.wrote
	s.mu.Unlock()
	if wrote == nil {
		return nil
	}
	return wrote(ctx, r)
}

func (s *fakeStore) setFault(fault func(context.Context, request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *fakeStore) Claim(ctx context.Context, owner string, slots int, lease time.Duration) ([]Claim, error) {
	began := time.Now()
	if err := s.before(ctx, toClaim); err != nil {
		return nil, err
	}
	list := s.claim(owner, slots, lease, began)
	return list, s.after(ctx, toClaim)
}

func (s *fakeStore) claim(owner string, slots int, lease time.Duration, began time.Time) []Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var due []*fakeRow
	for _, r := range s.rows {
		if !r.synced && !r.dueAt.After(now) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *fakeRow) int {
		if c := a.dueAt.Compare(b.dueAt); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	due = due[:min(len(due), slots)]
	list := make([]Claim, 0, len(due))
	for _, r := range due {
		s.token++
		r.token, r.owner, r.dueAt = s.token, owner, now.Add(lease)
		list = append(list, Claim{
			ClusterID: r.id, Token: r.token, Until: began.Add(lease), Generation: r.generation, ClusterGeneration: r.generation,
			Attempts: r.attempts, UnsyncedSince: r.unsyncedSince, Tenant: "acme", Name: r.id, Spec: json.RawMessage(r.spec),
			Deleting: r.deleting, ShootName: r.shootName, ShootUID: r.shootUID,
		})
	}
	s.claimed = append(s.claimed, len(list))
	s.claimTimes = append(s.claimTimes, began)
	return list
}

func (s *fakeStore) Name(ctx context.Context, names []Naming) ([]Naming, error) {
	if err := s.before(ctx, toName); err != nil {
		return nil, err
	}
	s.mu.Lock()
	used := map[string]string{}
	for _, r := range s.rows {
		used[r.shootName] = r.id
	}
	var taken []Naming
	for _, n := range names {
		r := s.rows[n.ClusterID]
		if r == nil || r.token != n.Token {
			continue
		}
		if other, ok := used[n.ShootName]; ok && other != n.ClusterID {
			taken = append(taken, n)
			continue
		}
		r.shootName = n.ShootName
		used[n.ShootName] = n.ClusterID
	}
	s.mu.Unlock()
	return taken, s.after(ctx, toName)
}

func (s *fakeStore) Complete(ctx context.Context, results []Result) ([]string, error) {
	if err := s.before(ctx, toComplete); err != nil {
		return nil, err
	}
	s.mu.Lock()
	var lost []string
	for _, res := range results {
		r := s.rows[res.ClusterID]
		if r == nil || r.token != res.Token {
			lost = append(lost, res.ClusterID)
			s.lost++
			continue
		}
		r.complete(res)
	}
	s.batches = append(s.batches, len(results))
	s.mu.Unlock()
	return lost, s.after(ctx, toComplete)
}

func (r *fakeRow) complete(res Result) {
	now := time.Now()
	same := r.generation == res.Generation
	r.token, r.owner, r.dueAt = 0, "", now
	if res.Err != nil {
		r.err, r.class = res.Err.Error(), res.Class
		if same {
			r.dueAt = now.Add(res.Delay)
			if res.Spend {
				r.attempts++
			}
		}
		return
	}
	r.err, r.class, r.attempts = "", "", 0
	r.syncedGeneration = res.Generation
	if same {
		r.synced, r.unsyncedSince = true, time.Time{}
	}
	if res.Deleting {
		r.deletionSent, r.gone = true, res.Absent
	} else {
		r.shootUID = res.Applied.UID
	}
}

func (s *fakeStore) Release(ctx context.Context, claims []Claim) error {
	if err := s.before(ctx, toRelease); err != nil {
		return err
	}
	s.mu.Lock()
	for _, c := range claims {
		if r := s.rows[c.ClusterID]; r != nil && r.token == c.Token {
			r.token, r.owner, r.dueAt = 0, "", time.Now()
		}
		s.released = append(s.released, c.ClusterID)
	}
	s.mu.Unlock()
	return s.after(ctx, toRelease)
}

// edit changes a cluster, or makes it.
func (s *fakeStore) edit(id string, change func(*fakeRow)) {
	s.mu.Lock()
	now := time.Now()
	r := s.rows[id]
	if r == nil {
		r = &fakeRow{id: id, spec: "{}"}
		s.rows[id] = r
	}
	if change != nil {
		change(r)
	}
	r.generation++
	r.attempts, r.synced = 0, false
	if r.unsyncedSince.IsZero() {
		r.unsyncedSince = now
	}
	if r.token == 0 || !r.dueAt.After(now) {
		r.dueAt = now
	}
	notify := s.notify
	s.mu.Unlock()
	if notify != nil {
		notify()
	}
}

func (s *fakeStore) delete(id string) { s.edit(id, func(r *fakeRow) { r.deleting = true }) }

func (s *fakeStore) row(id string) fakeRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.rows[id]
}

// unsynced are the ids of rows that are not synced.
func (s *fakeStore) unsynced() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, r := range s.rows {
		if !r.synced {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (s *fakeStore) count(r request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[r]
}

// A fakeShoot is one that was made.
type fakeShoot struct {
	cluster  string
	uid      string
	sent     int64
	deleting bool
}

// A fakeGarden keeps Shoots in memory, and notes what must never be.
type fakeGarden struct {
	mu     sync.Mutex
	shoots map[string]*fakeShoot
	uids   int

	// on is asked before each call; it can take its time, fail and panic.
	on func(ctx context.Context, v verb, name string) error
	// answer is asked after a call was carried out.
	answer func(v verb, name string) error
	// probed is what a probe gives.
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
		return shoot.Applied{}, shoot.Errorf(shoot.ClassForeign, "%q belongs to another cluster", name)
	case ok && s.sent > generation:
		return shoot.Applied{}, shoot.Errorf(shoot.ClassConflict, "%q is newer", name)
	case ok && !seen && s.sent == 0:
		g.violations = append(g.violations, "impossible")
	}
	applied := shoot.Applied{Created: !ok}
	if !ok {
		g.uids++
		s = &fakeShoot{cluster: cluster, uid: fmt.Sprintf("uid-%d", g.uids)}
		g.shoots[name] = s
	}
	applied.Changed = ok && s.sent != generation
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
		return shoot.Deletion{}, shoot.Errorf(shoot.ClassForeign, "%q belongs to another cluster", ref.Name)
	}
	s.deleting = true
	if g.answer != nil {
		return shoot.Deletion{}, g.answer(verbDelete, ref.Name)
	}
	return shoot.Deletion{}, nil
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

// set changes how the garden behaves.
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

// wantSound checks what must hold at any time.
func (g *fakeGarden) wantSound(t *testing.T, slots int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range g.violations {
		t.Error(v)
	}
	if g.most > slots {
		t.Errorf("%d calls at a time with %d slots", g.most, slots)
	}
}

// takes is a call that takes some time, or as long as it may.
func takes(d time.Duration) func(context.Context, verb, string) error {
	return func(ctx context.Context, _ verb, _ string) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return shoot.Errorf(shoot.ClassUnavailable, "no answer: %w", context.Cause(ctx))
		}
	}
}

// refuses is a call that fails at once.
func refuses(c shoot.Class) func(context.Context, verb, string) error {
	return func(context.Context, verb, string) error { return shoot.Errorf(c, "refused as %s", c) }
}

// A fakeMaker makes Shoots that say whose they are. Specs tell it what to do
// otherwise.
type fakeMaker struct {
	// on is called before each Make.
	on func(Claim)
	// name is the nth choice, nil is the cluster's name and n.
	name func(c Claim, n int) string
}

func (m *fakeMaker) Make(c Claim) (shoot.Manifest, error) {
	if m.on != nil {
		m.on(c)
	}
	switch string(c.Spec) {
	case "bad":
		return shoot.Manifest{}, errors.New("no region\x00 \xff")
	case "panic":
		panic("out of my depth")
	}
	return shoot.Manifest{Metadata: shoot.Metadata{
		Name: c.ShootName, Labels: map[string]string{shoot.LabelCluster: c.ClusterID},
		Annotations: map[string]string{shoot.AnnotationGeneration: strconv.FormatInt(c.Generation, 10)},
	}}, nil
}

func (m *fakeMaker) Name(c Claim, n int) string {
	if m.name != nil {
		return m.name(c, n)
	}
	return fmt.Sprintf("%s-%d", c.Name, n)
}

// A fakeWaker passes notifications on.
type fakeWaker struct {
	wakes chan struct{}
	mu    sync.Mutex
	err   error
}

func newFakeWaker() *fakeWaker { return &fakeWaker{wakes: make(chan struct{}, 1)} }

func (w *fakeWaker) Wakes() <-chan struct{} { return w.wakes }

func (w *fakeWaker) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *fakeWaker) set(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *fakeWaker) wake() {
	select {
	case w.wakes <- struct{}{}:
	default:
	}
}

// A fakeRecorder keeps changes.
type fakeRecorder struct {
	mu      sync.Mutex
	changes []Change
}

func (r *fakeRecorder) Record(_ context.Context, c Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
}

// told are the actions of a cluster, in order.
func (r *fakeRecorder) told(id string) (list []Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.changes {
		if c.ClusterID == id {
			list = append(list, c.Action)
		}
	}
	return list
}

// wantAgreement checks that everything is synced at its last generation, and
// that Gardener has it so.
func wantAgreement(t *testing.T, s *fakeStore, g *fakeGarden) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.rows)) {
		if t.Failed() {
			return // one is enough to read
		}
		r := s.rows[id]
		made := g.shoots[r.shootName]
		switch {
		case !r.synced || r.syncedGeneration != r.generation || r.err != "" || r.attempts != 0 || r.token != 0:
			t.Errorf("%s is not synced: %+v", id, *r)
		case r.deleting && made != nil && !made.deleting:
			t.Errorf("%s is still there", id)
		case !r.deleting && (made == nil || made.sent != r.generation || made.cluster != id || made.uid != r.shootUID):
			t.Errorf("%s is %+v in Gardener and %+v in the database", id, made, *r)
		}
	}
	clusters := map[string]string{}
	for name, made := range g.shoots {
		if other, ok := clusters[made.cluster]; ok {
			t.Errorf("%s has two Shoots, %s and %s", made.cluster, name, other)
		}
		clusters[made.cluster] = name
	}
}
