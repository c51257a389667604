package pgstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// shootGuard is the constraint that keeps the row of a cluster whose Shoot is not confirmed gone.
const shootGuard = "clusters_shoot_guard"

// Update runs change in one transaction and commits if it returns nil.
func (s *Store) Update(ctx context.Context, scope fleetapi.Scope, change func(context.Context, fleetapi.Tx, time.Time) error) error {
	err := s.pool.InTx(ctx, scopeOf(scope), func(ctx context.Context, ptx postgres.Tx) error {
		return change(ctx, &tx{tx: ptx, q: db.New(ptx), was: map[fleetapi.Key]*before{}, revisions: s.revisions}, ptx.Now)
	})
	if errors.Is(err, postgres.ErrUnavailable) {
		return fmt.Errorf("%w: %w", fleetapi.ErrUnavailable, err)
	}
	return err
}

// A tx is one transaction. Its row locks also block new rows that would refer to the locked one as
// their parent, so a count of children holds until the transaction ends.
type tx struct {
	tx postgres.Tx
	q  *db.Queries
	// was holds the locked rows as stored in the database.
	was map[fleetapi.Key]*before
	// clock is the time of the last row lock.
	clock time.Time
	// revisions is the number of kept generations.
	revisions int
}

// Insert adds a row and sets its revision.
func (t *tx) Insert(ctx context.Context, r *fleetapi.Record) error {
	inserted, err := t.insertRows(ctx, r, []fleetapi.BatchRow{{ID: r.ID, Content: r.Content}})
	if err != nil {
		return fmt.Errorf("insert %s %q: %w", r.Kind, r.Name, err)
	}
	if len(inserted) == 0 {
		return fleetapi.ErrNameTaken
	}
	r.Revision = inserted[0].Revision
	return t.recordCreation(ctx, r)
}

// Lock locks and returns one row.
func (t *tx) Lock(ctx context.Context, key fleetapi.Key) (*fleetapi.Locked, error) {
	if !isID(key.ID) {
		return nil, fleetapi.ErrNotFound
	}
	// Each statement has its own snapshot: those after the lock see the writes of previous lock
	// holders.
	var rows []db.Resource
	var reports []db.ListReportConditionsRow
	var rest db.CountChildrenRow
	var shoot []db.ShootOfRow
	var b pgx.Batch
	collectRows(b.Queue(db.LockResource, key.ID, key.Kind), &rows)
	if key.Kind == v1.KindCluster {
		collectRows(b.Queue(db.ShootOf, key.ID), &shoot)
	}
	collectRows(b.Queue(db.ListReportConditions, key.ID), &reports)
	b.Queue(db.CountChildren, key.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&rest.Children, &rest.Now) })
	if err := t.tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("lock %s %q: %w", key.Kind, key.ID, err)
	}
	if len(rows) == 0 {
		return nil, fleetapi.ErrNotFound
	}
	locked := t.trackLocked(&rows[0], rest.Now)
	locked.Children = int(rest.Children)
	if len(shoot) > 0 {
		t.addShoot(locked, &shoot[0])
	}
	for i := range reports {
		if err := addReport(locked, (*db.ListChildReportConditionsRow)(&reports[i])); err != nil {
			return nil, err
		}
	}
	return locked, nil
}

// addShoot adds the recorded state of a cluster's Shoot.
func (t *tx) addShoot(l *fleetapi.Locked, s *db.ShootOfRow) {
	l.Shoot = fleetapi.ShootState{
		Guarded: s.Guarded, Gone: s.Gone, Synced: s.Synced, Attempts: int(s.Attempts), Generation: s.Generation, Version: s.Version,
	}
	shown := &l.Record.Status
	shown.ShootStatus, shown.ShootMessage, shown.SyncError = v1.ShootStatus(s.ShootStatus), s.ShootMessage, s.SyncError
	t.was[l.Record.Key].unsettled = s.Version != s.Settled
}

