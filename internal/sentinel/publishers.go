package sentinel

import (
	"context"
	"sync"
	"time"
)

// idlePublisher is how long a publisher goroutine may be idle before it ends. A burst of events
// needs many of them, and each keeps its grown stack.
const idlePublisher = 10 * time.Second

// publishers is a pool of goroutines that publish, at most as many as the window allows. They start
// on demand, and end when they are idle or the sentinel stops.
type publishers struct {
	work chan func()
	wg   sync.WaitGroup

	mu      sync.Mutex
	n       int
	limit   int
	waiting int // callers that wait for a free goroutine
}

func newPublishers(limit int) *publishers {
	return &publishers{work: make(chan func()), limit: limit}
}

// submitWork runs do in a publisher goroutine, and waits for a free one. waited reports whether it
// had to wait. It gives up when ctx ends or cut is closed.
func (p *publishers) submitWork(ctx context.Context, cut <-chan struct{}, do func()) (waited bool, err error) {
	select {
	case p.work <- do:
		return false, nil
	default:
	}
	if p.tryStartPublisher(do) {
		return false, nil
	}
	defer p.doneWaiting()
	select {
	case p.work <- do:
		return true, nil
	case <-cut:
		return true, errShardChanged
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// tryStartPublisher starts another goroutine if the limit allows it. Otherwise it counts the caller as
// waiting, until the caller calls doneWaiting.
func (p *publishers) tryStartPublisher(do func()) (started bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == p.limit {
		p.waiting++
		return false
	}
	p.n++
	p.wg.Go(func() { p.runPublisher(do) })
	return true
}

func (p *publishers) doneWaiting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
}

// runPublisher runs one function after another. It drops its reference to a function before it
// waits for the next.
func (p *publishers) runPublisher(first func()) {
	idle := time.NewTimer(idlePublisher)
	defer idle.Stop()
	for ok := true; ok; {
		first()
		first = nil
		for ok && first == nil {
			idle.Reset(idlePublisher)
			select {
			case first, ok = <-p.work:
			case <-idle.C:
				ok = !p.retireIdle()
			}
		}
	}
}

// retireIdle removes a goroutine from the count, unless a caller waits for a free one.
func (p *publishers) retireIdle() (retired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting > 0 {
		return false
	}
	p.n--
	return true
}

// stopAll waits until all work is done. No work may be submitted afterwards.
func (p *publishers) stopAll() {
	close(p.work)
	p.wg.Wait()
}
