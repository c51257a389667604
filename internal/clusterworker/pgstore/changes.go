package pgstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
)

var _ clusterworker.OutboxStore = (*Outbox)(nil)

// An Outbox stores the change events that are not delivered yet.
type Outbox struct {
	db, indexed database

	mu sync.Mutex
	// claimedDownTo is the last cluster of the last claim of each sink. The next claim continues there, so that each cluster
	// has its turn.
	claimedDownTo map[string]string
}

// marshalChangeOrEmpty returns a change in its stored form, empty for nil.
func marshalChangeOrEmpty(change *clusterworker.Change) (string, error) {
	if change == nil {
		return "", nil
	}
	bounded := *change
	bounded.Message = sanitizeAndTruncateText(change.Message)
	bounded.ID = bounded.ToChangeEvent().ID
	data, err := json.Marshal(bounded)
	if err != nil {
		return "", fmt.Errorf("encode change event of cluster %q: %w", change.ClusterID, err)
	}
	return string(data), nil
}

// LeaseDueChanges leases due changes of a sink, of the clusters below those of the last call, in descending order of their
// ids. If none of these is due, it begins anew with the highest. It skips a change that it cannot read, which a newer version
// wrote and will deliver.
func (o *Outbox) LeaseDueChanges(ctx context.Context, sink string, limit int, lease time.Duration) ([]clusterworker.PendingEvent, error) {
	highest := uuid.Max.String()
	before := o.getClaimedDownToOr(sink, highest)
	rows, err := o.claimChangesBeforeCluster(ctx, sink, before, limit, lease)
	if err == nil && len(rows) == 0 && before != highest {
		rows, err = o.claimChangesBeforeCluster(ctx, sink, highest, limit, lease)
	}
	if err != nil {
		return nil, err
	}
	pending := make([]clusterworker.PendingEvent, 0, len(rows))
	for _, row := range rows {
		event := clusterworker.PendingEvent{Seq: row.Seq, Sink: sink, Failures: int(row.Failures), QueuedAt: row.CreatedAt.Time.UTC()}
		if json.Unmarshal([]byte(row.Change), &event.Change) == nil {
			pending = append(pending, event)
		}
	}
	return pending, nil
}

// claimChangesBeforeCluster leases due changes of a sink, of the clusters below one. After fewer than limit or an error, the
// next claim begins anew with the highest cluster.
func (o *Outbox) claimChangesBeforeCluster(
	ctx context.Context, sink, clusterID string, limit int, lease time.Duration,
) ([]db.ClaimChangesRow, error) {
	action := fmt.Sprintf("claim change events of sink %q", sink)
	rows, err := queryStructs[db.ClaimChangesRow](ctx, o.indexed, action, db.ClaimChanges, lease, sink, clusterID, int64(limit))
	lowest := uuid.Max.String()
	if err == nil && len(rows) == limit {
		for _, row := range rows {
			lowest = min(lowest, row.ClusterID)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claimedDownTo[sink] = lowest
	if err != nil {
		return nil, err // it is not known whether the rows are leased
	}
	return rows, nil
}

func (o *Outbox) getClaimedDownToOr(sink, highest string) (clusterID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(o.claimedDownTo[sink], highest)
}

// RenewChangeLeases extends leases to the given time from now.
func (o *Outbox) RenewChangeLeases(ctx context.Context, changeSeqs []int64, lease time.Duration) error {
	return o.db.execStatement(ctx, "renew leases of change events", db.RenewChanges, lease, changeSeqs)
}

// DeleteChangesAndRecordDeliveries removes changes and records their deliveries, in one statement.
func (o *Outbox) DeleteChangesAndRecordDeliveries(ctx context.Context, results []clusterworker.DeliveryResult) error {
	r := toResultColumns(results)
	return o.db.execStatement(ctx, "finish change events", db.FinishChanges, r.seqs, r.states, r.attempts, r.errors, r.statuses)
}

// RecordFailuresAndRescheduleChanges records a failure of each change, and makes it due again after its
// delay.
func (o *Outbox) RecordFailuresAndRescheduleChanges(ctx context.Context, results []clusterworker.DeliveryResult) error {
	r := toResultColumns(results)
	return o.db.execStatement(ctx, "reschedule change events", db.PutOffChanges, r.seqs, r.delays, r.attempts, r.errors, r.statuses)
}

// resultColumns holds delivery results in columns.
type resultColumns struct {
	seqs, delays       []int64
	states, errors     []string
	attempts, statuses []int32
}

func toResultColumns(results []clusterworker.DeliveryResult) (columns resultColumns) {
	for _, r := range results {
		columns.seqs = append(columns.seqs, r.Seq)
		columns.delays = append(columns.delays, r.Delay.Microseconds())
		columns.states = append(columns.states, string(r.State))
		columns.errors = append(columns.errors, string(r.Class))
		columns.attempts = append(columns.attempts, int32(r.Attempts)) //nolint:gosec // 0 or 1
		columns.statuses = append(columns.statuses, int32(r.Status))   //nolint:gosec // an HTTP status
	}
	return columns
}

// DeleteExpiredChanges removes up to limit unleased changes that are older than maxAge, records
// that they expired, and returns their number.
func (o *Outbox) DeleteExpiredChanges(ctx context.Context, maxAge time.Duration, limit int) (deleted int, err error) {
	err = o.db.queryRow(ctx, "delete expired change events", []any{&deleted}, db.ExpireChanges, maxAge, int64(limit))
	if err != nil {
		return 0, err // the count may be read before the request fails
	}
	return deleted, nil
}
