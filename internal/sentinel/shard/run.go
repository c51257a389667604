package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// An outcome is the result of a command.
type outcome struct {
	command command
	written Record
	err     error
}

// A loop holds the state of one run of a group.
type loop struct {
	*Group
	tasks    sync.WaitGroup
	changes  chan LeaseChange
	outcomes chan outcome
	rewatch  chan struct{}

	// loggedFailure is the last error of writing the member's own record, empty after a success.
	loggedFailure string
}

// Run takes part in the group until ctx ends. Then it releases its share, waits for the attempts in
// progress, and leaves. If that takes longer than half the duration of a lease, others take over
// when the lease has expired. It never gives up: Ready returns the current problem.
func (g *Group) Run(ctx context.Context) error {
	if err := g.metrics.registerAll(g.deps.Registerer); err != nil {
		return fmt.Errorf("join shard group %q: %w", g.cfg.Name, err)
	}
	defer g.metrics.unregisterAll(g.deps.Registerer)
	// The work continues after ctx has ended, until the member has left.
	l := &loop{
		Group:    g,
		changes:  make(chan LeaseChange),
		outcomes: make(chan outcome),
		rewatch:  make(chan struct{}, 1),
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	l.tasks.Go(func() { l.watchLeasesWithRetry(work) })
	left := l.runUntilLeft(ctx, work)
	stop()
	l.tasks.Wait()

	g.holds.setHoldingAndNotify(holding{})
	if !left {
		g.log.WarnContext(work, "left the shard group without release, other replicas wait for the lease to expire",
			"reason", g.Ready())
		return nil
	}
	g.log.InfoContext(work, "left the shard group")
	return nil
}

// runUntilLeft runs the loop until the member has left. When ctx ends, the member begins to leave. It
// returns false if that takes too long.
func (l *loop) runUntilLeft(ctx, workCtx context.Context) (leftInTime bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	leave := ctx.Done()               // nil once the member leaves
	var leaveTimeout <-chan time.Time // nil until then
	for {
		l.machine.updateOwnership(l.sinceStart())
		l.updateShareAndStatus(workCtx)
		commands, wake := l.machine.takeDueCommands(l.sinceStart())
		if l.machine.finished {
			return true
		}
		for _, c := range commands {
			l.startCommand(workCtx, c)
		}
		timer.Reset(max(0, wake-l.sinceStart()))
		select {
		case c := <-l.changes:
			l.machine.observeLeaseChange(l.sinceStart(), c)
		case o := <-l.outcomes:
			l.processAndLogOutcome(workCtx, o)
		case <-l.holds.released: // the member may state that it has released a share
		case <-timer.C: // a command is due
		case <-leave:
			leave = nil
			l.machine.leaving = true // it releases its whole share
			leaveTimer := time.NewTimer(l.cfg.LeaseDuration / 2)
			defer leaveTimer.Stop()
			leaveTimeout = leaveTimer.C
		case <-leaveTimeout:
			return false
		}
	}
}

// startCommand starts a command, and sends its result to the loop.
func (l *loop) startCommand(ctx context.Context, c command) {
	if c.op == opRewatch {
		select {
		case l.rewatch <- struct{}{}:
		default:
		}
		return
	}
	if c.op == opWrite {
		if l.writtenEpoch != c.record.Epoch {
			l.writtenEpoch, l.epochBegan = c.record.Epoch, time.Now()
		}
		c.record.Since, c.record.Renewed = l.epochBegan, time.Now()
	}
	timeout := l.machine.fence / 2 // this leaves time for a second attempt before the lease expires
	l.tasks.Go(func() {
		bounded, cancel := context.WithTimeoutCause(ctx, timeout, errSlow)
		defer cancel()
		o := outcome{command: c}
		if c.op == opRemove {
			o.err = l.deps.Leases.Delete(bounded, c.record)
		} else {
			o.written, o.err = l.deps.Leases.Put(bounded, c.record)
		}
		select {
		case l.outcomes <- o:
		case <-ctx.Done():
		}
	})
}

// logCommandFailure logs a failed write. A failure for the member's own record, which alone keeps its
// share, is a warning, once until the reason changes or a write succeeds.
func (l *loop) logCommandFailure(ctx context.Context, o outcome) {
	level := slog.LevelDebug
	reason := o.err.Error()
	endangersShare := o.command.op == opWrite && !errors.Is(o.err, ErrConflict)
	if endangersShare && reason != l.loggedFailure {
		l.loggedFailure, level = reason, slog.LevelWarn
	}
	l.log.Log(ctx, level, "lease update failed",
		"op", o.command.op.String(), "record", o.command.record.Name, "err", o.err)
}

func (l *loop) processAndLogOutcome(ctx context.Context, o outcome) {
	l.machine.processCommandResult(l.sinceStart(), o.command, o.written, o.err)
	switch {
	case o.err != nil:
		l.logCommandFailure(ctx, o)
	case o.command.op == opWrite:
		l.loggedFailure = ""
	case o.command.op == opBury:
		l.log.WarnContext(ctx, "replica declared lost",
			"record", o.command.record.Name, "member", o.command.record.Identity)
	}
}
