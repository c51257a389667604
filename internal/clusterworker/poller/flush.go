package poller

import (
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// processInboxOnce handles all observations in the inbox.
func (s *leaderSession) processInboxOnce(ctx context.Context) {
	s.inboxScheduled = false
	observations := s.inbox.takeAllObservations()
	for key, observed := range observations {
		if older, ok := s.delayed.removeObservation(key); ok { // its check for drift is still due
			observed.checkDrift = observed.checkDrift || older.checkDrift
			observations[key] = observed
		}
		if observed.err != nil {
			s.retryFailedReadOrSkipInPolls(ctx, key, observed)
			delete(observations, key)
		} else if !isClusterID(key.cluster) || s.writer.cacheOrDelayEvent(key, &observed) {
			delete(observations, key)
		}
	}
	for part := range slices.Chunk(slices.Collect(maps.Keys(observations)), maxBatch) {
		if err := s.writeObservations(ctx, part, observations); err != nil {
			s.inbox.putBackObservations(observations)
			s.countAndLogDatabaseFailure(ctx, "save status of Shoots", err)
			s.scheduleInboxProcessing(databaseRetryPolicy().Delay(s.dbFailures))
			return
		}
		s.dbFailures = 0
		for _, key := range part {
			delete(observations, key)
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
	for i, key := range keys {
		ids[i] = key.cluster
	}
	rows, err := s.poller.readRowsByClusterID(ctx, ids)
	if err != nil {
		return err
	}
	var batch pendingWrites
	for _, key := range keys {
		row, ok := rows[key.cluster]
		if !ok {
			s.cache.removeEntry(key.cluster)
			continue
		}
		if row.ShootName == key.name {
			observed := observations[key]
			s.writer.queueRowWritesAndLiveRead(&batch, row, observed, observed.fromPoll)
		}
	}
	return s.writer.writeBatch(ctx, &batch)
}

// retryFailedReadOrSkipInPolls schedules another live read. A poll reaches the Shoot again in any case,
// and reads others first.
func (s *leaderSession) retryFailedReadOrSkipInPolls(ctx context.Context, key shootKey, failed observation) {
	s.poller.countAndLogGardenerFailure(ctx, "get Shoot", failed.err)
	if failed.fromPoll {
		s.skipShootInNextPolls(key)
		return
	}
	wait := max(gardenerRetryPolicy().Delay(failed.tries), min(shoot.RetryAfter(failed.err), backoff.MaxRetryAfter))
	s.delayed.delayObservation(key, failed, wait)
}
