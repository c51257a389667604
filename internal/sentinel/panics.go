package sentinel

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// A panicRelay turns a panic in any goroutine of a sentinel into a panic of Run. Run panics after
// all other goroutines have ended. A caller that runs several sentinels can then recover and
// continue with the others.
type panicRelay struct {
	mu    sync.Mutex
	first string
	stop  context.CancelFunc
}

// withCancelOnPanic returns a context that also ends when a goroutine panics.
func (p *panicRelay) withCancelOnPanic(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop = stop
	return ctx
}

// recoverAndCancel is deferred in each goroutine except that of Run.
func (p *panicRelay) recoverAndCancel() {
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

// cancelAndRepanic is deferred in Run before everything else.
func (p *panicRelay) cancelAndRepanic() {
	p.mu.Lock()
	first := p.first
	p.stop()
	p.mu.Unlock()
	if first != "" {
		panic(first)
	}
}
