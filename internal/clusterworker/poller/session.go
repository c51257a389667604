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

// Causes of canceled requests.
var (
	errTimeout      = errors.New("request to Gardener timed out")
	errQueryTimeout = errors.New("database request timed out")
)

// withReadTimeout limits a query that reads. The term limits a query that writes.
func withReadTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 10*time.Second, errQueryTimeout)
}

// maxImmediateReads is the number of immediate live reads of a Shoot whose row keeps changing.
// Later reads follow with growing delays.
const maxImmediateReads = 3

// Backoff of a session after failures.
func gardenerRetryPolicy() backoff.Policy {
	return backoff.Policy{Initial: time.Second, Max: time.Minute}
}

func databaseRetryPolicy() backoff.Policy {
	return backoff.Policy{Initial: 250 * time.Millisecond, Max: 10 * time.Second}
}

// A leaderSession is the work of one term. Fields that are not marked as shared belong to the
// goroutine of observeShootsUntilDone.
type leaderSession struct {
	poller *Poller     // shared
	term   *leaderTerm // shared
	inbox  *inbox      // shared

	installation string
	cache        *statusCache
	writer       *statusWriter
	orphans      *orphanCleaner
	delayed      *delayedObservations

	listing     bool // a list is in progress
	listResults chan listResult
	relistTimer *time.Timer
	stopWatch   context.CancelFunc
	watchEnds   chan watchEnd
	failures    int // consecutive failures of lists and watches

	polling    bool // no watch is available
	pollTimer  *time.Timer
	unreadable map[shootKey]time.Time // Shoots that could not be read, and until when they are skipped

	inboxScheduled bool // inboxTimer is set
	inboxTimer     *time.Timer
	dbFailures     int // consecutive

	wg sync.WaitGroup
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

func newLeaderSession(p *Poller, term *leaderTerm, cache *statusCache) *leaderSession {
	return &leaderSession{
		poller:      p,
		term:        term,
		inbox:       newInbox(),
		cache:       cache,
		delayed:     newDelayedObservations(),
		listResults: make(chan listResult, 1),
		stopWatch:   func() {},
		watchEnds:   make(chan watchEnd, 1),
		unreadable:  map[shootKey]time.Time{},
	}
}

// newStoppedTimer returns a timer that does not run.
func newStoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// observeShootsUntilDone observes until ctx ends, and returns after all its goroutines have ended.
func (s *leaderSession) observeShootsUntilDone(ctx context.Context) {
	defer s.wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !s.loadInstallationIDWithRetries(ctx) {
		return
	}
	s.writer = &statusWriter{poller: s.poller, term: s.term, inbox: s.inbox, cache: s.cache, delayed: s.delayed, installation: s.installation}
	s.orphans = &orphanCleaner{poller: s.poller, term: s.term, installation: s.installation, running: &s.wg}
	s.relistTimer, s.inboxTimer, s.pollTimer = time.NewTimer(0), newStoppedTimer(), newStoppedTimer()
	defer s.relistTimer.Stop()
	defer s.inboxTimer.Stop()
	defer s.pollTimer.Stop()
	defer s.delayed.timer.Stop()
	if s.poller.cfg.PollOnly {
		s.startPollingShoots(ctx, nil)
	}
	for range liveReaders {
		s.wg.Go(func() { s.poller.performLiveReadsUntilDone(ctx, s.inbox) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.relistTimer.C:
			s.listShootsOnceInBackground(ctx)
		case result := <-s.listResults:
			s.applyListAndRestartWatch(ctx, result)
		case end := <-s.watchEnds:
			s.relistOrPollAfterWatchEnd(ctx, end)
		case <-s.inbox.wake:
			s.scheduleInboxProcessing(inboxDelay)
		case <-s.inboxTimer.C:
			s.processInboxOnce(ctx)
		case <-s.delayed.timer.C:
			s.inbox.putBackObservations(s.delayed.takeDueObservations())
		case <-s.pollTimer.C:
			s.queueReadsOfStalestShoots(ctx)
		}
	}
}

// loadInstallationIDWithRetries reads the id of the installation, with retries.
func (s *leaderSession) loadInstallationIDWithRetries(ctx context.Context) (loaded bool) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		id, err := s.poller.deps.Store.GetInstallationID(ctx)
		if err == nil {
			s.installation = id
			return true
		}
		s.countAndLogDatabaseFailure(ctx, "read installation id", err)
		_ = backoff.Sleep(ctx, databaseRetryPolicy().Delay(attempt)) // the loop checks ctx
	}
	return false
}

