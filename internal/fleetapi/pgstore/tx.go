package pgstore

import (
	"bytes"
	"cmp"
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

// RunInTx runs change in one transaction and commits if it returns nil. Most writes run with the commit, in one round
// trip. All statements find rows by a key.
func (s *Store) RunInTx(ctx context.Context, scope fleetapi.Scope, change func(context.Context, fleetapi.Tx) error) error {
	err := s.pool.RunInTx(ctx, toKeyScope(scope), func(ctx context.Context, ptx postgres.Tx) error {
		tx := &resourceTx{tx: ptx, q: db.New(ptx), locked: map[fleetapi.Key]*lockedRow{}, revisions: s.revisions}
		err := change(ctx, tx)
		if errors.Is(err, fleetapi.ErrRollback) {
			err = cmp.Or(ptx.RunQueued(ctx), err)
		}
		return err
	})
	return markUnavailable(fleetapi.ErrUnavailable, err)
}

// A resourceTx is one transaction. Its row locks also block new rows that would refer to the locked one as
// their parent, so a count of children holds until the transaction ends.
type resourceTx struct {
	tx     postgres.Tx
	q      *db.Queries
	locked map[fleetapi.Key]*lockedRow
	// lastLockTime is the time of the last row lock.
	lastLockTime time.Time
	// revisions is the number of kept generations.
	revisions int
	schema    *schemaRead // nil if none is wanted
}

// ReadBeginTime returns the time of the server's clock when the transaction began.
func (t *resourceTx) ReadBeginTime(ctx context.Context) (time.Time, error) {
	return t.tx.ReadBeginTime(ctx)
}

// InsertAndRecordResource adds a row and sets its revision.
func (t *resourceTx) InsertAndRecordResource(ctx context.Context, record *fleetapi.Record) error {
	inserted, err := t.insertRowsWithFreeNames(ctx, record, []fleetapi.BatchRow{{ID: record.ID, Content: record.Content}})
	if err != nil {
		return fmt.Errorf("insert %s %q: %w", record.Kind, record.Name, err)
	}
	if len(inserted) == 0 {
		return fleetapi.ErrNameTaken
	}
	record.Revision = inserted[0].Revision
	return t.recordCreationEvent(ctx, record)
}

// LockAndReadResource locks and returns one row.
func (t *resourceTx) LockAndReadResource(ctx context.Context, key fleetapi.Key) (lockedResource *fleetapi.Locked, err error) {
	if !isUUIDText(key.ID) {
		return nil, fleetapi.ErrNotFound
	}
	// Each statement has its own snapshot: those after the lock see the writes of previous lock holders.
	var rows []db.Resource
	var reports []db.ListReportConditionsRow
	var counted db.CountChildrenRow
	var shoot []db.ShootOfRow
	var b pgx.Batch
	queueCollectRows(b.Queue(db.LockResource, key.ID, key.Kind), &rows)
	if t.schema != nil {
		t.schema.queueOn(&b)
	}
	if key.Kind == v1.KindCluster {
		queueCollectRows(b.Queue(db.ShootOf, key.ID), &shoot)
	}
	queueCollectRows(b.Queue(db.ListReportConditions, key.ID), &reports)
	queueScanRow(b.Queue(db.CountChildren, key.ID), &counted.Children, &counted.Now)
	if err := t.tx.RunBatch(ctx, &b); err != nil {
		return nil, fmt.Errorf("lock %s %q: %w", key.Kind, key.ID, err)
	}
	if len(rows) == 0 {
		return nil, fleetapi.ErrNotFound
	}
	locked := t.trackLockedRow(&rows[0], counted.Now).current
	locked.Children = int(counted.Children)
	if len(shoot) > 0 {
		t.setShootState(locked, &shoot[0])
	}
	for i := range reports {
		if err := appendReport(locked, (*db.ListChildReportConditionsRow)(&reports[i])); err != nil {
			return nil, err
		}
	}
	return locked, nil
}

func (t *resourceTx) setShootState(locked *fleetapi.Locked, shoot *db.ShootOfRow) {
	locked.Shoot = fleetapi.ShootState{
		Guarded: shoot.Guarded, Gone: shoot.Gone, Synced: shoot.Synced, StatusOutdated: shoot.StatusOutdated,
		Attempts: int(shoot.Attempts), Generation: shoot.Generation, Version: shoot.Version,
		Unsaved: shoot.Version != shoot.Settled,
	}
	shown := &locked.Record.Status
	shown.ShootStatus, shown.ShootMessage, shown.SyncError = v1.ShootStatus(shoot.ShootStatus), shoot.ShootMessage, shoot.SyncError
}

// LockAndReadChildren locks all rows whose parent is given, ordered by id. The caller holds the lock of the
// parent, so no new children can appear.
func (t *resourceTx) LockAndReadChildren(ctx context.Context, parent fleetapi.Key) (children []fleetapi.Locked, err error) {
	if !isUUIDText(parent.ID) {
		return nil, nil
	}
	var rows []db.Resource
	var reports []db.ListChildReportConditionsRow
	var counts []db.CountGrandchildrenRow
	var now time.Time
	var b pgx.Batch
	queueCollectRows(b.Queue(db.LockChildren, parent.ID), &rows)
	queueCollectRows(b.Queue(db.ListChildReportConditions, parent.ID), &reports)
	queueCollectRows(b.Queue(db.CountGrandchildren, parent.ID), &counts)
	queueScanRow(b.Queue(db.Clock), &now)
	if err := t.tx.RunBatch(ctx, &b); err != nil {
		return nil, fmt.Errorf("lock the children of %s %q: %w", parent.Kind, parent.ID, err)
	}
	children = make([]fleetapi.Locked, len(rows))
	childByID := make(map[string]*fleetapi.Locked, len(rows))
	for i := range rows {
		tracked := t.trackLockedRow(&rows[i], now)
		children[i] = *tracked.current
		tracked.current = &children[i]
		childByID[rows[i].ID] = &children[i]
	}
	for _, c := range counts {
		if child := childByID[c.OwnerID]; child != nil {
			child.Children = int(c.Children)
		}
	}
	for i := range reports {
		if err := appendReport(childByID[reports[i].ResourceID], &reports[i]); err != nil {
			return nil, err
		}
	}
	return children, nil
}

func (t *resourceTx) trackLockedRow(row *db.Resource, now time.Time) *lockedRow {
	current := &fleetapi.Locked{Record: newRecordFromRow(row), Now: now}
	stored := current.Record
	stored.Spec = bytes.Clone(stored.Spec)
	tracked := &lockedRow{stored: stored, current: current}
	t.locked[stored.Key] = tracked
	t.lastLockTime = now
	return tracked
}

func appendReport(to *fleetapi.Locked, row *db.ListChildReportConditionsRow) error {
	if to == nil {
		return fmt.Errorf("read the report of adapter %q: its resource %q is not locked", row.Adapter, row.ResourceID)
	}
	s, err := decodeReportRow(&db.AdapterReport{
		ResourceID:         row.ResourceID,
		Kind:               to.Record.Kind,
		Adapter:            row.Adapter,
		ObservedGeneration: row.ObservedGeneration,
		Conditions:         row.Conditions,
		CreatedTime:        row.CreatedTime,
		LastReportTime:     row.LastReportTime,
	})
	to.Reports = append(to.Reports, s)
	return err
}

// SaveLockedResource writes the mutable parts of a locked row, and a report on it.
func (t *resourceTx) SaveLockedResource(ctx context.Context, record *fleetapi.Record, newReport *v1.AdapterStatus) error {
	locked, ok := t.locked[record.Key]
	if !ok {
		return fmt.Errorf("save %s %q: it was not locked before", record.Kind, record.ID)
	}
	var spec []byte
	if !bytes.Equal(locked.stored.Spec, record.Spec) {
		spec = record.Spec
	}
	// The event may have to read, which sends what is queued before it.
	event, err := t.buildUpdateEventIfAny(ctx, record, &locked.stored)
	if err != nil {
		return err
	}
	t.tx.Queue(db.SaveResource, listSaveResourceArgs(record, spec)...).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&record.Revision)
		if errors.Is(err, pgx.ErrNoRows) {
			err = requireOneRowAffected(0, nil)
		}
		if err != nil {
			return fmt.Errorf("save %s %q: %w", record.Kind, record.ID, err)
		}
		return nil
	})
	if locked.current.Shoot.Unsaved {
		nameFailure(t.tx.Queue(db.SettleSync, record.ID, locked.current.Shoot.Version),
			"save the sync version of the status of %s %q", record.Kind, record.ID)
		locked.current.Shoot.Unsaved = false
	}
	t.queueRevisionIfNewGeneration(record, &locked.stored)
	if event != nil {
		t.queueChangeEvent(record, event)
	}
	if newReport == nil {
		return nil
	}
	return t.queueReport(record, newReport)
}

