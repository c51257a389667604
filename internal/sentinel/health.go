package sentinel

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// errNotListed is why a sentinel that has not read a page yet is not ready.
var errNotListed = errors.New("no response from the fleet API yet")

// A heartbeat says whether a sentinel makes progress. The zero value is one that
// does not run, and lives.
type heartbeat struct {
	// next is when progress is due at the latest, nil while nothing runs.
	next atomic.Pointer[time.Time]

	// allowance is how long one step may take, in all generosity.
	allowance time.Duration
}

// noteProgress notes progress; the next is due after wait and the time of one step, or
// when another loop, which waits for longer, has promised it.
func (p *heartbeat) noteProgress(wait time.Duration) {
	next := time.Now().Add(wait + p.allowance)
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

// Live reports whether the loop makes progress: pages are read, events are
// tried, or it waits for its next round. That the API or the broker is down is
// no reason to restart it.
func (s *Sentinel) Live() error { return s.heartbeat.checkProgress() }

// A lastError is what the last request of a loop failed with. The zero value is
// none. Loops ask for different things, and each has its own: that one kind of request
// works does not mean that another does.
type lastError struct{ last atomic.Pointer[error] }

// store notes how a request went.
func (t *lastError) store(err error) { t.last.Store(&err) }

func (t *lastError) load() error {
	if p := t.last.Load(); p != nil {
		return *p
	}
	return nil
}

// Ready reports why the sentinel can not do its work just now: what the last
// request to the fleet API failed with, of those that list, follow or look up, and
// why the broker takes nothing.
func (s *Sentinel) Ready() error {
	err := s.apiErr()
	if down := s.publisher.Ready(); down != nil {
		err = errors.Join(err, fmt.Errorf("broker: %w", down))
	}
	return err
}

// apiErr is what the last request to the fleet API failed with.
func (s *Sentinel) apiErr() error {
	for _, t := range []*lastError{&s.listing, &s.feeding, &s.looking} {
		if err := t.load(); err != nil {
			return err // an API that is down fails them all alike
		}
	}
	return nil
}