// scheduleInboxProcessing schedules processInboxOnce after a while, unless it is already scheduled.
func (s *leaderSession) scheduleInboxProcessing(delay time.Duration) {
	if !s.inboxScheduled {
		s.inboxScheduled = true
		s.inboxTimer.Reset(delay)
	}
}

// listShootsOnceInBackground starts to list all Shoots. Other work continues meanwhile.
func (s *leaderSession) listShootsOnceInBackground(ctx context.Context) {
	if s.listing {
		return
	}
	s.insertMissingRows(ctx) // before the list, or their Shoots would have no cluster
	s.listing = true
	s.inbox.startTrackingObservations()
	s.poller.metrics.relists.Inc()
	if s.poller.state.isWatching() {
		s.failures = 0
	}
	s.wg.Go(func() {
		listCtx, cancel := context.WithTimeoutCause(ctx, 4*s.poller.cfg.CallTimeout, errTimeout)
		defer cancel()
		list, err := s.poller.deps.Viewer.ListShoots(listCtx)
		s.listResults <- listResult{list, err}
	})
}

// applyListAndRestartWatch begins a new epoch with a watch from the list on, and compares every
// row.
func (s *leaderSession) applyListAndRestartWatch(ctx context.Context, result listResult) {
	s.listing = false
	if result.err != nil {
		if ctx.Err() == nil {
			s.retryListOrStartPolling(ctx, result.err)
		}
		return
	}
	s.poller.state.recordGardenerResult(nil)
	s.stopWatch()
	epoch, seenDuringList := s.inbox.clearForNewEpoch()
	clear(s.delayed.held)
	if s.poller.cfg.PollOnly {
		s.startPollingShoots(ctx, nil)
	} else {
		s.polling = false
		s.startWatchingShoots(ctx, epoch, result.list.ResourceVersion)
	}
	if err := s.reconcileAllRowsWithList(ctx, &result.list, seenDuringList); err != nil {
		s.countAndLogDatabaseFailure(ctx, "compare Shoots with database", err)
		s.relistTimer.Reset(databaseRetryPolicy().Delay(s.dbFailures))
		return
	}
	s.dbFailures = 0
	s.relistTimer.Reset(s.poller.cfg.ReconcileInterval)
}

func (s *leaderSession) retryListOrStartPolling(ctx context.Context, err error) {
	s.poller.countAndLogGardenerFailure(ctx, "list", err)
	if shoot.ClassOf(err) == shoot.ClassForbidden {
		s.evictDeletedRowsFromCache(ctx)
		s.startPollingShoots(ctx, err)
		s.relistTimer.Reset(s.poller.cfg.ReconcileInterval)
		return
	}
	s.scheduleRelistWithBackoff(err)
}

// scheduleRelistWithBackoff schedules another list, after a delay that grows with every
// failure.
func (s *leaderSession) scheduleRelistWithBackoff(err error) {
	wait := max(gardenerRetryPolicy().Delay(s.failures), min(shoot.RetryAfter(err), backoff.MaxRetryAfter))
	s.failures++
	s.relistTimer.Reset(wait)
}

// countAndLogGardenerFailure counts failures and logs the first of consecutive ones.
func (p *Poller) countAndLogGardenerFailure(ctx context.Context, action string, err error) {
	class := shoot.ClassOf(err)
	p.metrics.countFailure(string(class))
	if first := p.state.recordGardenerResult(err); first {
		p.log.WarnContext(ctx, "read shoot status failed, retrying", "doing", action, "err", err, "class", class)
	}
}

// countAndLogDatabaseFailure counts failures and logs the first of consecutive ones, unless ctx has ended. The
// end of the term is logged elsewhere.
func (s *leaderSession) countAndLogDatabaseFailure(ctx context.Context, action string, err error) {
	if ctx.Err() != nil || errors.Is(err, errTermOver) || errors.Is(err, clusterworker.ErrFenced) {
		return
	}
	s.poller.metrics.countFailure(classDatabase)
	if s.dbFailures == 0 {
		s.poller.log.WarnContext(ctx, "save shoot status failed, retrying", "doing", action, "err", err)
	}
	s.dbFailures++
}
