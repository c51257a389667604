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

// startWatch watches from a resource version on in a separate goroutine, until stopWatch
// or until it needs a new list.
func (s *session) startWatch(ctx context.Context, epoch int, version string) {
	ctx, cancel := context.WithCancel(ctx)
	s.stopWatch = cancel
	s.poller.state.update(func(now *Stats) { now.Watching = true })
	s.wg.Go(func() {
		defer cancel()
		w := &watcher{inbox: s.inbox, epoch: epoch, installation: s.installation, version: version}
		for ctx.Err() == nil {
			began := time.Now()
			err := s.poller.deps.Viewer.WatchShoots(ctx, w.version, w.handleEvent)
			if ctx.Err() != nil {
				return
			}
			s.poller.metrics.watchRestarts.Inc()
			if err != nil {
				select {
				case s.ends <- watchEnd{epoch: epoch, err: err, lasted: time.Since(began)}:
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

// handleWatchEnd handles the end of a watch that cannot continue.
func (s *session) handleWatchEnd(ctx context.Context, e watchEnd) {
	if e.epoch != s.inbox.currentEpoch() {
		return // a newer epoch has begun
	}
	s.poller.state.update(func(now *Stats) { now.Watching = false })
	if e.lasted >= lively {
		s.failures = 0
	}
	switch {
	case errors.Is(e.err, shoot.ErrExpired):
		s.poller.log.InfoContext(ctx, "shoot watch interrupted, relisting", "reason", e.err)
		s.relistAfterFailure(nil)
	case shoot.ClassOf(e.err) == shoot.ClassForbidden:
		s.poller.metrics.countFailure(string(shoot.ClassForbidden))
		s.startPolling(ctx, e.err)
	default:
		s.poller.noteGardenerFailure(ctx, "watch", e.err)
		s.relistAfterFailure(e.err)
	}
}

// A watcher is the watch of one epoch.
type watcher struct {
	inbox        *inbox
	epoch        int
	installation string
	version      string
}

// handleEvent puts one event into the inbox. It never blocks.
func (w *watcher) handleEvent(e shoot.Event) error {
	if e.Shoot.ResourceVersion != "" {
		w.version = e.Shoot.ResourceVersion
	}
	k := key{cluster: e.Shoot.Cluster, name: e.Shoot.Name}
	switch e.Type {
	case shoot.Seen:
		o := e.Shoot
		w.inbox.putWatched(w.epoch, k, observation{shoot: &o, told: true})
	case shoot.Gone:
		w.inbox.putWatched(w.epoch, k, observation{told: true})
	case shoot.Mark:
	}
	return nil
}

// performLiveReads performs requested live reads until ctx ends.
func (p *Poller) performLiveReads(ctx context.Context, in *inbox) {
	for {
		l, ok := in.nextRead(ctx)
		if !ok {
			return
		}
		found := observation{asked: l.asked, thorough: l.thorough, polled: l.polled, tries: l.tries}
		found.shoot, found.err = p.getShoot(ctx, l.name)
		if ctx.Err() != nil {
			return
		}
		in.putRead(l, found)
	}
}

// getShoot reads a Shoot, and returns nil if it is absent.
func (p *Poller) getShoot(ctx context.Context, name string) (*shoot.Observed, error) {
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
