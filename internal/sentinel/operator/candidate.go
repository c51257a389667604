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

// awaitedConnections says which new connections must respond before they replace the current ones.
type awaitedConnections struct {
	api, broker bool

	// brokerBriefly gives a new broker a moment to connect, so that the first events need not fail.
	brokerBriefly bool
}

// decideConnectionsToAwait decides which connections of p must respond. The replacement of a
// connection that does not work need not.
func (p *instanceParts) decideConnectionsToAwait(current *runningSentinel) awaitedConnections {
	if current == nil || current.broken {
		return awaitedConnections{brokerBriefly: true}
	}
	stats := current.sentinel.Stats()
	isNewAPI := p.api != current.api
	isNewBroker := p.broker != current.broker
	return awaitedConnections{
		api:           isNewAPI && stats.APIErr == nil,
		broker:        isNewBroker && stats.BrokerErr == nil,
		brokerBriefly: isNewBroker && stats.BrokerErr != nil,
	}
}

// startConnectionWaitIfNeeded starts to wait until the connections of p that are not those of current
// respond. It returns nil if no wait is necessary. It calls report with the connections that do not
// respond, after a while and after each change.
func (p *instanceParts) startConnectionWaitIfNeeded(
	ctx context.Context, current *runningSentinel, report func(PendingConnections),
) *candidate {
	required := p.decideConnectionsToAwait(current)
	if required == (awaitedConnections{}) {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &candidate{parts: p, cancel: cancel, ready: make(chan struct{})}
	wait := connectionWait{
		report:  report,
		pending: PendingConnections{Generation: p.wanted.Generation, Since: time.Now()},
	}
	c.wg.Go(func() {
		defer cancel()
		var responses sync.WaitGroup
		if required.api {
			responses.Go(func() { wait.awaitAPIResponse(ctx, p) })
		}
		if required.broker {
			responses.Go(func() { wait.awaitBrokerReady(ctx, p) })
		}
		if required.brokerBriefly {
			responses.Go(func() {
				bounded, done := context.WithTimeout(ctx, brokerConnectTime)
				defer done()
				wait.awaitBrokerReady(bounded, p)
			})
		}
		responses.Wait()
		if ctx.Err() == nil {
			close(c.ready)
		}
	})
	return c
}

// A connectionWait waits for connections, and reports those that do not respond.
type connectionWait struct {
	report func(PendingConnections)

	mu      sync.Mutex
	pending PendingConnections
}

// updateAndReportPending stores a problem, and reports it if it is significant.
func (w *connectionWait) updateAndReportPending(change func(*PendingConnections)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.pending
	change(&w.pending)
	isTooEarly := time.Since(w.pending.Since) < connectPatience
	isUnchanged := errorTextOrEmpty(before.API) == errorTextOrEmpty(w.pending.API) &&
		errorTextOrEmpty(before.Broker) == errorTextOrEmpty(w.pending.Broker)
	if isTooEarly || isUnchanged {
		return
	}
	w.report(w.pending)
}

func errorTextOrEmpty(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// awaitAPIResponse sends requests until the API responds or ctx ends.
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

// awaitBrokerReady polls the state of the broker until it is connected or ctx ends.
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
	return time.Since(w.pending.Since) >= connectPatience
}
