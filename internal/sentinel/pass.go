package sentinel

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// A decisionPass decides resources as they are read. It reads a whole list, changes, or resources
// that were looked up because they are due. Several passes may run concurrently. A pass belongs to
// one goroutine; only publishing and published are shared with the publisher goroutines.
type decisionPass struct {
	cfg       *Config
	shard     Shard
	labels    *labelFilter
	profile   Decider
	memory    *state.Memory
	budget    *state.Budget
	record    *state.DecisionRecord
	events    *eventPublisher
	metrics   *metrics
	reporter  *reporter
	heartbeat *heartbeat
	scanner   *source.Scanner

	round           uint32 // number of the round; it marks events that were tried in this round
	usesGenerations bool   // the profile uses generations: a missing one counts as 0
	debug           bool   // the log level is debug

	// index is nil if every round reads every resource. Otherwise scheduleNext stores in it when a
	// resource is due next.
	index        *state.DueIndex
	scheduleNext func(id []byte, due time.Time, class state.DueClass)

	// interrupt is closed when the pass must end. It is nil if the pass must not be interrupted.
	interrupt <-chan struct{}

	// readsNewest says that no other pass reads newer data than this one.
	readsNewest bool

	// allowUnselected says that resources outside the selector are expected and not logged.
	allowUnselected bool

	// roundBegan is the start of the round whose budget pays for the events. A round has one
	// budget, however long it takes. Zero means now.
	roundBegan time.Time

	// lastError stores the result of the last request of this pass.
	lastError *lastError

	// These describe the page or watch event that is being decided.
	now          time.Time
	requestedAt  time.Time
	trustsServer bool // the server has selected the resources without labels
	tally        tally

	// These count what the pass has done so far.
	list             listCounts
	dispatched       int
	dispatchedUrgent int                // because of a changed generation
	dispatchedTwice  int                // dispatched resources that this pass will read again
	deferred         state.OverdueCount // due, but left to a later round

	publishing sync.WaitGroup  // dispatched events that are not yet published or failed
	published  *publishResults // shared by all passes of a follower
}

// listCounts counts the resources of a list, as far as it has been read.
type listCounts struct {
	resources   int // of this shard that match the selector
	ready       int
	longestWait time.Duration // of a generation for its adapters

	served   int  // all resources that the API has returned
	labelled bool // one of them had the labels field
}

// publishResults counts the results of dispatched resources.
type publishResults struct {
	dispatched, published, failed atomic.Int64

	dispatchedReady, dispatchedOthers atomic.Int64 // dispatched, by phase
}

func (s *Sentinel) newDecisionPass(ctx context.Context) *decisionPass {
	return &decisionPass{
		cfg:       &s.cfg,
		shard:     s.shard,
		labels:    &s.labels,
		profile:   s.profile,
		memory:    s.memory,
		budget:    s.budget,
		record:    s.record,
		events:    s.events,
		metrics:   s.metrics,
		reporter:  s.reporter,
		heartbeat: &s.heartbeat,
		scanner:   source.NewScanner(!s.selector.Empty()),

		round:           s.rounds.Load(),
		usesGenerations: s.cfg.usesGenerations(),
		debug:           s.log.Enabled(ctx, slog.LevelDebug),

		lastError: &s.listing,
		now:       time.Now(),
		published: new(publishResults),
	}
}

// decideAndDispatchPage decides the resources of a page.
func (p *decisionPass) decideAndDispatchPage(ctx context.Context, page source.Page) (source.Envelope, error) {
	p.heartbeat.recordProgress(0)
	if page.Unchanged {
		p.list.resources += page.Items
		return source.Envelope{}, nil
	}

	p.now, p.requestedAt = time.Now(), page.Asked
	isWholePage := page.Rest == nil
	p.trustsServer = p.labels.trustsServerFilter(page.Body, isWholePage, page.Filtered || p.allowUnselected)
	if !isWholePage {
		page.Rest = slowBody{ReadCloser: page.Rest, pass: p}
	}

	resourcesBefore, readyBefore, deferredBefore := p.list.resources, p.list.ready, p.deferred
	envelope, err := page.ScanItems(p.scanner, func(it *source.Item) error { return p.decideAndDispatch(ctx, it) })
	p.metrics.addAndResetTally(&p.tally)
	if err != nil {
		// The page will be read again.
		p.list.resources, p.list.ready, p.deferred = resourcesBefore, readyBefore, deferredBefore
		return envelope, err
	}
	p.lastError.store(nil)
	p.list.served += envelope.Items
	return envelope, nil
}

// A slowBody is the body of a page that arrives slowly. Each read of it counts as progress and
// updates the time of the pass.
type slowBody struct {
	io.ReadCloser
	pass *decisionPass
}

// Read reads a part of the body.
func (b slowBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	b.pass.heartbeat.recordProgress(0)
	b.pass.now = time.Now()
	return n, err
}

// resetCounts discards the counts because the list starts from the beginning. Everything that was
// dispatched so far will be read again.
func (p *decisionPass) resetCounts() {
	p.list = listCounts{}
	p.deferred = state.OverdueCount{}
	p.dispatchedTwice = p.dispatched
}

// awaitPublishing waits until all events of the pass are published or failed. It returns false if
// interrupt is closed first.
func (p *decisionPass) awaitPublishing(interrupt <-chan struct{}) (finished bool) {
	if interrupt == nil {
		p.publishing.Wait()
		return true
	}
	done := make(chan struct{})
	p.events.pool.wg.Go(func() {
		p.publishing.Wait()
		close(done)
	})
	select {
	case <-done:
		return true
	case <-interrupt:
		return false
	}
}
