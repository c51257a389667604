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

// errTimeout is why a call of Gardener was given up.
var errTimeout = errors.New("request to Gardener timed out")

// queryTime bounds a query that reads. One that writes is bound by the term.
func queryTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 10*time.Second, errNoRows)
}

// errNoRows is why a query was given up.
var errNoRows = errors.New("database request timed out")

// maxTries is how often a live look is had at once of a Shoot whose row changes
// meanwhile. After that it waits for longer and longer.
const maxTries = 3

// The waits of a session after something failed.
func gardenerPolicy() backoff.Policy { return backoff.Policy{Initial: time.Second, Max: time.Minute} }

func databasePolicy() backoff.Policy {
	return backoff.Policy{Initial: 250 * time.Millisecond, Max: 10 * time.Second}
}

// A session is what one term is made of. What is not said to be shared belongs
// to the goroutine of run.
type session struct {
	*Poller
	tenure *leadership // shared
	inbox  *inbox      // shared
	lists  chan any    // of capacity 1: a shoot.List, or the error instead
	ends   chan watchEnd

	installation string
	book         *statusCache
	polling      bool // whether a watch is not to be had
	listing      bool // whether a list is under way
	flushing     bool // whether flushAt has a time
	failures     int  // of lists and watches, in a row
	dbFailures   int  // in a row
	orphans      map[string]bool
	unreadable   map[key]time.Time // Shoots that could not be looked up, and until when they are passed over

	relist, flushAt, pollAt, laterAt *time.Timer
	later                            map[key]delayed
	nextBack                         time.Time // when the first of them is due; zero is never

	stopWatch context.CancelFunc
	wg        sync.WaitGroup
	reaping   sync.Mutex // held while orphans are deleted
}

// A watchEnd is why the watch of an epoch can not go on.
type watchEnd struct {
	epoch  int
	err    error
	lasted time.Duration
}

// delayed is a sighting that is to be looked at again later.
type delayed struct {
	at time.Time
	s  observation
}

func newSession(p *Poller, t *leadership, b *statusCache) *session {
	return &session{
		Poller: p, tenure: t, inbox: newInbox(),
		lists: make(chan any, 1), ends: make(chan watchEnd, 1),
		book: b, orphans: map[string]bool{}, unreadable: map[key]time.Time{}, later: map[key]delayed{},
		stopWatch: func() {},
	}
}

// stoppedTimer is a timer that does not run.
func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// runSession observes until ctx ends, and returns when all that it began has ended.
func (s *session) runSession(ctx context.Context) {
	defer s.wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !s.identifyInstallation(ctx) {
		return
	}
	s.relist, s.flushAt, s.pollAt, s.laterAt = time.NewTimer(0), stoppedTimer(), stoppedTimer(), stoppedTimer()
	defer s.relist.Stop()
	defer s.flushAt.Stop()
	defer s.pollAt.Stop()
	defer s.laterAt.Stop()
	if s.cfg.PollOnly {
		s.startPolling(ctx, nil)
	}
	for range lookers {
		s.wg.Go(func() { s.lookUp(ctx) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.relist.C:
			s.startList(ctx)
		case l := <-s.lists:
			s.handleList(ctx, l)
		case e := <-s.ends:
			s.handleWatchEnd(ctx, e)
		case <-s.inbox.wake:
			s.flushSoon(collect)
		case <-s.flushAt.C:
			s.processInbox(ctx)
		case <-s.laterAt.C:
			s.bringBack()
		case <-s.pollAt.C:
			s.pollRound(ctx)
		}
	}
}

// identifyInstallation learns whose Shoots are to be observed.
func (s *session) identifyInstallation(ctx context.Context) bool {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		id, err := s.deps.Store.Installation(ctx)
		if err == nil {
			s.installation = id
			return true
		}
		if ctx.Err() == nil {
			s.databaseFailed(ctx, "read installation id", err)
		}
		if backoff.Sleep(ctx, databasePolicy().Delay(attempt)) != nil {
			break
		}
	}
	return false
}

// flushSoon has what came be looked at after a while, unless it will be sooner.
func (s *session) flushSoon(after time.Duration) {
	if !s.flushing {
		s.flushing = true
		s.flushAt.Reset(after)
	}
}

// startList begins to list all Shoots. What came before goes on meanwhile.
func (s *session) startList(ctx context.Context) {
	if s.listing {
		return
	}
	s.addMissing(ctx) // before the list, or their Shoots would have no cluster
	s.listing = true
	s.inbox.noteListing()
	s.metrics.relists.Inc()
	if s.state.isWatching() {
		s.failures = 0
	}
	s.wg.Go(func() {
		lctx, cancel := context.WithTimeoutCause(ctx, 4*s.cfg.CallTimeout, errTimeout)
		defer cancel()
		l, err := s.deps.Viewer.ListShoots(lctx)
		if err != nil {
			s.lists <- err
			return
		}
		s.lists <- l
	})
}

// handleList makes of a list what follows from it: a new epoch, with a watch that
// goes on from it, and every row as it should be.
func (s *session) handleList(ctx context.Context, result any) {
	s.listing = false
	if err, ok := result.(error); ok {
		if ctx.Err() == nil {
			s.listFailed(ctx, err)
		}
		return
	}
	list, _ := result.(shoot.List)
	s.state.noteGardener(nil)
	s.stopWatch()
	epoch, during := s.inbox.resetEpoch()
	clear(s.later)
	if s.cfg.PollOnly {
		s.startPolling(ctx, nil)
	} else {
		s.polling = false
		s.watchFrom(ctx, epoch, list.ResourceVersion)
	}
	if err := s.compareWithList(ctx, &list, during); err != nil {
		if ctx.Err() == nil {
			s.databaseFailed(ctx, "compare Shoots with database", err)
			s.relist.Reset(databasePolicy().Delay(s.dbFailures))
		}
		return
	}
	s.dbFailures = 0
	s.relist.Reset(s.cfg.ReconcileInterval)
}

func (s *session) listFailed(ctx context.Context, err error) {
	s.gardenerFailed(ctx, "list", err)
	if shoot.ClassOf(err) == shoot.ClassForbidden {
		s.forgetGone(ctx)
		s.startPolling(ctx, err)
		s.relist.Reset(s.cfg.ReconcileInterval)
		return
	}
	s.relistAfterFailure(err)
}

// relistAfterFailure lists again after a while that grows with every failure.
func (s *session) relistAfterFailure(err error) {
	wait := max(gardenerPolicy().Delay(s.failures), min(shoot.RetryAfter(err), backoff.MaxRetryAfter))
	s.failures++
	s.relist.Reset(wait)
}

// gardenerFailed tells of the first of a row of failures, and counts all.
func (s *session) gardenerFailed(ctx context.Context, doing string, err error) {
	class := shoot.ClassOf(err)
	s.metrics.countFailure(string(class))
	if first := s.state.noteGardener(err); first {
		s.log.WarnContext(ctx, "read shoot status failed, retrying", "doing", doing, "err", err, "class", class)
	}
}

// databaseFailed tells of the first of a row of failures, and counts all. The
// end of the term is told of by itself.
func (s *session) databaseFailed(ctx context.Context, doing string, err error) {
	if errors.Is(err, errTermOver) || errors.Is(err, clusterworker.ErrFenced) {
		return
	}
	s.metrics.countFailure(classDatabase)
	if s.dbFailures == 0 {
		s.log.WarnContext(ctx, "save shoot status failed, retrying", "doing", doing, "err", err)
	}
	s.dbFailures++
}
