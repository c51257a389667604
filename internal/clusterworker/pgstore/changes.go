package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
)

var _ clusterworker.OutboxStore = (*Outbox)(nil)

// An Outbox stores the change events that are not delivered yet.
type Outbox struct{ db database }

// encodeChange returns a change in its stored form, empty for nil.
func encodeChange(c *clusterworker.Change) (string, error) {
	if c == nil {
		return "", nil
	}
	bounded := *c
	bounded.Message = sanitizeText(c.Message)
	bounded.ID = bounded.Event().ID
	data, err := json.Marshal(bounded)
	if err != nil {
		return "", fmt.Errorf("encode change event of cluster %q: %w", c.ClusterID, err)
	}
	return string(data), nil
}

// ClaimChanges leases due changes of a sink. It skips a change that it cannot read,
// which a newer version wrote and will deliver.
func (o *Outbox) ClaimChanges(ctx context.Context, sink string, most int, lease time.Duration) ([]clusterworker.PendingEvent, error) {
	var rows []db.ClaimChangesRow
	err := o.db.sendBatch(ctx, fmt.Sprintf("claim change events of sink %q", sink), func(b *pgx.Batch) {
		b.Queue(byIndex)
		collectRows(b.Queue(db.ClaimChanges, lease, sink, int64(most)), &rows)
	})
	if err != nil {
		return nil, err
	}
	pending := make([]clusterworker.PendingEvent, 0, len(rows))
	for i := range rows {
		p := clusterworker.PendingEvent{Seq: rows[i].Seq, Sink: sink, Failures: int(rows[i].Failures), QueuedAt: rows[i].CreatedAt.Time.UTC()}
		if json.Unmarshal([]byte(rows[i].Change), &p.Change) != nil {
			continue
		}
		pending = append(pending, p)
	}
	return pending, nil
}

// RenewChanges extends leases to the given time from now.
func (o *Outbox) RenewChanges(ctx context.Context, seqs []int64, lease time.Duration) error {
	return o.db.exec(ctx, "renew leases of change events", db.RenewChanges, lease, seqs)
}

// FinishChanges removes changes and records their deliveries, in one statement.
func (o *Outbox) FinishChanges(ctx context.Context, results []clusterworker.DeliveryResult) error {
	r := columnsOf(results)
	return o.db.exec(ctx, "finish change events", db.FinishChanges, r.seqs, r.states, r.attempts, r.errors, r.statuses)
}

// PutOffChanges records a failure of each change, and makes it due again after its
// delay.
func (o *Outbox) PutOffChanges(ctx context.Context, results []clusterworker.DeliveryResult) error {
	r := columnsOf(results)
	return o.db.exec(ctx, "reschedule change events", db.PutOffChanges, r.seqs, r.delays, r.attempts, r.errors, r.statuses)
}

// resultColumns holds delivery results in columns.
type resultColumns struct {
	seqs, delays       []int64
	states, errors     []string
	attempts, statuses []int32
}

func columnsOf(results []clusterworker.DeliveryResult) (c resultColumns) {
	for _, r := range results {
		c.seqs, c.delays = append(c.seqs, r.Seq), append(c.delays, r.Delay.Microseconds())
		c.states, c.errors = append(c.states, string(r.State)), append(c.errors, string(r.Class))
		c.attempts, c.statuses = append(c.attempts, int32(r.Attempts)), append(c.statuses, int32(r.Status)) //nolint:gosec // 0 or 1, and an HTTP status
	}
	return c
}

// ExpireChanges removes up to most unleased changes that are older than age, records
// that they expired, and returns their number.
func (o *Outbox) ExpireChanges(ctx context.Context, age time.Duration, most int) (n int, err error) {
	err = o.db.queryRow(ctx, "delete expired change events", []any{&n}, db.ExpireChanges, age, int64(most))
	if err != nil {
		return 0, err // the count may be read before the request fails
	}
	return n, nil
}
