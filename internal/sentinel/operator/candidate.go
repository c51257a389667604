package operator

import (
	"context"
	"sync"
	"time"
)

// A candidate is a configuration whose connections do not respond yet.
type candidate struct {
	parts  *instanceParts
	cancel context.CancelFunc
	ready  chan struct{}
	wg     sync.WaitGroup
}

// connectionsReady returns a channel that is closed when all new connections have responded. For no
// candidate it returns nil.
func (c *candidate) connectionsReady() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.ready
}

// cancelAndWait stops the wait.
func (c *candidate) cancelAndWait() {
	c.cancel()
	c.wg.Wait()
}

const (
	// connectPatience is how long a new connection may take to respond before this is reported.
	connectPatience = 3 * time.Second
	// brokerConnectTime is how long a new broker may take to connect while nothing is published.
	brokerConnectTime = time.Second
	// brokerPollInterval is the interval for polling the state of the broker, which costs nothing.
	brokerPollInterval = 20 * time.Millisecond
	// firstProbePause is the first pause between two requests to the API. It doubles up to
	// lastProbePause.
	firstProbePause, lastProbePause = 100 * time.Millisecond, 5 * time.Second
)

// startConnectionWaitIfNeeded waits until the connections of p that are not those of current respond. It
// returns nil if no wait is necessary. It does not wait for the replacement of a connection that
// does not work. In that case a new broker gets a moment to connect, so that the first events need
// not fail. It reports the connections that do not respond with tell, after a while and after each
// change.
func (p *instanceParts) startConnectionWaitIfNeeded(ctx context.Context, current *runningSentinel, report func(PendingConnections)) *candidate {
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
	w := connectionWait{tell: report, told: PendingConnections{Generation: p.wanted.Generation, Since: time.Now()}}
	c.wg.Go(func() {
		defer cancel()
		var all sync.WaitGroup
		if waitAPI {
			all.Go(func() { w.awaitAPIResponse(ctx, p) })
		}
		if waitBroker {
			all.Go(func() { w.awaitBrokerReady(ctx, p) })
		}
		if connect {
			all.Go(func() {
				bounded, done := context.WithTimeout(ctx, brokerConnectTime)
				defer done()
				w.awaitBrokerReady(bounded, p)
			})
		}
		all.Wait()
		if ctx.Err() == nil {
			close(c.ready)
		}
	})
	return c
}

// A connectionWait waits for connections, and reports those that do not respond.
type connectionWait struct {
	tell func(PendingConnections)

	mu   sync.Mutex
	told PendingConnections
}

// updateAndReportPending stores a problem, and reports it if it is significant.
func (w *connectionWait) updateAndReportPending(change func(*PendingConnections)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.told
	change(&w.told)
	if time.Since(w.told.Since) < connectPatience || errorTextOrEmpty(before.API) == errorTextOrEmpty(w.told.API) && errorTextOrEmpty(before.Broker) == errorTextOrEmpty(w.told.Broker) {
		return
	}
	w.tell(w.told)
}

func errorTextOrEmpty(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (w *connectionWait) awaitAPIResponse(ctx context.Context, p *instanceParts) {
	for pause := firstProbePause; ctx.Err() == nil; pause = min(2*pause, lastProbePause) {
		err := p.api.probeAPI(ctx, p.wanted.Settings.Sentinel)
		if err == nil {
			w.updateAndReportPending(func(p *PendingConnections) { p.API = nil })
			return
		}
		if w.isReportDue() {
			w.updateAndReportPending(func(p *PendingConnections) { p.API = err })
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (w *connectionWait) awaitBrokerReady(ctx context.Context, p *instanceParts) {
	ticker := time.NewTicker(brokerPollInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		err := p.broker.Ready()
		if err == nil {
			w.updateAndReportPending(func(p *PendingConnections) { p.Broker = nil })
			return
		}
		if w.isReportDue() {
			w.updateAndReportPending(func(p *PendingConnections) { p.Broker = err })
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// isReportDue reports whether the wait has lasted long enough to be reported.
func (w *connectionWait) isReportDue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.told.Since) >= connectPatience
}
