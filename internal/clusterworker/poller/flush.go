package poller

import (
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// processInboxObservations handles all observations in the inbox.
func (s *leaderSession) processInboxObservations(ctx context.Context) {
	s.flushing = false
	rest := s.inbox.takeAllObservations()
	for k, n := range rest {
		if older, ok := s.later.removeObservation(k); ok { // its check for drift is still due
			n.thorough = n.thorough || older.thorough
			rest[k] = n
		}
		switch {
		case n.err != nil:
			s.retryLaterOrSkipInPolls(ctx, k, n)
			delete(rest, k)
		case !isClusterID(k.cluster), s.writer.cacheShootIfUnchanged(k, &n):
			delete(rest, k)
		}
	}
	for part := range slices.Chunk(slices.Collect(maps.Keys(rest)), maxBatch) {
		if err := s.writeObservations(ctx, part, rest); err != nil {
			s.inbox.putBackObservations(rest)
			s.countAndLogDatabaseFailure(ctx, "save status of Shoots", err)
			s.scheduleInboxProcessing(databaseRetryPolicy().Delay(s.dbFailures))
			return
		}
		s.dbFailures = 0
		for _, k := range part {
			delete(rest, k)
		}
	}
}

// isClusterID reports whether a label can be the id of a cluster. The database would reject a
// query for any other text.
func isClusterID(label string) bool {
	const length = 36 // uuid.Validate accepts longer and shorter forms as well
	return len(label) == length && uuid.Validate(label) == nil
}

// writeObservations handles the observations of some Shoots against the current rows.
func (s *leaderSession) writeObservations(ctx context.Context, keys []shootKey, observations map[shootKey]observation) error {
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = k.cluster
	}
	rows, err := s.poller.readRowsByClusterID(ctx, ids)
	if err != nil {
		return err
	}
	var b pendingWrites
	for _, k := range keys {
		n := observations[k]
		row, ok := rows[k.cluster]
		switch {
		case !ok:
			s.book.removeEntry(k.cluster)
		case row.ShootName == k.name:
			s.writer.queueRowWritesAndLiveRead(&b, row, n, n.polled)
		}
	}
	return s.writer.writeBatch(ctx, &b)
}

// retryLaterOrSkipInPolls schedules another live read. A poll reaches the Shoot again in any case,
// and reads others first.
func (s *leaderSession) retryLaterOrSkipInPolls(ctx context.Context, key shootKey, failed observation) {
	s.poller.countAndLogGardenerFailure(ctx, "get Shoot", failed.err)
	if failed.polled {
		s.skipShootInNextPolls(key)
		return
	}
	wait := max(gardenerRetryPolicy().Delay(failed.tries), min(shoot.RetryAfter(failed.err), backoff.MaxRetryAfter))
	s.later.delayObservation(key, failed, wait)
}
