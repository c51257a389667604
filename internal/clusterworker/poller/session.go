package poller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// errTimeout is the cause of a canceled call to Gardener.
var errTimeout = errors.New("request to Gardener timed out")

// queryTime limits a query that reads. The term limits a query that writes.
func queryTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 10*time.Second, errNoRows)
}

// errNoRows is the cause of a canceled query.
var errNoRows = errors.New("database request timed out")

// maxTries is the number of immediate live reads of a Shoot whose row keeps changing.
// Later reads follow with growing delays.
const maxTries = 3

// Backoff of a session after failures.
func gardenerPolicy() backoff.Policy { return backoff.Policy{Initial: time.Second, Max: time.Minute} }

func databasePolicy() backoff.Policy {
	return backoff.Policy{Initial: 250 * time.Millisecond, Max: 10 * time.Second}
}

// A session is the work of one term. Fields that are not marked as shared belong to the
// goroutine of runSession.
type session struct {
	poller *Poller     // shared
	tenure *leadership // shared
	inbox  *inbox      // shared
	lists  chan listResult
	ends   chan watchEnd

	installation string
	book         *statusCache
	writer       *statusWriter
	orphans      *orphanKeeper
	polling      bool              // no watch is available
	listing      bool              // a list is in progress
	flushing     bool              // flushAt is set
	failures     int               // consecutive failures of lists and watches
	dbFailures   int               // consecutive
	unreadable   map[key]time.Time // Shoots that could not be read, and until when they are skipped

	relist, flushAt, pollAt *time.Timer
	later                   *delays

	stopWatch context.CancelFunc
	wg        sync.WaitGroup
}

// A listResult is the result of a list.
type listResult struct {
	list shoot.List
	err  error
}

// A watchEnd is the reason why the watch of an epoch ended.
type watchEnd struct {
	epoch  int
	err    error
	lasted time.Duration
}

func newSession(p *Poller, t *leadership, b *statusCache) *session {
	return &session{
		poller: p, tenure: t, inbox: newInbox(),
		lists: make(chan listResult, 1), ends: make(chan watchEnd, 1),
		book: b, unreadable: map[key]time.Time{}, later: newDelays(),
		stopWatch: func() {},
	}
}

// stoppedTimer returns a timer that does not run.
func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// runSession observes until ctx ends, and returns after all its goroutines have ended.
func (s *session) runSession(ctx context.Context) {
	defer s.wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !s.readInstallationID(ctx) {
		return
	}
	s.writer = &statusWriter{poller: s.poller, tenure: s.tenure, inbox: s.inbox, book: s.book, later: s.later, installation: s.installation}
	s.orphans = &orphanKeeper{poller: s.poller, tenure: s.tenure, installation: s.installation, running: &s.wg}
	s.relist, s.flushAt, s.pollAt = time.NewTimer(0), stoppedTimer(), stoppedTimer()
	defer s.relist.Stop()
	defer s.flushAt.Stop()
	defer s.pollAt.Stop()
	defer s.later.timer.Stop()
	if s.poller.cfg.PollOnly {
		s.startPolling(ctx, nil)
	}
	for range lookers {
		s.wg.Go(func() { s.poller.performLiveReads(ctx, s.inbox) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.relist.C:
			s.startList(ctx)
		case l := <-s.lists:
			s.handleListResult(ctx, l)
		case e := <-s.ends:
			s.handleWatchEnd(ctx, e)
		case <-s.inbox.wake:
			s.scheduleFlush(collect)
		case <-s.flushAt.C:
			s.processInbox(ctx)
		case <-s.later.timer.C:
			s.inbox.putBack(s.later.takeDue())
		case <-s.pollAt.C:
			s.pollRound(ctx)
		}
	}
}

// readInstallationID reads the id of the installation, with retries.
func (s *session) readInstallationID(ctx context.Context) bool {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		id, err := s.poller.deps.Store.Installation(ctx)
		if err == nil {
			s.installation = id
			return true
		}
		s.noteDatabaseFailure(ctx, "read installation id", err)
		if backoff.Sleep(ctx, databasePolicy().Delay(attempt)) != nil {
			break
		}
	}
	return false
}

