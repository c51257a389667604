package sentinel

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// Panics have a panic in any goroutine of a sentinel come out of Run, after
// all the others have ended: whoever runs several sentinels can then go on
// with the rest.
type panicRelay struct {
	mu    sync.Mutex
	first string
	stop  context.CancelFunc
}

// withPanicCancel gives a context that also ends when a goroutine panics.
func (p *panicRelay) withPanicCancel(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop = stop
	return ctx
}

// recoverPanic is deferred in each goroutine but that of Run.
func (p *panicRelay) recoverPanic() {
	value := recover()
	if value == nil {
		return
	}
	text := fmt.Sprintf("%v\n%s", value, debug.Stack())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == "" {
		p.first = text
	}
	p.stop()
}

// repanic is deferred in Run, before all else is.
func (p *panicRelay) repanic() {
	p.mu.Lock()
	first := p.first
	p.stop()
	p.mu.Unlock()
	if first != "" {
		panic(first)
	}
}
