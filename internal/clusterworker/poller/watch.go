package poller

import (
	"context"
	"errors"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	// minWorkingWatch is the shortest duration of a watch that counts as working.
	minWorkingWatch = 10 * time.Second
	// minWatchInterval is the shortest time between the starts of two watches.
	minWatchInterval = time.Second
)

// startWatchingShoots watches from a resource version on in a separate goroutine, until stopWatch
// or until it needs a new list.
func (s *leaderSession) startWatchingShoots(ctx context.Context, inboxEpoch int, resourceVersion string) {
	ctx, cancel := context.WithCancel(ctx)
	s.stopWatch = cancel
	s.poller.state.updateStats(func(now *Stats) { now.Watching = true })
	s.wg.Go(func() {
		defer cancel()
		w := &watcher{inbox: s.inbox, epoch: inboxEpoch, installation: s.installation, version: resourceVersion}
		for ctx.Err() == nil {
			began := time.Now()
			err := s.poller.deps.Viewer.WatchShoots(ctx, w.version, w.putEventObservationInInbox)
			if ctx.Err() != nil {
				return
			}
			s.poller.metrics.watchRestarts.Inc()
			if err != nil {
				select {
				case s.watchEnds <- watchEnd{epoch: inboxEpoch, err: err, lasted: time.Since(began)}:
				case <-ctx.Done():
				}
				return
			}
			// Servers end watches from time to time. The watch continues where it was.
			if backoff.Sleep(ctx, time.Until(began.Add(minWatchInterval))) != nil {
				return
			}
		}
	})
}

// relistOrPollAfterWatchEnd handles the end of a watch that cannot continue.
func (s *leaderSession) relistOrPollAfterWatchEnd(ctx context.Context, end watchEnd) {
	if end.epoch != s.inbox.currentEpoch() {
		return // a newer epoch has begun
	}
	s.poller.state.updateStats(func(now *Stats) { now.Watching = false })
	if end.lasted >= minWorkingWatch {
		s.failures = 0
	}
	switch {
	case errors.Is(end.err, shoot.ErrExpired):
		s.poller.log.InfoContext(ctx, "shoot watch interrupted, relisting", "reason", end.err)
		s.scheduleRelistWithBackoff(nil)
	case shoot.ClassOf(end.err) == shoot.ClassForbidden:
		s.poller.metrics.countFailure(string(shoot.ClassForbidden))
		s.startPollingShoots(ctx, end.err)
	default:
		s.poller.countAndLogGardenerFailure(ctx, "watch", end.err)
		s.scheduleRelistWithBackoff(end.err)
	}
}

// A watcher is the watch of one epoch.
type watcher struct {
	inbox        *inbox
	epoch        int
	installation string
	version      string
}

// putEventObservationInInbox puts one event into the inbox. It never blocks.
func (w *watcher) putEventObservationInInbox(event shoot.Event) error {
	if event.Shoot.ResourceVersion != "" {
		w.version = event.Shoot.ResourceVersion
	}
	key := shootKey{cluster: event.Shoot.Cluster, name: event.Shoot.Name}
	switch event.Type {
	case shoot.Seen:
		w.inbox.putWatchObservation(w.epoch, key, observation{shoot: &event.Shoot, fromWatch: true})
	case shoot.Gone:
		w.inbox.putWatchObservation(w.epoch, key, observation{fromWatch: true})
	case shoot.Mark:
		// It has only the resource version.
	}
	return nil
}

// performLiveReadsUntilDone performs requested live reads until ctx ends.
func (p *Poller) performLiveReadsUntilDone(ctx context.Context, inbox *inbox) {
	for {
		read, ok := inbox.waitForNextRead(ctx)
		if !ok {
			return
		}
		found := observation{readFor: read.readFor, checkDrift: read.checkDrift, fromPoll: read.fromPoll, tries: read.tries}
		found.shoot, found.err = p.getShootOrNil(ctx, read.name)
		if ctx.Err() != nil {
			return
		}
		inbox.putLiveReadResultIfCurrent(read, found)
	}
}

// getShootOrNil reads a Shoot, and returns nil if it is absent.
func (p *Poller) getShootOrNil(ctx context.Context, name string) (*shoot.Observed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.CallTimeout, errTimeout)
	defer cancel()
	p.metrics.liveReads.Inc()
	observed, err := p.deps.Viewer.GetShoot(ctx, name)
	if errors.Is(err, shoot.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &observed, nil
}
