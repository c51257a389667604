package clusterworker

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
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
	// stormPatience is how long it may take until all agree when the storm is over.
	// Nobody retries what failed, and the second wait after a failure is two minutes.
	stormPatience = 6 * time.Minute
)

// A stormPlan says how a storm goes.
type stormPlan struct {
	timing
	// weather is how long requests go wrong and disasters begin, which may end later.
	weather time.Duration
	// edits is how long changes are made. Between two of them there is pace at most.
	edits, pace time.Duration
	disasters   []disaster
}

// TestStorm holds that database and garden agree after any faults, with nobody who
// helps. Owners change clusters through the fleet API meanwhile. No cluster ever has
// two Shoots or goes back to an older change, no Shoot of a deleted cluster stays, and
// no two workers write to one Shoot at the same time. Times are short, so that leases
// end often.
func TestStorm(t *testing.T) { //nolint:paralleltest // it stops the garden that all tests share
	short := shortTiming()
	// With a short call timeout, a worker can give up the creation of a Shoot, and the
	// garden on a busy machine can make it after the cluster is deleted and its row gone.
	maps.Copy(short.env, map[string]string{
		"RECONCILE_INTERVAL": "3s", "CLUSTER_WORKER_LEADER_LEASE_DURATION": "3s", "STATUS_CALL_TIMEOUT": "2s", "STATUS_POLL_INTERVAL": "2s",
		"RECONCILE_DELETE_ORPHANS": "true", "RECONCILE_ORPHAN_MIN_AGE": "10s",
	})
	runStorm(t, stormPlan{
		timing: short, weather: 35 * time.Second, edits: 35 * time.Second, pace: 120 * time.Millisecond, disasters: shortDisasters(),
	})
}

// TestStormAtDefaultTimes is TestStorm with workers that have the default settings.
// The lease of a killed worker ends after a minute, and so does a call without an
// answer. Changes go on for longer than that, so that they meet the takeovers.
func TestStormAtDefaultTimes(t *testing.T) { //nolint:paralleltest // it stops the garden that all tests share
	runStorm(t, stormPlan{
		timing: defaultTiming(t), weather: 25 * time.Second, edits: 75 * time.Second, pace: 300 * time.Millisecond, disasters: defaultDisasters(),
	})
}

func runStorm(t *testing.T, plan stormPlan) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SEED=%q: %v", text, err)
		}
	}
	t.Logf("again: SEED=%d go test -run '^%s$' ./test/clusterworker", seed, t.Name())
	s := newStorm(t, seed, plan)
	s.blow()
	s.calm()
	s.wantAgreementWithin(stormPatience)
	s.wantOrder()
	deleted := 0
	for _, c := range s.clusters {
		if c.deleted {
			deleted++
		}
	}
	t.Logf("seed %d: %d clusters, %d of them deleted, %d changes, %d requests that write, %s", seed, len(s.clusters), deleted, s.changes,
		len(s.book.writes(func(passage) bool { return true })), time.Since(s.book.began).Round(time.Second))
}

// A storm is a fixture with a PostgreSQL server of its own.
type storm struct {
	*editor
	plan   stormPlan
	cfg    pgserver.Config
	server *pgserver.Server
	// The database is struck by one disaster at a time, and so is the garden.
	database, garden sync.Mutex
	disasters        sync.WaitGroup
}