// LockChildren locks all rows whose parent is key, ordered by id. The caller holds the lock of the
// parent, so no new children can appear.
func (t *tx) LockChildren(ctx context.Context, key fleetapi.Key) ([]fleetapi.Locked, error) {
	if !isID(key.ID) {
		return nil, nil
	}
	var rows []db.Resource
	var reports []db.ListChildReportConditionsRow
	var counts []db.CountGrandchildrenRow
	var now time.Time
	var b pgx.Batch
	collectRows(b.Queue(db.LockChildren, key.ID), &rows)
	collectRows(b.Queue(db.ListChildReportConditions, key.ID), &reports)
	collectRows(b.Queue(db.CountGrandchildren, key.ID), &counts)
	b.Queue(db.Clock).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	if err := t.tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("lock the children of %s %q: %w", key.Kind, key.ID, err)
	}
	list := make([]fleetapi.Locked, len(rows))
	at := make(map[string]*fleetapi.Locked, len(rows))
	for i := range rows {
		list[i] = *t.trackLocked(&rows[i], now)
		t.was[list[i].Record.Key].locked = &list[i]
		at[rows[i].ID] = &list[i]
	}
	for _, c := range counts {
		if l := at[c.OwnerID]; l != nil {
			l.Children = int(c.Children)
		}
	}
	for i := range reports {
		if err := addReport(at[reports[i].ResourceID], &reports[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (t *tx) trackLocked(r *db.Resource, now time.Time) *fleetapi.Locked {
	l := &fleetapi.Locked{Record: recordOf(r), Now: now}
	t.clock = now
	was := &before{Record: l.Record, locked: l}
	was.Spec = bytes.Clone(l.Record.Spec)
	t.was[l.Record.Key] = was
	return l
}

func addReport(l *fleetapi.Locked, r *db.ListChildReportConditionsRow) error {
	if l == nil {
		return fmt.Errorf("read the report of adapter %q: its resource %q is not locked", r.Adapter, r.ResourceID)
	}
	s, err := reportOf(&db.AdapterReport{
		ResourceID:         r.ResourceID,
		Kind:               l.Record.Kind,
		Adapter:            r.Adapter,
		ObservedGeneration: r.ObservedGeneration,
		Conditions:         r.Conditions,
		CreatedTime:        r.CreatedTime,
		LastReportTime:     r.LastReportTime,
	})
	l.Reports = append(l.Reports, s)
	return err
}

// Save writes the mutable parts of a locked row, and a report on it.
func (t *tx) Save(ctx context.Context, r *fleetapi.Record, adapterReport *v1.AdapterStatus) error {
	was, ok := t.was[r.Key]
	if !ok {
		return fmt.Errorf("save %s %q: it was not locked before", r.Kind, r.ID)
	}
	var spec []byte
	if !bytes.Equal(was.Spec, r.Spec) {
		spec = r.Spec
	}
	revision, err := t.q.SaveResource(ctx, saveParams(r, spec))
	if err != nil {
		return fmt.Errorf("save %s %q: %w", r.Kind, r.ID, err)
	}
	r.Revision = revision
	if was.unsettled {
		if err := t.q.SettleSync(ctx, r.ID, was.locked.Shoot.Version); err != nil {
			return fmt.Errorf("save the sync version of the status of %s %q: %w", r.Kind, r.ID, err)
		}
		was.unsettled = false
	}
	if err := t.keepRevision(ctx, r, &was.Record); err != nil {
		return err
	}
	if err := t.recordOwnerChange(ctx, r, &was.Record); err != nil || adapterReport == nil {
		return err
	}
	return t.saveReport(ctx, r, adapterReport)
}

func (t *tx) saveReport(ctx context.Context, r *fleetapi.Record, s *v1.AdapterStatus) error {
	conditions, err := json.Marshal(s.Conditions)
	if err == nil {
		err = t.q.SaveReport(ctx, db.SaveReportParams{
			ResourceID:         r.ID,
			Kind:               r.Kind,
			Tenant:             r.Tenant,
			Adapter:            s.Adapter,
			ObservedGeneration: s.ObservedGeneration,
			Conditions:         conditions,
			Data:               s.Data,
			Metadata:           s.Metadata,
			CreatedTime:        s.CreatedTime,
			LastReportTime:     s.LastReportTime,
		})
	}
	if err != nil {
		return fmt.Errorf("save the report of adapter %q on %s %q: %w", s.Adapter, r.Kind, r.ID, err)
	}
	return nil
}

// Remove permanently deletes a locked row and its reports.
func (t *tx) Remove(ctx context.Context, key fleetapi.Key) error {
	if t.was[key] == nil {
		if _, err := t.Lock(ctx, key); err != nil {
			return fmt.Errorf("remove %s %q: %w", key.Kind, key.ID, err)
		}
	}
	if err := requireOneRow(t.q.RemoveResource(ctx, key.ID, key.Kind)); err != nil {
		if postgres.Constraint(err) == shootGuard {
			err = fmt.Errorf("%w: %w", fleetapi.ErrShootExists, err)
		}
		return fmt.Errorf("remove %s %q: %w", key.Kind, key.ID, err)
	}
	return t.recordDeletion(ctx, key)
}

func requireOneRow(n int64, err error) error {
	if err == nil && n != 1 {
		return fmt.Errorf("changed %d rows, want 1", n)
	}
	return err
}

// orNull returns nil for a zero value, which the API uses for absent.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
