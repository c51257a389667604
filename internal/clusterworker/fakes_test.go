package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("connection refused")

// A fakeMaker makes Shoots with the labels of their cluster. Specs can change its
// behavior.
type fakeMaker struct {
	// on is called before each Make.
	on func(Claim)
	// name returns the nth choice; nil means the cluster's name and n.
	name func(c Claim, n int) string
}

func (m *fakeMaker) BuildManifest(claim Claim) (shoot.Manifest, error) {
	if m.on != nil {
		m.on(claim)
	}
	switch string(claim.Spec) {
	case "bad":
		return shoot.Manifest{}, errors.New("no region\x00 \xff")
	case "panic":
		panic("out of my depth")
	}
	return shoot.Manifest{Metadata: shoot.Metadata{
		Name: claim.ShootName, Labels: map[string]string{shoot.LabelCluster: claim.ClusterID},
		Annotations: map[string]string{shoot.AnnotationGeneration: strconv.FormatInt(claim.Generation, 10)},
	}}, nil
}

func (m *fakeMaker) DeriveShootName(claim Claim, choice int) string {
	if m.name != nil {
		return m.name(claim, choice)
	}
	return fmt.Sprintf("%s-%d", claim.Name, choice)
}

// A fakeWaker passes notifications on.
type fakeWaker struct {
	wakes chan struct{}
	mu    sync.Mutex
	err   error
}

func newFakeWaker() *fakeWaker { return &fakeWaker{wakes: make(chan struct{}, 1)} }

func (w *fakeWaker) NotificationChannel() <-chan struct{} { return w.wakes }

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

// told returns the actions of a cluster, in order.
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

// wantAgreement checks that everything is synced at its last generation, in the store
// and in the garden.
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
