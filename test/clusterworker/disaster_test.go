package clusterworker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
)

// A disaster strikes something, and makes it good again before it returns. What
// it draws it draws from its own dice.
type disaster struct {
	name   string
	strike func(s *storm, dice *rand.Rand) error
}

// shortDisasters are those of a storm with short times, in no order.
func shortDisasters() []disaster {
	kill := disaster{"kill a worker", (*storm).killWorker}
	halt := disaster{"stop a worker for longer than its lease", (*storm).stopWorker}
	deaf := disaster{"end the connections to the database", (*storm).endConnections}
	return append(outages(), kill, kill, kill, kill, halt, halt, halt, deaf, deaf)
}

// defaultDisasters are those of a storm at default times, in no order. Only one worker
// is stopped for longer than its lease, because that takes most of the storm.
func defaultDisasters() []disaster {
	kill := disaster{"kill a worker", (*storm).killWorker}
	return append(outages(), kill, kill, kill, kill,
		disaster{"stop a worker for longer than its lease", (*storm).stopWorker},
		disaster{"end the connections to the database", (*storm).endConnections})
}

// outages are those of what the workers depend on.
func outages() []disaster {
	return []disaster{
		{"restart PostgreSQL", (*storm).restartPostgres},
		{"make the database read-only", (*storm).readOnly},
		{"stop Gardener's API server", (*storm).stopGarden},
	}
}

// strike has all disasters happen within the storm, one beginning after the
// other, so that some meet.
func (s *storm) strike(ctx context.Context) {
	dice := rand.New(rand.NewPCG(s.seed, 1))
	all := s.plan.disasters
	dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	share := s.plan.weather * 3 / 4 / time.Duration(len(all))
	for i, d := range all {
		if pause(ctx, share/2+time.Duration(dice.Int64N(int64(share)))) != nil {
			return
		}
		own := rand.New(rand.NewPCG(s.seed, uint64(i)+2))
		s.disasters.Go(func() {
			s.book.note("", "disaster: %s", d.name)
			if err := d.strike(s, own); err != nil {
				s.Errorf("seed %d: %s: %v", s.seed, d.name, err)
			}
			s.book.note("", "over: %s", d.name)
		})
	}
}

// within draws a time.
func within(dice *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(dice.Int64N(int64(to-from)))
}

// holdAnyWorker draws a worker that no other disaster holds, and locks its busy. If all
// are held, it waits for the one that it drew first.
func (s *storm) holdAnyWorker(dice *rand.Rand) *worker {
	first := dice.IntN(len(s.workers))
	for i := range s.workers {
		if w := s.workers[(first+i)%len(s.workers)]; w.busy.TryLock() {
			return w
		}
	}
	w := s.workers[first]
	w.busy.Lock()
	return w
}

func (s *storm) killWorker(dice *rand.Rand) error {
	w := s.holdAnyWorker(dice)
	defer w.busy.Unlock()
	if err := w.now().running(); err != nil {
		return err // of its own accord
	}
	w.kill()
	if err := pause(s.Context(), within(dice, 0, 2*time.Second)); err != nil {
		return err
	}
	return w.start()
}

func (s *storm) stopWorker(dice *rand.Rand) error {
	w := s.holdAnyWorker(dice)
	defer w.busy.Unlock()
	goOn, err := w.halt()
	if err != nil {
		return err
	}
	_ = pause(s.Context(), within(dice, s.timing.lease*5/4, s.timing.lease*2))
	return goOn()
}

// endConnections ends those that the workers and the fleet API have to the database,
// listeners among them.
func (s *storm) endConnections(*rand.Rand) error {
	s.database.Lock()
	defer s.database.Unlock()
	return retrying(s.Context(), s.endAllConnections)
}

const endConnections = `select pg_terminate_backend(pid) from pg_stat_activity where application_name in ('cluster-worker', 'fleet-api')`

func (s *storm) endAllConnections(ctx context.Context) error {
	_, err := s.owner.Exec(ctx, endConnections)
	return err
}

func (s *storm) restartPostgres(dice *rand.Rand) error {
	s.database.Lock()
	defer s.database.Unlock()
	if err := s.server.Close(); err != nil {
		return err
	}
	if err := pause(s.Context(), within(dice, 0, 2*time.Second)); err != nil {
		return err
	}
	var err error
	s.server, err = pgserver.Start(s.Context(), s.cfg, quiet())
	return err
}

// readOnly makes the database what it is to those who are still connected to the
// old primary after a failover.
func (s *storm) readOnly(dice *rand.Rand) error {
	s.database.Lock()
	defer s.database.Unlock()
	set := func(sql string) error {
		return retrying(s.Context(), func(ctx context.Context) error {
			if _, err := s.owner.Exec(ctx, sql); err != nil {
				return err
			}
			return s.endAllConnections(ctx)
		})
	}
	if err := set("alter database " + pgserver.DefaultDatabase + " set default_transaction_read_only = on"); err != nil {
		return err
	}
	_ = pause(s.Context(), within(dice, time.Second, 3*time.Second))
	return set("alter database " + pgserver.DefaultDatabase + " reset default_transaction_read_only")
}

func (s *storm) stopGarden(dice *rand.Rand) error {
	s.garden.Lock()
	defer s.garden.Unlock()
	if err := s.bed.StopAPIServer(); err != nil {
		return err
	}
	if err := pause(s.Context(), within(dice, 0, 3*time.Second)); err != nil {
		return err
	}
	return s.bed.StartAPIServer(s.Context())
}
