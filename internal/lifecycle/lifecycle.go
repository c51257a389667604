// Package lifecycle runs the long-running parts of a process and stops them
// in order.
//
// A process is a list of parts. They start together; when the context ends,
// or one of them returns, they are stopped from the last to the first, each
// awaited before the one before it is told to stop. So whatever a part uses
// stands before it in the list and outlives it. Run never returns while a
// part that stopped within its bound is still running; a part that does not
// is named in the error.
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

// A Part is one long-running piece of a process.
type Part struct {
	// Name is how logs, readiness and errors call the part.
	Name string

	// Run works until ctx ends and everything it started has ended.
	// An error, or a return before ctx ended, stops the whole process.
	Run func(ctx context.Context) error

	// Ready reports why the part cannot do its work just now, or nil.
	// A nil func is a part that is always ready.
	Ready func() error

	// Warning says what is not in order and does not keep the part from its
	// work, empty if nothing is. A nil func is a part without warnings.
	Warning func() string

	// Close lets go of what the part has held since it was made. Discard calls
	// it for a part that is never run; Run does so by itself. A nil func is a
	// part that holds nothing before it runs.
	Close func() error
}

// Options bound how a process stops. The zero value is usable.
type Options struct {
	// StopTimeout is how long one part may take to return after its context
	// ended. Zero means DefaultStopTimeout.
	StopTimeout time.Duration
}

// ErrStopTimeout is the cause of an error for a part that was told to stop
// and did not within its bound. Its goroutine is left behind.
var ErrStopTimeout = errors.New("did not stop in time")

type running struct {
	part Part
	stop context.CancelFunc
	done chan error
}

// Run runs parts until ctx ends or one of them returns, then stops the rest
// from the last to the first. It returns nil if ctx ended and every part
// stopped without an error of its own.
func Run(ctx context.Context, opts Options, parts ...Part) error {
	if opts.StopTimeout <= 0 {
		opts.StopTimeout = DefaultStopTimeout
	}

	first := make(chan int, len(parts))
	list := make([]*running, len(parts))
	for i, p := range parts {
		// Detached: only the loop below says when a part stops.
		pctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := &running{part: p, stop: cancel, done: make(chan error, 1)}
		list[i] = r
		go func() {
			err := p.Run(pctx)
			switch {
			case err == nil && pctx.Err() == nil:
				err = errors.New("stopped unexpectedly")
			case errors.Is(err, context.Canceled) && pctx.Err() != nil:
				err = nil // it says no more than that it was told to stop
			}
			r.done <- err
			first <- i
		}()
	}

	if len(parts) > 0 {
		select {
		case <-ctx.Done():
		case <-first:
		}
	}

	var errs []error
	for _, r := range slices.Backward(list) {
		if err := r.stopWithin(opts.StopTimeout); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Discard closes parts that will not be run, because something else could
// not be made, from the last to the first.
func Discard(parts ...Part) error {
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

func (r *running) stopWithin(bound time.Duration) error {
	r.stop()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case err := <-r.done:
		if err != nil {
			return fmt.Errorf("run %s: %w", r.part.Name, err)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("stop %s: %w (%s)", r.part.Name, ErrStopTimeout, bound)
	}
}
