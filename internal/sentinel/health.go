package sentinel

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// errNotListed is the error of a sentinel that has not read a page yet.
var errNotListed = errors.New("no response from the fleet API yet")

// A heartbeat records whether a sentinel makes progress. The zero value belongs to a sentinel that
// does not run, and counts as live.
type heartbeat struct {
	// next is the deadline of the next progress, nil while nothing runs.
	next atomic.Pointer[time.Time]

	// allowance is how long one step may take at most.
	allowance time.Duration
}

// recordProgress records progress. The next progress is due after nextWithin and the time of one
// step, or later if another loop has announced a longer wait.
func (p *heartbeat) recordProgress(nextWithin time.Duration) {
	deadline := time.Now().Add(nextWithin + p.allowance)
	for {
		previous := p.next.Load()
		if previous != nil && previous.After(deadline) {
			return
		}
		if p.next.CompareAndSwap(previous, &deadline) {
			return
		}
	}
}

// clearDeadline ends the check, because nothing runs any more.
func (p *heartbeat) clearDeadline() { p.next.Store(nil) }

// checkProgress returns an error if the deadline of the next progress has passed.
func (p *heartbeat) checkProgress() error {
	deadline := p.next.Load()
	if deadline == nil || time.Now().Before(*deadline) {
		return nil
	}
	lastProgress := deadline.Add(-p.allowance)
	return fmt.Errorf("no progress since %s", lastProgress.UTC().Format(time.RFC3339))
}

// Live returns an error if the loop makes no progress. Progress is reading a page, trying an event,
// or waiting for the next round. An API or broker that is down is no reason to restart the
// sentinel.
func (s *Sentinel) Live() error { return s.heartbeat.checkProgress() }

// A lastError is the result of the last request of a loop. The zero value is no error. Each loop
// has its own, because the requests of one may fail while those of another succeed.
type lastError struct{ last atomic.Pointer[error] }

// store records the result of a request.
func (t *lastError) store(err error) { t.last.Store(&err) }

func (t *lastError) load() error {
	if p := t.last.Load(); p != nil {
		return *p
	}
	return nil
}

// Ready returns why the sentinel cannot work now. It joins the error of the last request to the
// fleet API and the error of the broker.
func (s *Sentinel) Ready() error {
	err := s.lastAPIError()
	if down := s.publisher.Ready(); down != nil {
		err = errors.Join(err, fmt.Errorf("broker: %w", down))
	}
	return err
}

// lastAPIError returns the error of the last request to the fleet API.
func (s *Sentinel) lastAPIError() error {
	for _, last := range []*lastError{&s.listing, &s.feeding, &s.looking} {
		if err := last.load(); err != nil {
			return err // an API that is down fails all of them alike
		}
	}
	return nil
}
