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

type running struct {
	part Part
	stop context.CancelFunc
	done chan error
}

// Run runs parts until ctx ends or one of them returns, then stops the rest from the last to the
// first. It returns nil if ctx ended and every part stopped without an error.
func Run(ctx context.Context, opts Options, parts ...Part) error {
	if opts.StopTimeout <= 0 {
		opts.StopTimeout = DefaultStopTimeout
	}

	first := make(chan int, len(parts))
	list := make([]*running, len(parts))
	for i, p := range parts {
		// Detached, because only the loop below decides when a part stops.
		pctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := &running{part: p, stop: cancel, done: make(chan error, 1)}
		list[i] = r
		go func() {
			err := p.Run(pctx)
			switch {
			case err == nil && pctx.Err() == nil:
				err = errors.New("stopped unexpectedly")
			case errors.Is(err, context.Canceled) && pctx.Err() != nil:
				err = nil // it only reports that the part was stopped
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

func (r *running) stopWithin(limit time.Duration) error {
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
