// Package lifecycle runs the long-running parts of a process and stops them in order.
//
// A process is a list of parts. They start together. When the context ends, or one of them returns,
// they stop from the last to the first, and each is awaited before the previous one is stopped. The
// dependencies of a part must therefore precede it in the list; they outlive it. Run never returns
// while a part that stopped within its timeout is still running. The error names each part that did
// not stop in time.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// DefaultStopTimeout is how long one part may take to stop when
// Options.StopTimeout is zero.
const DefaultStopTimeout = 20 * time.Second

// A Part is one long-running component of a process.
type Part struct {
	// Name is the name of the part in logs, readiness and errors.
	Name string

	// Run works until ctx ends and everything it started has ended.
	// An error, or a return before ctx ended, stops the whole process.
	Run func(ctx context.Context) error

	// Ready returns why the part cannot work now, or nil. A nil func means always ready.
	Ready func() error

	// Warning returns a problem that does not prevent the part from working, or an empty text. A
	// nil func means no warnings.
	Warning func() string

	// Close releases the resources that the part has held since its creation. Discard calls it for
	// a part that is never run; Run releases them itself. A nil func means that the part holds
	// nothing before it runs.
	Close func() error
}

// Options configures the shutdown of a process. The zero value is usable.
type Options struct {
	// StopTimeout is how long one part may take to return after its context
	// ended. Zero means DefaultStopTimeout.
	StopTimeout time.Duration
}

// ErrStopTimeout is the cause of an error for a part that did not stop within its timeout. Its
// goroutine continues.
var ErrStopTimeout = errors.New("did not stop in time")

// A runningPart is a part whose Run was started.
type runningPart struct {
	part Part
	stop context.CancelFunc
	done chan error // has the error of Run when it has returned
}

// Run runs parts until ctx ends or one of them returns, then stops the rest from the last to the
// first. It returns nil if ctx ended and every part stopped without an error.
func Run(ctx context.Context, opts Options, parts ...Part) error {
	if opts.StopTimeout <= 0 {
		opts.StopTimeout = DefaultStopTimeout
	}

	returned := make(chan struct{}, len(parts)) // one element for each part whose Run has returned
	started := make([]*runningPart, 0, len(parts))
	for _, part := range parts {
		started = append(started, startDetachedPart(ctx, part, returned))
	}

	if len(parts) > 0 {
		select {
		case <-ctx.Done():
		case <-returned:
		}
	}

	var errs []error
	for _, r := range slices.Backward(started) {
		if err := r.stopWithin(opts.StopTimeout); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// startDetachedPart runs a part in its own goroutine, until its stop is called. It sends to returned when the
// part's Run returns.
func startDetachedPart(ctx context.Context, part Part, returned chan<- struct{}) *runningPart {
	// Detached, because only Run decides when a part stops.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &runningPart{part: part, stop: cancel, done: make(chan error, 1)}
	go func() {
		err := part.Run(ctx)
		switch {
		case err == nil && ctx.Err() == nil:
			err = errors.New("stopped unexpectedly")
		case errors.Is(err, context.Canceled) && ctx.Err() != nil:
			err = nil // it only reports that the part was stopped
		}
		r.done <- err
		returned <- struct{}{}
	}()
	return r
}

// CloseAll closes parts that will not be run, because another part could not be created, from the
// last to the first.
func CloseAll(parts ...Part) error {
	var errs []error
	for _, p := range slices.Backward(parts) {
		if p.Close == nil {
			continue
		}
		if err := p.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// stopWithin stops a part and waits for its Run, but not longer than limit. It returns the error of
// Run.
func (r *runningPart) stopWithin(limit time.Duration) error {
	r.stop()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-r.done:
		if err != nil {
			return fmt.Errorf("run %s: %w", r.part.Name, err)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("stop %s: %w (%s)", r.part.Name, ErrStopTimeout, limit)
	}
}
