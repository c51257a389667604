package poller

import (
	"context"
	"time"
)

const (
	// maxUnreadable is how many Shoots are remembered that could not be looked
	// up; that they are passed over for a while lets the others have their turn.
	maxUnreadable = 1000
	// passOverRounds is for how many rounds of polling one is passed over.
	passOverRounds = 10
)

// startPolling begins to look Shoots up one by one, as there is no watch. why is nil if
// that was asked for.
func (s *session) startPolling(ctx context.Context, why error) {
	if s.polling {
		return
	}
	s.polling = true
	if why != nil {
		s.log.WarnContext(ctx, "shoot watch forbidden, polling shoots individually", "err", why, "interval", s.cfg.PollInterval, "batch", s.cfg.BatchSize)
	}
	s.pollAt.Reset(0)
}

// pollRound looks up the Shoots that were looked at longest ago. Those of the
// last round that Gardener still owes an answer count for this one.
func (s *session) pollRound(ctx context.Context) {
	if !s.polling {
		return
	}
	s.pollAt.Reset(s.cfg.PollInterval)
	room := s.cfg.BatchSize - s.inbox.outstanding()
	if room <= 0 {
		return
	}
	s.metrics.polls.Inc()
	now := time.Now()
	for k, until := range s.unreadable {
		if !now.Before(until) {
			delete(s.unreadable, k)
		}
	}
	// Rows whose look is under way are as stale as ever, and found again.
	qctx, cancel := queryTime(ctx)
	rows, err := s.deps.Store.StalestRows(qctx, s.cfg.BatchSize+len(s.unreadable))
	cancel()
	if err != nil {
		if ctx.Err() == nil {
			s.databaseFailed(ctx, "read Shoots to poll", err)
		}
		return
	}
	for i := range rows {
		row := &rows[i]
		k := key{row.ClusterID, row.ShootName}
		if _, skip := s.unreadable[k]; skip || row.ShootName == "" {
			continue
		}
		if room == 0 {
			break
		}
		if s.inbox.requestRead(liveRead{key: k, asked: row, thorough: true, polled: true}) {
			room--
		}
	}
}

// passOver lets others go before a Shoot that could not be looked up.
func (s *session) passOver(k key) {
	if len(s.unreadable) >= maxUnreadable {
		clear(s.unreadable)
	}
	s.unreadable[k] = time.Now().Add(passOverRounds * s.cfg.PollInterval)
}
