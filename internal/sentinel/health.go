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
	next := time.Now().Add(nextWithin + p.allowance)
	for {
		before := p.next.Load()
		if before != nil && before.After(next) || p.next.CompareAndSwap(before, &next) {
			return
		}
	}
}

func (p *heartbeat) clearDeadline() { p.next.Store(nil) }

func (p *heartbeat) checkProgress() error {
	next := p.next.Load()
	if next == nil || time.Now().Before(*next) {
		return nil
	}
	return fmt.Errorf("no progress since %s", next.Add(-p.allowance).UTC().Format(time.RFC3339))
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
	for _, t := range []*lastError{&s.listing, &s.feeding, &s.looking} {
		if err := t.load(); err != nil {
			return err // an API that is down fails all of them alike
		}
	}
	return nil
}