func newStorm(t *testing.T, seed uint64, plan stormPlan) *storm {
	t.Helper()
	s := &storm{plan: plan, cfg: serverConfig(t)}
	var err error
	if s.server, err = pgserver.Start(t.Context(), s.cfg, quiet()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.server.Close(); err != nil {
			t.Error(err)
		}
	})
	s.cfg.Port = s.server.LoopbackPort()
	if err := postgres.MigrateSchema(t.Context(), postgres.Config{URL: settings.Secret(s.server.DatabaseURL())}, quiet()); err != nil {
		t.Fatal(err)
	}
	s.editor = &editor{fixture: newFixtureOn(t, s.server.DatabaseURL(), seed), api: newAPIWriter(t, s.server.DatabaseURL())}
	s.timing = plan.timing
	s.gardenlet(400 * time.Millisecond)
	s.witness()
	for range stormWorkers {
		if err := s.newWorker(nil).start(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// blow lets everything go wrong while clusters are changed.
func (s *storm) blow() {
	s.Helper()
	s.badWeather()
	ctx, cancel := context.WithTimeout(s.Context(), s.plan.edits)
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(func() {
		weather, cancel := context.WithTimeout(s.Context(), s.plan.weather)
		defer cancel()
		s.strike(weather)
		<-weather.Done()
		s.way.clear()
		s.book.note("", "the faults of requests end")
	})
	for ctx.Err() == nil {
		if err := s.random(s.Context(), stormClusters); err != nil {
			s.Fatal(err)
		}
		_ = pause(ctx, time.Duration(s.dice.Int64N(int64(s.plan.pace))))
	}
	parts.Wait()
	s.disasters.Wait()
}

// badWeather has requests go wrong. What becomes of a request follows from the
// seed, the cluster's name, of which the Shoot's begins with a part, and how many there
// were for it before.
func (s *storm) badWeather() {
	var mu sync.Mutex
	count := map[string]uint64{}
	s.way.faults(func(q *request) fault {
		key := q.method + " " + nameIn(q.shoot)
		if q.shoot == "" {
			key = q.method + " " + q.http.URL.Path + q.by.String()
		}
		mu.Lock()
		count[key]++
		n := count[key]
		mu.Unlock()
		h := fnv.New64a()
		_, _ = h.Write([]byte(key))
		f := weather(rand.New(rand.NewPCG(s.seed, h.Sum64()+n)), q, s.timing.lease)
		if f.kind == late && q.creates() && !s.isFirst(q.cluster, creationLate) {
			return fault{}
		}
		return f
	})
}

// nameIn is the part of a Shoot's name that is not the hash of the cluster's id, which
// the fleet API makes and no seed settles.
func nameIn(shoot string) string {
	return shoot[:max(0, strings.LastIndexByte(shoot, '-'))]
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
// goes on without it. It ends earlier where its sender gave it up and lived on: the
// call is over by then, its result may be written, and another worker may be next.
// What the garden does with such a request is for the Shoot's version to settle.
// Requests that only read change nothing, and may overlap.
//
// Two may overlap that no lease can keep apart: one that the network kept for
// longer than the lease, or that the garden itself took so long for; and one that
// was about to be sent when its process was stopped. Of those the garden must
// have refused at least one.
func (r *fixture) checkOverlaps() {
	byShoot := map[string][]passage{}
	for _, p := range r.book.writes(func(p passage) bool { return p.shoot != "" }) {
		byShoot[p.shoot] = append(byShoot[p.shoot], p)
	}
	for name, list := range byShoot {
		slices.SortFunc(list, func(a, b passage) int { return a.from.Compare(b.from) })
		for i, a := range list {
			for _, b := range list[i+1:] {
				if a.by == b.by || !b.from.Before(r.inCall(a)) {
					continue
				}
				beyond := r.beyondLease(a) || r.beyondLease(b)
				if !beyond || a.wrote() && b.wrote() {
					r.book.wrong(cmp.Or(a.cluster, b.cluster), name, "two at once: %s and %s", a, b)
				}
			}
		}
	}
}

// beyondLease is whether something but the worker may have kept a request for
// longer than the lease under which it was made.
func (r *fixture) beyondLease(p passage) bool {
	if p.late || p.to.Sub(p.from) > max(r.timing.lease-r.timing.callTimeout, r.timing.lease/2) {
		return true
	}
	return slices.ContainsFunc(r.workers, func(w *worker) bool { return w.wasStopped(p.by, p.from) })
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
