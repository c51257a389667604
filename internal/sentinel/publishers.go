package sentinel

import (
	"context"
	"sync"
)

// Publishers are the goroutines that publish, as many as may wait for confirms
// at a time. They are made as they are needed and live until the sentinel stops.
type publishers struct {
	work chan func()
	wg   sync.WaitGroup

	mu    sync.Mutex
	n     int
	limit int
}

func newPublishers(limit int) *publishers {
	return &publishers{work: make(chan func()), limit: limit}
}

// submit has one of them do something, and waits for one to be free. It
// reports whether it had to, and gives up when ctx ends or cut is closed.
func (p *publishers) submit(ctx context.Context, cut <-chan struct{}, do func()) (waited bool, err error) {
	select {
	case p.work <- do:
		return false, nil
	default:
	}
	if p.more(do) {
		return false, nil
	}
	select {
	case p.work <- do:
		return true, nil
	case <-cut:
		return true, errDivided
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// more begins another goroutine, if there may be one.
func (p *publishers) more(do func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == p.limit {
		return false
	}
	p.n++
	p.wg.Go(func() {
		for ok := true; ok; do, ok = <-p.work {
			do()
		}
	})
	return true
}

// stop waits until all is done. Nothing is submitted any more.
func (p *publishers) stop() {
	close(p.work)
	p.wg.Wait()
}
