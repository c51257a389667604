package clusterworker

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const (
	stormWorkers  = 3
	stormClusters = 45
	// stormTime is how long changes are made; disasters may take longer to end.
	stormTime = 35 * time.Second
)

// TestStorm: whatever happens, database and garden agree when it is over, no
// cluster ever has two Shoots or goes back to an older change, and no two workers
// write to one Shoot at the same time. It stops the garden that all tests share,
// and so does not run beside them.
func TestStorm(t *testing.T) { //nolint:paralleltest // see above
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SEED=%q: %v", text, err)
		}
	}
	t.Logf("again: SEED=%d go test -run TestStorm ./test/clusterworker", seed)
	s := newStorm(t, seed)
	s.blow()
	s.calm()
	s.wantAgreement()
	s.wantOrder()
	t.Logf("seed %d: %d clusters, %d changes, %d requests that write, %s", seed, len(s.clusters), s.changes,
		len(s.book.writes(func(passage) bool { return true })), time.Since(s.book.began).Round(time.Second))
}

// A storm is a rig with a PostgreSQL server of its own.
type storm struct {
	*editor
	cfg    pgserver.Config
	server *pgserver.Server
	// The database is struck by one disaster at a time, and so is the garden.
	database, garden sync.Mutex
	disasters        sync.WaitGroup
}

func newStorm(t *testing.T, seed uint64) *storm {
	t.Helper()
	s := &storm{cfg: serverConfig(t)}
	var err error
	if s.server, err = pgserver.Start(t.Context(), s.cfg, quiet()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.server.Close(); err != nil {
			t.Error(err)
		}
	})
	s.cfg.Port = s.server.Port()
	if err := postgres.Migrate(t.Context(), postgres.Config{URL: settings.Secret(s.server.URL())}, quiet()); err != nil {
		t.Fatal(err)
	}
	s.editor = &editor{rig: newRigOn(t, s.server.URL(), seed)}
	s.gardenlet(400 * time.Millisecond)
	s.witness()
	for range stormWorkers {
		w := s.newWorker(map[string]string{
			"RECONCILE_INTERVAL": "3s", "STATUS_TERM": "3s", "STATUS_CALL_TIMEOUT": "2s", "STATUS_POLL_INTERVAL": "2s",
		})
		if err := w.start(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// blow lets everything go wrong while clusters are changed.
func (s *storm) blow() {
	s.Helper()
	s.badWeather()
	ctx, cancel := context.WithTimeout(s.Context(), stormTime)
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(func() { s.strike(ctx) })
	parts.Go(func() { s.onCall(ctx) })
	for ctx.Err() == nil {
		if err := s.random(s.Context(), stormClusters); err != nil {
			s.Fatal(err)
		}
		_ = pause(ctx, time.Duration(s.dice.Int64N(int64(120*time.Millisecond))))
	}
	parts.Wait()
	s.disasters.Wait()
}

// badWeather has requests go wrong. What becomes of a request follows from the
// seed, the Shoot and how many there were for it before.
func (s *storm) badWeather() {
	var mu sync.Mutex
	count := map[string]uint64{}
	s.way.faults(func(q *request) fault {
		key := q.method + " " + q.shoot
		if q.shoot == "" {
			key = q.method + " " + q.http.URL.Path + q.by.String()
		}
		mu.Lock()
		count[key]++
		n := count[key]
		mu.Unlock()
		h := fnv.New64a()
		_, _ = h.Write([]byte(key))
		return weather(rand.New(rand.NewPCG(s.seed, h.Sum64()+n)), q)
	})
}

// onCall has some of what failed tried again, as an engineer would who looks at
// it all the time: the specified time to wait is a minute at least.
func (s *storm) onCall(ctx context.Context) {
	for pause(ctx, time.Second) == nil {
		_, _ = s.owner.Exec(ctx, `select tenant.retry_cluster_sync(cluster_id) from (
			select cluster_id from tenant.cluster_sync
			where synced is null and sync_error is not null and claim_token is null and due_at > now() order by random() limit 5) waiting`)
	}
}

// calm ends the storm: nothing goes wrong any more.
func (s *storm) calm() {
	s.Helper()
	s.way.clear()
	s.book.note("", "the storm is over")
	s.await("requests that are late", func() error {
		if n := s.way.keeping.Load(); n > 0 {
			return fmt.Errorf("%d are under way", n)
		}
		return nil
	})
	for _, w := range s.workers {
		w.now().wantHealth(s.T, "/readyz", 200)
	}
}

// wantOrder holds the storm against what must never be.
func (s *storm) wantOrder() {
	s.Helper()
	s.checkOverlaps()
	s.checkNames()
	found := s.book.found()
	for i, b := range found {
		s.Errorf("seed %d: cluster %s, Shoot %s: %s", s.seed, b.cluster, b.shoot, b.text)
		if i == 0 {
			s.Log(s.history(b.cluster))
		}
	}
}

// checkOverlaps looks for two workers that wrote to one Shoot at the same time.
// A request ends when the garden has answered it: what a killed process has sent
// goes on without it. Requests that only read change nothing, and may overlap.
//
// Two may overlap that no lease can keep apart: one that the network kept for
// longer than the lease, or that the garden itself took so long for; and one that
// was about to be sent when its process was stopped. Of those the garden must
// have refused at least one.
func (s *storm) checkOverlaps() {
	byShoot := map[string][]passage{}
	for _, p := range s.book.writes(func(p passage) bool { return p.shoot != "" }) {
		byShoot[p.shoot] = append(byShoot[p.shoot], p)
	}
	for name, list := range byShoot {
		slices.SortFunc(list, func(a, b passage) int { return a.from.Compare(b.from) })
		for i, a := range list {
			for _, b := range list[i+1:] {
				if a.by == b.by || !b.from.Before(a.to) {
					continue
				}
				beyond := s.beyondLease(a) || s.beyondLease(b)
				if !beyond || a.wrote() && b.wrote() {
					s.book.wrong(cmp.Or(a.cluster, b.cluster), name, "two at once: %s and %s", a, b)
				}
			}
		}
	}
}

// beyondLease is whether something but the worker may have kept a request for
// longer than the lease under which it was made.
func (s *storm) beyondLease(p passage) bool {
	if p.late || p.to.Sub(p.from) > lease-callTimeout {
		return true
	}
	return slices.ContainsFunc(s.workers, func(w *worker) bool { return w.wasStopped(p.by, p.from) })
}

// checkNames looks for clusters for which two Shoots were asked for.
func (s *storm) checkNames() {
	names := map[string]string{}
	for _, p := range s.book.writes(func(p passage) bool { return p.cluster != "" }) {
		if had := names[p.cluster]; had != "" && had != p.shoot {
			s.book.wrong(p.cluster, p.shoot, "two Shoots were asked for: %s and %s", had, p.shoot)
		}
		names[p.cluster] = p.shoot
	}
}