// scheduleFlush schedules processInbox after a while, unless it is already scheduled.
func (s *session) scheduleFlush(after time.Duration) {
	if !s.flushing {
		s.flushing = true
		s.flushAt.Reset(after)
	}
}

// startList starts to list all Shoots. Other work continues meanwhile.
func (s *session) startList(ctx context.Context) {
	if s.listing {
		return
	}
	s.addMissingRows(ctx) // before the list, or their Shoots would have no cluster
	s.listing = true
	s.inbox.noteListing()
	s.poller.metrics.relists.Inc()
	if s.poller.state.isWatching() {
		s.failures = 0
	}
	s.wg.Go(func() {
		lctx, cancel := context.WithTimeoutCause(ctx, 4*s.poller.cfg.CallTimeout, errTimeout)
		defer cancel()
		l, err := s.poller.deps.Viewer.ListShoots(lctx)
		s.lists <- listResult{l, err}
	})
}

// handleListResult handles the result of a list: it begins a new epoch with a watch from
// there, and compares every row.
func (s *session) handleListResult(ctx context.Context, result listResult) {
	s.listing = false
	if result.err != nil {
		if ctx.Err() == nil {
			s.handleListFailure(ctx, result.err)
		}
		return
	}
	s.poller.state.noteGardener(nil)
	s.stopWatch()
	epoch, during := s.inbox.resetEpoch()
	clear(s.later.held)
	if s.poller.cfg.PollOnly {
		s.startPolling(ctx, nil)
	} else {
		s.polling = false
		s.startWatch(ctx, epoch, result.list.ResourceVersion)
	}
	if err := s.compareRowsWithList(ctx, &result.list, during); err != nil {
		s.noteDatabaseFailure(ctx, "compare Shoots with database", err)
		s.relist.Reset(databasePolicy().Delay(s.dbFailures))
		return
	}
	s.dbFailures = 0
	s.relist.Reset(s.poller.cfg.ReconcileInterval)
}

func (s *session) handleListFailure(ctx context.Context, err error) {
	s.poller.noteGardenerFailure(ctx, "list", err)
	if shoot.ClassOf(err) == shoot.ClassForbidden {
		s.forgetDeletedRows(ctx)
		s.startPolling(ctx, err)
		s.relist.Reset(s.poller.cfg.ReconcileInterval)
		return
	}
	s.relistAfterFailure(err)
}

// relistAfterFailure schedules another list, after a delay that grows with every
// failure.
func (s *session) relistAfterFailure(err error) {
	wait := max(gardenerPolicy().Delay(s.failures), min(shoot.RetryAfter(err), backoff.MaxRetryAfter))
	s.failures++
	s.relist.Reset(wait)
}

// noteGardenerFailure counts failures and logs the first of consecutive ones.
func (p *Poller) noteGardenerFailure(ctx context.Context, doing string, err error) {
	class := shoot.ClassOf(err)
	p.metrics.countFailure(string(class))
	if first := p.state.noteGardener(err); first {
		p.log.WarnContext(ctx, "read shoot status failed, retrying", "doing", doing, "err", err, "class", class)
	}
}

// noteDatabaseFailure counts failures and logs the first of consecutive ones, unless ctx has ended. The
// end of the term is logged elsewhere.
func (s *session) noteDatabaseFailure(ctx context.Context, doing string, err error) {
	if ctx.Err() != nil || errors.Is(err, errTermOver) || errors.Is(err, clusterworker.ErrFenced) {
		return
	}
	s.poller.metrics.countFailure(classDatabase)
	if s.dbFailures == 0 {
		s.poller.log.WarnContext(ctx, "save shoot status failed, retrying", "doing", doing, "err", err)
	}
	s.dbFailures++
}
