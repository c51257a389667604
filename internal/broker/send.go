package broker

import (
	"context"
	"fmt"
	"sync/atomic"
)

// States of a PendingSend. The side that moves it out of queued decides which outcome the caller may
// report.
const (
	queued int32 = iota
	sent
	abandoned
)

// A PendingSend is one event between the goroutine that publishes it and the one that owns the
// connection. It decides whether the event may have been sent when a caller gives up.
type PendingSend struct {
	state atomic.Int32
	done  chan error
}

// NewPendingSend returns a queued send.
func NewPendingSend() *PendingSend { return &PendingSend{done: make(chan error, 1)} }

// BeginUnlessAbandoned is called by the connection's goroutine just before it writes. It returns
// false if the caller has given up, in which case nothing may be written.
func (s *PendingSend) BeginUnlessAbandoned() bool { return s.state.CompareAndSwap(queued, sent) }

// ReportOutcome reports the outcome to the caller. It never blocks; only the first outcome of a send
// counts.
func (s *PendingSend) ReportOutcome(outcome error) {
	select {
	case s.done <- outcome:
	default:
	}
}

// AwaitOutcomeOrAbandon waits for the outcome. If ctx ends first, the error shows whether the
// event may have been sent. Once closed is closed, queued sends are no longer accepted, and sends
// that have begun still get an outcome.
func (s *PendingSend) AwaitOutcomeOrAbandon(ctx context.Context, closed <-chan struct{}) error {
	select {
	case err := <-s.done:
		return err
	case <-closed:
		if s.state.CompareAndSwap(queued, abandoned) {
			return ErrNotReady
		}
	case <-ctx.Done():
		return s.abandonOrOutcomeUnknown(ctx)
	}
	select {
	case err := <-s.done:
		return err
	case <-ctx.Done():
		return s.abandonOrOutcomeUnknown(ctx)
	}
}

func (s *PendingSend) abandonOrOutcomeUnknown(ctx context.Context) error {
	select {
	case err := <-s.done: // an outcome that arrives at the same moment takes precedence
		return err
	default:
	}
	if s.state.CompareAndSwap(queued, abandoned) {
		return fmt.Errorf("not sent: %w", context.Cause(ctx))
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, context.Cause(ctx))
}
