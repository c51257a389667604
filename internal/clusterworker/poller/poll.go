package poller

import (
	"context"
	"maps"
	"time"
)

const (
	// maxUnreadable limits the remembered Shoots that could not be read. They are
	// skipped for a while so that others are polled.
	maxUnreadable = 1000
	// skippedPolls is the number of poll rounds that skip an unreadable Shoot.
	skippedPolls = 10
)

// startPollingShoots starts to read Shoots one by one instead of by a watch. watchErr is nil if
// the configuration asks for it.
func (s *leaderSession) startPollingShoots(ctx context.Context, watchErr error) {
	if s.polling {
		return
	}
	s.polling = true
	if watchErr != nil {
		s.poller.log.WarnContext(ctx, "shoot watch forbidden, polling shoots individually", "err", watchErr, "interval", s.poller.cfg.PollInterval, "batch", s.poller.cfg.BatchSize)
	}
	s.pollTimer.Reset(0)
}

// queueReadsOfStalestShoots reads the Shoots that were observed longest ago. Unanswered reads of the
// last round count for this one.
func (s *leaderSession) queueReadsOfStalestShoots(ctx context.Context) {
	if !s.polling {
		return
	}
	s.pollTimer.Reset(s.poller.cfg.PollInterval)
	room := s.poller.cfg.BatchSize - s.inbox.countUnansweredReads()
	if room <= 0 {
		return
	}
	s.poller.metrics.polls.Inc()
	now := time.Now()
	maps.DeleteFunc(s.unreadable, func(_ shootKey, until time.Time) bool { return !now.Before(until) })
	// Rows with a live read in progress are still stale, and returned again.
	queryCtx, cancel := withReadTimeout(ctx)
	rows, err := s.poller.deps.Store.ListStalestRows(queryCtx, s.poller.cfg.BatchSize+len(s.unreadable))
	cancel()
	if err != nil {
		s.countAndLogDatabaseFailure(ctx, "read Shoots to poll", err)
		return
	}
	for i := range rows {
		row := &rows[i]
		key := shootKey{row.ClusterID, row.ShootName}
		if _, skip := s.unreadable[key]; skip || row.ShootName == "" {
			continue
		}
		if room == 0 {
			break
		}
		if s.inbox.queueLiveReadIfNotPending(liveRead{shootKey: key, readFor: row, checkDrift: true, fromPoll: true}) {
			room--
		}
	}
}

// skipShootInNextPolls skips a Shoot that could not be read for some rounds.
func (s *leaderSession) skipShootInNextPolls(key shootKey) {
	if len(s.unreadable) >= maxUnreadable {
		clear(s.unreadable)
	}
	s.unreadable[key] = time.Now().Add(skippedPolls * s.poller.cfg.PollInterval)
}
