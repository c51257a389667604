package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/outbox"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
)

var _ outbox.Store = (*Store)(nil)

// encodeChange returns a change as it is kept for sinks, "" if there is none.
func encodeChange(c *clusterworker.Change) (string, error) {
	if c == nil {
		return "", nil
	}
	bounded := *c
	bounded.Message = text(c.Message)
	data, err := json.Marshal(bounded)
	if err != nil {
		return "", fmt.Errorf("write the change of cluster %q: %w", c.ClusterID, err)
	}
	return string(data), nil
}

// ClaimChanges takes changes that are due. One that cannot be read, because a
// newer version wrote it, is left to that.
func (s *Store) ClaimChanges(ctx context.Context, sinks []string, most int, lease time.Duration) ([]outbox.Pending, error) {
	var rows []db.ClaimChangesRow
	err := s.send(ctx, func(b *pgx.Batch) {
		b.Queue(byIndex)
		collect(b.Queue(db.ClaimChanges, lease, sinks, int64(most)), &rows)
	})
	if err != nil {
		return nil, fmt.Errorf("claim change events: %w", err)
	}
	pending := make([]outbox.Pending, 0, len(rows))
	for i := range rows {
		p := outbox.Pending{Seq: rows[i].Seq, Sink: rows[i].Sink, Failures: int(rows[i].Failures)}
		if json.Unmarshal([]byte(rows[i].Change), &p.Change) != nil {
			continue
		}
		pending = append(pending, p)
	}
	return pending, nil
}

// RenewChanges has leases end so long from now.
func (s *Store) RenewChanges(ctx context.Context, seqs []int64, lease time.Duration) error {
	return s.exec(ctx, "renew the leases of change events", db.RenewChanges, lease, seqs)
}

// RemoveChanges removes changes that need nothing more.
func (s *Store) RemoveChanges(ctx context.Context, seqs []int64) error {
	return s.exec(ctx, "remove change events", db.RemoveChanges, seqs)
}

// PutOffChange makes a change due again after some time.
func (s *Store) PutOffChange(ctx context.Context, seq int64, delay time.Duration) error {
	return s.exec(ctx, "put off a change event", db.PutOffChange, delay, seq)
}

// ExpireChanges removes changes that are older, and gives how many those were.
func (s *Store) ExpireChanges(ctx context.Context, age time.Duration) (int, error) {
	var seqs []int64
	err := s.send(ctx, func(b *pgx.Batch) { collectScalars(b.Queue(db.ExpireChanges, age), &seqs) })
	if err != nil {
		return 0, fmt.Errorf("remove old change events: %w", err)
	}
	return len(seqs), nil
}

func (s *Store) exec(ctx context.Context, what, statement string, args ...any) error {
	if err := s.send(ctx, func(b *pgx.Batch) { b.Queue(statement, args...) }); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
