package broker

import (
	"context"
	"fmt"
	"sync/atomic"
)

// The life of a Send: who moves it out of queued decides what its caller may
// say of it.
const (
	queued int32 = iota
	sent
	abandoned
)

// A Send is one event between the goroutine that publishes it and the one
// that owns the connection. It settles the one question that matters when a
// caller gives up: whether the event may have left.
type Send struct {
	state atomic.Int32
	done  chan error
}

// NewSend gives a send that is queued.
func NewSend() *Send { return &Send{done: make(chan error, 1)} }

// Begin is called by the connection's goroutine just before it writes. It
// reports false if the caller has given up: then nothing is to be written.
func (s *Send) Begin() bool { return s.state.CompareAndSwap(queued, sent) }

// Finish tells the caller the outcome. It never blocks; only the first
// outcome of a send counts.
func (s *Send) Finish(outcome error) {
	select {
	case s.done <- outcome:
	default:
	}
}

// Wait waits for the outcome. If ctx ends first, the error says whether the
// event may have left. If closed is closed, nobody will take a queued send
// any more, and whoever took it will finish it.
func (s *Send) Wait(ctx context.Context, closed <-chan struct{}) error {
	select {
	case err := <-s.done:
		return err
	case <-closed:
		if s.state.CompareAndSwap(queued, abandoned) {
			return ErrNotReady
		}
	case <-ctx.Done():
		return s.giveUp(ctx)
	}
	select {
	case err := <-s.done:
		return err
	case <-ctx.Done():
		return s.giveUp(ctx)
	}
}

func (s *Send) giveUp(ctx context.Context) error {
	select {
	case err := <-s.done: // it came at the same moment, and is worth more
		return err
	default:
	}
	if s.state.CompareAndSwap(queued, abandoned) {
		return fmt.Errorf("not sent: %w", context.Cause(ctx))
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, context.Cause(ctx))
}
