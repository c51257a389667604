package kubebed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// launchProgram starts a program.
func (b *Bed) launchProgram(path string, args []string) (*process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, fmt.Errorf("start %s: control plane stopped", filepath.Base(path))
	}
	p, err := launchProcess(path, b.folder.Path, args, b.programEnvironment())
	if err != nil {
		return nil, err
	}
	b.running = append(b.running, p)
	return p, nil
}

// programEnvironment returns default variables of the programs. The programs of a
// temporary bed, which tests use, collect garbage less often: with Go's default it takes a
// fifth of the API server's CPU time. A value from the environment of this process wins.
func (b *Bed) programEnvironment() []string {
	if !b.folder.Temporary {
		return nil
	}
	return []string{"GOGC=400"}
}

// watchProcess watches a program that has started: after its unexpected end, the bed is
// unusable.
func (b *Bed) watchProcess(p *process) {
	b.following.Go(func() {
		<-p.done
		if !p.told.Load() {
			b.recordFailure(p.exitError())
		}
	})
}

// launchAndWatch starts a program without a readiness check.
func (b *Bed) launchAndWatch(name string, args []string) error {
	p, err := b.launchProgram(filepath.Join(b.assets, name), args)
	if err == nil {
		b.watchProcess(p)
	}
	return err
}

// launchOnceAndAwaitReady starts a program and returns when it is ready. It ends a program
// that does not become ready.
func (b *Bed) launchOnceAndAwaitReady(ctx context.Context, path string, args []string, ready func(context.Context) error) error {
	p, err := b.launchProgram(path, args)
	if err != nil {
		return err
	}
	if err = b.awaitReady(ctx, p, ready); err == nil {
		b.watchProcess(p)
		return nil
	}
	if p.exitError() != nil && strings.Contains(readFileFrom(p.log, p.from), "address already in use") {
		err = fmt.Errorf("start %s: %w", p.name, ErrPortTaken)
	}
	return errors.Join(err, b.killProcess(p.name))
}

// awaitReady waits until a program is ready, as long as it and the programs that it
// depends on run.
func (b *Bed) awaitReady(ctx context.Context, p *process, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startBound, errStartBound)
	defer cancel()
	return pollUntilOK(ctx, func(ctx context.Context) error {
		for _, needed := range []*process{b.findProcess(Etcd), b.findProcess(APIServer), p} {
			if needed == nil {
				continue
			}
			if err := needed.exitError(); err != nil {
				return finalError{err}
			}
		}
		return ready(ctx)
	})
}

// recordFailure records the first unexpected end of a program.
func (b *Bed) recordFailure(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.death == nil {
		b.death = err
		close(b.died)
	}
}

// findProcess returns the running program of that name, or nil.
func (b *Bed) findProcess(name string) *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.running {
		if p.name == name {
			return p
		}
	}
	return nil
}

// killProcess kills a program.
func (b *Bed) killProcess(name string) error {
	p := b.findProcess(name)
	if p == nil {
		return nil
	}
	err := p.stopWithSignalThenKill(syscall.SIGKILL)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = slices.DeleteFunc(b.running, func(other *process) bool { return other == p })
	return err
}

// Ready returns why the bed cannot be used: a program has ended, or the API server was
// stopped.
func (b *Bed) Ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.stopped:
		return errors.New("control plane stopped")
	case b.death != nil:
		return b.death
	case !slices.ContainsFunc(b.running, func(p *process) bool { return p.name == APIServer }):
		return errors.New("API server stopped")
	}
	return nil
}

// Run runs the bed until ctx ends or one of its programs ends, and then stops it.
func (b *Bed) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return b.Stop()
	case <-b.died:
		return errors.Join(b.Ready(), b.Stop())
	}
}

// A finalError is an error that does not go away by waiting.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// pollUntilOK calls check until it returns no error, or a final one.
func pollUntilOK(ctx context.Context, check func(context.Context) error) error {
	ticker := time.NewTicker(startPoll)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if final := (finalError{}); errors.As(err, &final) {
			return final.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
