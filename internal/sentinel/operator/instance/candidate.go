package instance

import (
	"context"
	"sync"
	"time"
)

// A candidate is a configuration whose connections do not answer yet.
type candidate struct {
	parts  *parts
	cancel context.CancelFunc
	ready  chan struct{}
	wg     sync.WaitGroup
}

// answered is closed when all new connections have answered. No candidate has
// none that could.
func (c *candidate) answered() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.ready
}

// stopWaiting ends the waiting.
func (c *candidate) stopWaiting() {
	c.cancel()
	c.wg.Wait()
}

const (
	// patience is how long a new connection may take to answer before that is
	// worth telling.
	patience = 3 * time.Second
	// moment is how long a new broker may take to connect where nothing is
	// published meanwhile.
	moment = time.Second
	// glance is how often the broker is looked at, which costs nothing.
	glance = 20 * time.Millisecond
	// Between two questions to the API it is at first as long, and doubles.
	firstPause, lastPause = 100 * time.Millisecond, 5 * time.Second
)

// awaitConnections waits until the connections of p answer that are not those of current.
// It gives nil if there is nothing to wait for. A connection that does not work
// is none to hold on to until another does; then a new broker has a moment to
// connect, so that the first events need not fail. tell is called with what does not
// answer, after a while and whenever that changes.
func (p *parts) awaitConnections(ctx context.Context, current *running, tell func(Pending)) *candidate {
	var waitAPI, waitBroker, connect bool
	if current == nil || current.broken {
		connect = true
	} else {
		stats := current.sentinel.Stats()
		waitAPI = p.api != current.api && stats.APIErr == nil
		waitBroker = p.broker != current.broker && stats.BrokerErr == nil
		connect = p.broker != current.broker && !waitBroker
	}
	if !waitAPI && !waitBroker && !connect {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &candidate{parts: p, cancel: cancel, ready: make(chan struct{})}
	w := waiting{tell: tell, told: Pending{Generation: p.wanted.Generation, Since: time.Now()}}
	c.wg.Go(func() {
		defer cancel()
		var all sync.WaitGroup
		if waitAPI {
			all.Go(func() { w.awaitAPI(ctx, p) })
		}
		if waitBroker {
			all.Go(func() { w.awaitBroker(ctx, p) })
		}
		if connect {
			all.Go(func() {
				bounded, done := context.WithTimeout(ctx, moment)
				defer done()
				w.awaitBroker(bounded, p)
			})
		}
		all.Wait()
		if ctx.Err() == nil {
			close(c.ready)
		}
	})
	return c
}

// A waiting waits for connections, and tells for which.
type waiting struct {
	tell func(Pending)

	mu   sync.Mutex
	told Pending
}

// noteProblem keeps what is wrong, and tells it if that is worth it.
func (w *waiting) noteProblem(change func(*Pending)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.told
	change(&w.told)
	if time.Since(w.told.Since) < patience || errorText(before.API) == errorText(w.told.API) && errorText(before.Broker) == errorText(w.told.Broker) {
		return
	}
	w.tell(w.told)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (w *waiting) awaitAPI(ctx context.Context, p *parts) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		err := p.api.probeAPI(ctx, p.wanted.Settings.Sentinel)
		if err == nil {
			w.noteProblem(func(p *Pending) { p.API = nil })
			return
		}
		if w.isReportDue() {
			w.noteProblem(func(p *Pending) { p.API = err })
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (w *waiting) awaitBroker(ctx context.Context, p *parts) {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for ctx.Err() == nil {
		err := p.broker.Ready()
		if err == nil {
			w.noteProblem(func(p *Pending) { p.Broker = nil })
			return
		}
		if w.isReportDue() {
			w.noteProblem(func(p *Pending) { p.Broker = err })
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// isReportDue says whether it is time to tell.
func (w *waiting) isReportDue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.told.Since) >= patience
}
