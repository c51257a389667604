package poller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// errTermOver is the cause of a write that was not made, or of the end of a session.
var errTermOver = errors.New("leadership lease expired")

// renewals is the number of renewals within the length of a term.
const renewals = 3

// Run observes whenever this process is the leader, until ctx ends. It retries while
// the database or Gardener is unavailable.
func (p *Poller) Run(ctx context.Context) error {
	databaseFailed := false
	for ctx.Err() == nil {
		databaseFailed = p.acquireTermAndObserve(ctx, databaseFailed)
		_ = backoff.Sleep(ctx, p.cfg.Term/renewals) // the loop checks ctx
	}
	return nil
}

// acquireTermAndObserve requests the term, and observes if it gets the term. It reports whether the
// database failed, which it logs once.
func (p *Poller) acquireTermAndObserve(ctx context.Context, wasFailing bool) (acquireFailed bool) {
	term, err := p.requestOrExtendTerm(ctx)
	switch {
	case err != nil:
		if !wasFailing && ctx.Err() == nil {
			p.log.WarnContext(ctx, "acquire leadership failed, retrying", "err", err)
		}
		return true
	case term.Held && ctx.Err() != nil:
		p.releaseTerm(ctx, term.Fence)
	case term.Held:
		p.observeShootsUntilTermEnds(ctx, term)
	}
	return false
}

// requestOrExtendTerm requests a term, or an extension of the current one.
func (p *Poller) requestOrExtendTerm(ctx context.Context) (clusterworker.Term, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.Term/renewals, errQueryTimeout)
	defer cancel()
	return p.deps.Store.AcquireOrExtendTerm(ctx, p.cfg.Owner, p.cfg.Term)
}

// observeShootsUntilTermEnds observes until the term is over.
func (p *Poller) observeShootsUntilTermEnds(ctx context.Context, term clusterworker.Term) {
	p.log.InfoContext(ctx, "leadership acquired", "fence", term.Fence)
	sessionCtx, endSession := context.WithCancelCause(ctx)
	current := &leaderTerm{fence: term.Fence, margin: p.cfg.Term / 10, endSession: endSession}
	current.setEndWithMargin(term.Until)
	p.metrics.leader.Set(1)

	session := newLeaderSession(p, current, p.state.beginTerm(current))
	var running sync.WaitGroup
	running.Go(func() { session.observeShootsUntilDone(sessionCtx) })
	p.renewTermUntilLost(sessionCtx, current)
	endSession(errTermOver)
	running.Wait()
	p.state.endTerm()
	p.metrics.clearLeaderMetrics()

	if ctx.Err() != nil {
		p.releaseTerm(ctx, term.Fence)
		return
	}
	p.metrics.termLosses.Inc()
	p.log.WarnContext(ctx, "leadership lost", "fence", term.Fence, "reason", context.Cause(sessionCtx))
}

// renewTermUntilLost renews the term until it is lost or ctx ends.
func (p *Poller) renewTermUntilLost(ctx context.Context, current *leaderTerm) {
	pause := p.cfg.Term / renewals
	for backoff.Sleep(ctx, min(pause, time.Until(current.writeDeadline()))) == nil {
		if !time.Now().Before(current.writeDeadline()) {
			current.endSession(errTermOver)
			return
		}
		term, err := p.requestOrExtendTerm(ctx)
		switch {
		case err != nil:
			pause = p.cfg.Term / (4 * renewals) // while there is time
		case !term.Held || term.Fence != current.fence:
			// Another fence is a new term. Another worker may have written between the
			// two, so the new term begins with a complete comparison.
			current.endSession(clusterworker.ErrFenced)
			return
		default:
			current.setEndWithMargin(term.Until)
			pause = p.cfg.Term / renewals
		}
	}
}

// releaseTerm resigns, so that another worker can lead at once.
func (p *Poller) releaseTerm(ctx context.Context, fence int64) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 2*time.Second, errQueryTimeout)
	defer cancel()
	if err := p.deps.Store.ReleaseTerm(ctx, fence); err != nil && !errors.Is(err, clusterworker.ErrFenced) {
		p.log.WarnContext(ctx, "release leadership failed", "err", err)
	}
}

// A leaderTerm is the term of this process: its fence and its end.
type leaderTerm struct {
	fence      int64
	margin     time.Duration
	endSession context.CancelCauseFunc

	mu    sync.Mutex
	until time.Time
}

func (t *leaderTerm) setEndWithMargin(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = until.Add(-t.margin)
}

// writeDeadline returns when this process stops writing.
func (t *leaderTerm) writeDeadline() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until
}

// writeWithinTerm calls write with the fence, and only within the term.
func (t *leaderTerm) writeWithinTerm(ctx context.Context, write func(ctx context.Context, fence int64) error) error {
	until := t.writeDeadline()
	if !time.Now().Before(until) {
		t.endSession(errTermOver)
		return errTermOver
	}
	ctx, cancel := context.WithDeadlineCause(ctx, until, errTermOver)
	defer cancel()
	err := write(ctx, t.fence)
	if errors.Is(err, clusterworker.ErrFenced) {
		t.endSession(err)
	}
	return err
}