// nameFailure adds the attempted operation to the error of a queued statement.
func nameFailure(q *pgx.QueuedQuery, operationFormat string, operationArgs ...any) {
	q.Fn = func(results pgx.BatchResults) error {
		if _, err := results.Exec(); err != nil {
			return fmt.Errorf(operationFormat+": %w", append(operationArgs, err)...)
		}
		return nil
	}
}

func (t *resourceTx) queueReport(record *fleetapi.Record, report *v1.AdapterStatus) error {
	conditions, err := json.Marshal(report.Conditions)
	if err != nil {
		return fmt.Errorf("write the report of adapter %q on %s %q: %w", report.Adapter, record.Kind, record.ID, err)
	}
	saving := t.tx.Queue(db.SaveReport, record.ID, record.Kind, record.Tenant, report.Adapter, report.ObservedGeneration,
		conditions, []byte(report.Data), []byte(report.Metadata), report.CreatedTime, report.LastReportTime)
	nameFailure(saving, "save the report of adapter %q on %s %q", report.Adapter, record.Kind, record.ID)
	return nil
}

// DeleteAndRecordResource permanently deletes a locked row and its reports.
func (t *resourceTx) DeleteAndRecordResource(ctx context.Context, key fleetapi.Key) error {
	if t.locked[key] == nil {
		if _, err := t.LockAndReadResource(ctx, key); err != nil {
			return fmt.Errorf("remove %s %q: %w", key.Kind, key.ID, err)
		}
	}
	if err := requireOneRowAffected(t.q.RemoveResource(ctx, key.ID, key.Kind)); err != nil {
		if postgres.ViolatedConstraint(err) == shootGuard {
			err = fmt.Errorf("%w: %w", fleetapi.ErrShootExists, err)
		}
		return fmt.Errorf("remove %s %q: %w", key.Kind, key.ID, err)
	}
	return t.recordDeletionEvent(ctx, key)
}

func requireOneRowAffected(rowsAffected int64, err error) error {
	if err == nil && rowsAffected != 1 {
		return fmt.Errorf("changed %d rows, want 1", rowsAffected)
	}
	return err
}

// nilIfZero returns nil for a zero value, which the API uses for absent.
func nilIfZero[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
