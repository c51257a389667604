package sentinel

import (
	"context"
	"sync"
	"time"
)

// idlePublisher is how long a publisher goroutine may be idle before it ends. A burst of events
// needs many of them, and each keeps its grown stack.
const idlePublisher = 10 * time.Second

// publisherPool is a pool of goroutines that publish, at most as many as the window allows. They start
// on demand, and end when they are idle or the sentinel stops.
type publisherPool struct {
	work chan func()
	wg   sync.WaitGroup

	mu      sync.Mutex
	n       int // goroutines
	limit   int
	waiting int // callers that wait for a free goroutine
}

func newPublisherPool(limit int) *publisherPool {
	return &publisherPool{work: make(chan func()), limit: limit}
}

// submitWork runs work in a publisher goroutine, and waits for a free one. waited reports whether it
// had to wait. It gives up when ctx ends or interrupt is closed.
func (p *publisherPool) submitWork(ctx context.Context, interrupt <-chan struct{}, work func()) (waited bool, err error) {
	select {
	case p.work <- work:
		return false, nil
	default:
	}
	if p.startWorkerOrCountWaiting(work) {
		return false, nil
	}
	defer p.uncountWaiting()
	select {
	case p.work <- work:
		return true, nil
	case <-interrupt:
		return true, errShardChanged
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// startWorkerOrCountWaiting starts another goroutine if the limit allows it. Otherwise it counts
// the caller as waiting, until the caller calls uncountWaiting.
func (p *publisherPool) startWorkerOrCountWaiting(work func()) (started bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == p.limit {
		p.waiting++
		return false
	}
	p.n++
	p.wg.Go(func() { p.runWorker(work) })
	return true
}

func (p *publisherPool) uncountWaiting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
}

// runWorker runs one function after another, until it retires or the pool closes.
func (p *publisherPool) runWorker(work func()) {
	idle := time.NewTimer(idlePublisher)
	defer idle.Stop()
	for work != nil {
		work()
		work = p.awaitWorkOrRetire(idle)
	}
}

// awaitWorkOrRetire waits for the next function. It returns nil if the goroutine must end, because
// it has been idle for too long or the pool is closed.
func (p *publisherPool) awaitWorkOrRetire(idle *time.Timer) (work func()) {
	for {
		idle.Reset(idlePublisher)
		select {
		case work := <-p.work:
			return work // nil if the pool is closed
		case <-idle.C:
			if p.retireUnlessNeeded() {
				return nil
			}
		}
	}
}

// retireUnlessNeeded removes a goroutine from the count, unless a caller waits for a free one.
func (p *publisherPool) retireUnlessNeeded() (retired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting > 0 {
		return false
	}
	p.n--
	return true
}

// closeAndWait waits until all work is done. No work may be submitted afterwards.
func (p *publisherPool) closeAndWait() {
	close(p.work)
	p.wg.Wait()
}
