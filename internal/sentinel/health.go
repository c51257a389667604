package sentinel

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// errNotListed is why a sentinel that has not read a page yet is not ready.
var errNotListed = errors.New("the fleet API has not answered yet")

// A pulse says whether a loop makes progress. The zero value is one that does
// not run, and lives.
type pulse struct {
	// next is when progress is due at the latest, nil while nothing runs.
	next atomic.Pointer[time.Time]

	// allowance is how long one step may take, in all generosity.
	allowance time.Duration
}

// beat notes progress; the next is due after wait and the time of one step.
func (p *pulse) beat(wait time.Duration) {
	next := time.Now().Add(wait + p.allowance)
	p.next.Store(&next)
}

func (p *pulse) stop() { p.next.Store(nil) }

func (p *pulse) err() error {
	next := p.next.Load()
	if next == nil || time.Now().Before(*next) {
		return nil
	}
	return fmt.Errorf("no progress since %s", next.Add(-p.allowance).UTC().Format(time.RFC3339))
}

// Live reports whether the loop makes progress: pages are read, events are
// tried, or it waits for its next round. That the API or the broker is down is
// no reason to restart it.
func (s *Sentinel) Live() error { return s.pulse.err() }

// Ready reports why the sentinel can not do its work just now: what the last
// request to the fleet API failed with, and why the broker takes nothing.
func (s *Sentinel) Ready() error {
	var errs []error
	if err := *s.apiErr.Load(); err != nil {
		errs = append(errs, err)
	}
	if err := s.publisher.Ready(); err != nil {
		errs = append(errs, fmt.Errorf("broker: %w", err))
	}
	return errors.Join(errs...)
}
