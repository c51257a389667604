package poller

import (
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// processInbox handles all observations in the inbox.
func (s *session) processInbox(ctx context.Context) {
	s.flushing = false
	rest := s.inbox.takeAll()
	for k, n := range rest {
		if older, ok := s.later.remove(k); ok { // its check for drift is still due
			n.thorough = n.thorough || older.thorough
			rest[k] = n
		}
		switch {
		case n.err != nil:
			s.handleReadFailure(ctx, k, n)
			delete(rest, k)
		case !isID(k.cluster), s.writer.cacheIfUnchanged(k, &n):
			delete(rest, k)
		}
	}
	for part := range slices.Chunk(slices.Collect(maps.Keys(rest)), maxBatch) {
		if err := s.processObservations(ctx, part, rest); err != nil {
			s.inbox.putBack(rest)
			s.noteDatabaseFailure(ctx, "save status of Shoots", err)
			s.scheduleFlush(databasePolicy().Delay(s.dbFailures))
			return
		}
		s.dbFailures = 0
		for _, k := range part {
			delete(rest, k)
		}
	}
}

// isID reports whether a label can be the id of a cluster. The database would reject a
// query for any other text.
func isID(cluster string) bool {
	const length = 36 // uuid.Validate accepts longer and shorter forms as well
	return len(cluster) == length && uuid.Validate(cluster) == nil
}

// processObservations handles the observations of some Shoots against the current rows.
func (s *session) processObservations(ctx context.Context, part []key, all map[key]observation) error {
	ids := make([]string, len(part))
	for i, k := range part {
		ids[i] = k.cluster
	}
	rows, err := s.poller.rowsOf(ctx, ids)
	if err != nil {
		return err
	}
	var b batch
	for _, k := range part {
		n := all[k]
		row, ok := rows[k.cluster]
		switch {
		case !ok:
			s.book.removeEntry(k.cluster)
		case row.ShootName == k.name:
			s.writer.addToBatch(&b, row, n, n.polled)
		}
	}
	return s.writer.commit(ctx, &b)
}

// handleReadFailure schedules another live read. A poll reaches the Shoot again in any case,
// and reads others first.
func (s *session) handleReadFailure(ctx context.Context, k key, n observation) {
	s.poller.noteGardenerFailure(ctx, "get Shoot", n.err)
	if n.polled {
		s.skipForSomeRounds(k)
		return
	}
	wait := max(gardenerPolicy().Delay(n.tries), min(shoot.RetryAfter(n.err), backoff.MaxRetryAfter))
	s.later.add(k, n, wait)
}
