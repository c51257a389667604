package poller

import (
	"context"
	"errors"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	// lively is the shortest duration of a watch that counts as working.
	lively = 10 * time.Second
	// rewatch is the shortest time between the starts of two watches.
	rewatch = time.Second
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
			err := s.poller.deps.Viewer.WatchShoots(ctx, w.version, w.putEventInInbox)
			if ctx.Err() != nil {
				return
			}
			s.poller.metrics.watchRestarts.Inc()
			if err != nil {
				select {
				case s.ends <- watchEnd{epoch: inboxEpoch, err: err, lasted: time.Since(began)}:
				case <-ctx.Done():
				}
				return
			}
			// Servers end watches from time to time. The watch continues where it was.
			if backoff.Sleep(ctx, time.Until(began.Add(rewatch))) != nil {
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
	if end.lasted >= lively {
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

// putEventInInbox puts one event into the inbox. It never blocks.
func (w *watcher) putEventInInbox(event shoot.Event) error {
	if event.Shoot.ResourceVersion != "" {
		w.version = event.Shoot.ResourceVersion
	}
	k := shootKey{cluster: event.Shoot.Cluster, name: event.Shoot.Name}
	switch event.Type {
	case shoot.Seen:
		o := event.Shoot
		w.inbox.putWatchObservation(w.epoch, k, observation{shoot: &o, told: true})
	case shoot.Gone:
		w.inbox.putWatchObservation(w.epoch, k, observation{told: true})
	case shoot.Mark:
	}
	return nil
}

// performLiveReadsUntilDone performs requested live reads until ctx ends.
func (p *Poller) performLiveReadsUntilDone(ctx context.Context, inbox *inbox) {
	for {
		l, ok := inbox.waitForNextRead(ctx)
		if !ok {
			return
		}
		found := observation{asked: l.asked, thorough: l.thorough, polled: l.polled, tries: l.tries}
		found.shoot, found.err = p.getShootOrNil(ctx, l.name)
		if ctx.Err() != nil {
			return
		}
		inbox.putLiveReadResultIfCurrent(l, found)
	}
}

// getShootOrNil reads a Shoot, and returns nil if it is absent.
func (p *Poller) getShootOrNil(ctx context.Context, name string) (*shoot.Observed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.CallTimeout, errTimeout)
	defer cancel()
	p.metrics.looks.Inc()
	o, err := p.deps.Viewer.GetShoot(ctx, name)
	switch {
	case errors.Is(err, shoot.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &o, nil
}
