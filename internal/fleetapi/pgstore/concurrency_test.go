package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
)

// update runs a change in the scope of tenant a, in a separate transaction.
func update(t *testing.T, s *pgstore.Store, change func(context.Context, fleetapi.Tx) error) error {
	t.Helper()
	return s.RunInTx(t.Context(), tenant("a"), func(ctx context.Context, tx fleetapi.Tx) error { return change(ctx, tx) })
}

func TestNoChangeOfARowIsLost(t *testing.T) {
	s := newStore(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, s, r)
	const writers = 50
	var g errgroup.Group
	for i := range writers {
		g.Go(func() error {
			return s.RunInTx(t.Context(), tenant("a"), func(ctx context.Context, tx fleetapi.Tx) error {
				l, err := tx.LockAndReadResource(ctx, r.Key)
				if err != nil {
					return err
				}
				if !l.Now.After(l.Record.UpdatedTime) {
					return fmt.Errorf("the clock under the lock, %s, is not after the last writer's, %s", l.Now, l.Record.UpdatedTime)
				}
				l.Record.Generation++
				l.Record.UpdatedTime = l.Now
				l.Record.Status.ObservedGeneration = int64(len(l.Reports))
				return tx.SaveLockedResource(ctx, &l.Record, &v1.AdapterStatus{
					Adapter: fmt.Sprintf("adapter-%d", i), CreatedTime: l.Now, LastReportTime: l.Now,
				})
			})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	got := mustGet(t, s, r.Key)
	if got.Generation != writers+1 {
		t.Errorf("generation %d, want %d", got.Generation, writers+1)
	}
	if got.Status.ObservedGeneration != writers-1 {
		t.Errorf("the last writer saw %d reports, want the %d before its own", got.Status.ObservedGeneration, writers-1)
	}
	reports, err := s.ListReports(t.Context(), tenant("a"), r.Key)
	if err != nil || len(reports) != writers {
		t.Errorf("%d reports, want %d; %v", len(reports), writers, err)
	}
}

// TestAChildWaitsForItsParent checks that a locked parent gets no children until it is unlocked,
// and a removed one gets none.
func TestAChildWaitsForItsParent(t *testing.T) {
	s := newStore(t)
	parent := newRecord("a", v1.KindCluster, "one")
	insert(t, s, parent)
	child := newRecord("a", v1.KindNodePool, "pool")
	child.ParentID = parent.ID

	inserted := make(chan error, 1)
	insertWhen := func(started chan struct{}) {
		inserted <- update(t, s, func(ctx context.Context, tx fleetapi.Tx) error {
			close(started)
			return tx.InsertAndRecordResource(ctx, child)
		})
	}
	err := s.RunInTx(t.Context(), tenant("a"), func(ctx context.Context, tx fleetapi.Tx) error {
		if _, err := tx.LockAndReadResource(ctx, parent.Key); err != nil {
			return err
		}
		started := make(chan struct{})
		go insertWhen(started)
		<-started
		return tx.DeleteAndRecordResource(ctx, parent.Key)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-inserted; err == nil {
		t.Error("a child was put under a parent that is gone")
	}
	if got := list(t, s, all(), fleetapi.Query{Kind: v1.KindNodePool}); len(got) != 0 {
		t.Errorf("there are orphans: %v", ids(got))
	}
}

// TestADeadlockIsRunAgain locks the same two rows in different orders. The database aborts one
// transaction, which runs again.
func TestADeadlockIsRunAgain(t *testing.T) {
	s := newStore(t)
	x, y := newRecord("a", v1.KindCluster, "x"), newRecord("a", v1.KindCluster, "y")
	insert(t, s, x, y)
	var both sync.WaitGroup
	both.Add(2)
	var g errgroup.Group
	for _, order := range [][2]fleetapi.Key{{x.Key, y.Key}, {y.Key, x.Key}} {
		g.Go(func() error {
			tries := 0
			return s.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
				first, err := tx.LockAndReadResource(ctx, order[0])
				if err != nil {
					return err
				}
				if tries++; tries == 1 {
					both.Done()
					both.Wait() // each holds one by now
				}
				second, err := tx.LockAndReadResource(ctx, order[1])
				if err != nil {
					return err
				}
				first.Record.Generation++
				second.Record.Generation++
				return errors.Join(tx.SaveLockedResource(ctx, &first.Record, nil), tx.SaveLockedResource(ctx, &second.Record, nil))
			})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []fleetapi.Key{x.Key, y.Key} {
		if got := mustGet(t, s, key).Generation; got != 3 {
			t.Errorf("generation %d, want 3: each transaction counts once", got)
		}
	}
}

func TestSameNameAtOnce(t *testing.T) {
	s := newStore(t)
	errs := make([]error, 20)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = s.RunInTx(t.Context(), tenant("a"), func(ctx context.Context, tx fleetapi.Tx) error {
				return tx.InsertAndRecordResource(ctx, newRecord("a", v1.KindCluster, "one"))
			})
		})
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		switch {
		case err == nil:
			made++
		case !errors.Is(err, fleetapi.ErrNameTaken):
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d rows have the name", made)
	}
}

// TestTheLockReadsTheCurrentSchema checks that a change that waited for the lock reads the schema that was set meanwhile.
func TestTheLockReadsTheCurrentSchema(t *testing.T) {
	d := newDatabase(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, d.Store, r)
	var schema json.RawMessage
	read := func(ctx context.Context, tx fleetapi.Tx) error {
		reader := tx.(fleetapi.SchemaReader) //nolint:errcheck // it is one
		reader.QueueSpecSchemaRead(v1.KindCluster, 0)
		_, err := tx.LockAndReadResource(ctx, r.Key)
		if err == nil {
			_, schema, err = reader.ReadSpecSchemaIfChanged(ctx, v1.KindCluster, 0)
		}
		return err
	}
	var g errgroup.Group
	startReadAndAwaitLock := func() {
		g.Go(func() error { return update(t, d.Store, read) })
		for len(d.texts(t, "select 'waits' from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")) == 0 {
			// The query takes long enough.
		}
	}
	err := d.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
		if _, err := tx.LockAndReadResource(ctx, r.Key); err != nil {
			return err
		}
		startReadAndAwaitLock()
		_, err := d.SetSpecSchema(ctx, v1.KindCluster, json.RawMessage(`{"type":"object"}`), "ann")
		return err
	})
	if err := errors.Join(err, g.Wait()); err != nil {
		t.Fatal(err)
	}
	if len(schema) == 0 {
		t.Error("the schema is that from before the wait")
	}
}

// TestTheLockReadsWhatWasWrittenLast checks that a reader that waited for the lock reads the latest
// data.
func TestTheLockReadsWhatWasWrittenLast(t *testing.T) {
	s := newStore(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, s, r)
	waiting := make(chan *fleetapi.Locked, 1)
	lockWhen := func(begun chan struct{}) error {
		return update(t, s, func(ctx context.Context, tx fleetapi.Tx) error {
			close(begun)
			l, err := tx.LockAndReadResource(ctx, r.Key)
			waiting <- l
			return err
		})
	}
	var g errgroup.Group
	err := s.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
		l, err := tx.LockAndReadResource(ctx, r.Key)
		if err != nil {
			return err
		}
		begun := make(chan struct{})
		g.Go(func() error { return lockWhen(begun) })
		<-begun
		l.Record.Spec = json.RawMessage(`{"last": true}`)
		return tx.SaveLockedResource(ctx, &l.Record, &v1.AdapterStatus{Adapter: "dns", CreatedTime: l.Now, LastReportTime: l.Now})
	})
	if err := errors.Join(err, g.Wait()); err != nil {
		t.Fatal(err)
	}
	if l := <-waiting; string(l.Record.Spec) != `{"last": true}` || len(l.Reports) != 1 {
		t.Errorf("spec %s and %d reports are not what was written last", l.Record.Spec, len(l.Reports))
	}
}
