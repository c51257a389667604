package sentinel

import (
	"context"
	"sync"
	"time"
)

// idlePublisher is after how long without work a publisher ends. A burst of
// events needs many, and each keeps the stack that it has grown.
const idlePublisher = 10 * time.Second

// Publishers are the goroutines that publish, as many as may wait for confirms
// at a time. They are made as they are needed, and end when they have not been
// for a while, or the sentinel stops.
type publishers struct {
	work chan func()
	wg   sync.WaitGroup

	mu      sync.Mutex
	n       int
	limit   int
	waiting int // for one to be free
}

func newPublishers(limit int) *publishers {
	return &publishers{work: make(chan func()), limit: limit}
}

// submitWork has one of them do something, and waits for one to be free. It
// reports whether it had to, and gives up when ctx ends or cut is closed.
func (p *publishers) submitWork(ctx context.Context, cut <-chan struct{}, do func()) (waited bool, err error) {
	select {
	case p.work <- do:
		return false, nil
	default:
	}
	if p.startPublisher(do) {
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

// startPublisher begins another goroutine, if there may be one. Else the caller is going
// to wait, and says when it has.
func (p *publishers) startPublisher(do func()) bool {
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

// runPublisher does one thing after another. It holds on to none of them while it
// waits, nor to what that was about.
func (p *publishers) runPublisher(do func()) {
	idle := time.NewTimer(idlePublisher)
	defer idle.Stop()
	for ok := true; ok; {
		do()
		do = nil
		for ok && do == nil {
			idle.Reset(idlePublisher)
			select {
			case do, ok = <-p.work:
			case <-idle.C:
				ok = !p.retireIdle()
			}
		}
	}
}

// retireIdle takes a goroutine out of the count, if nobody waits for one that is
// free.
func (p *publishers) retireIdle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting > 0 {
		return false
	}
	p.n--
	return true
}

// stopAll waits until all is done. Nothing is submitted any more.
func (p *publishers) stopAll() {
	close(p.work)
	p.wg.Wait()
}
