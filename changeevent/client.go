package changeevent

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
)

// NewClient creates a client for a sink and starts its workers if it is enabled.
// It sends nothing yet. If a credential file cannot be read, events wait until it
// can; Check reports such files.
//
// It never returns a nil Client. With an error, or if Enabled is false, it returns
// a client that does nothing, so that reporting never stops the work itself.
func NewClient(cfg Config) (Client, error) {
	if !cfg.Enabled {
		return nop{}, nil
	}
	c, err := newClient(cfg)
	if err != nil {
		return nop{}, err
	}
	c.startWorkers()
	return c, nil
}

// OrNop returns c, or a client that does nothing if c is nil or a nil pointer.
func OrNop(c Client) Client {
	if v := reflect.ValueOf(c); c == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nop{}
	}
	return c
}

// A nop client does nothing.
type nop struct{}

func (nop) SendChangeEvent(context.Context, ChangeEvent) {}
func (nop) Close() error                                 { return nil }

// A client sends events to one sink. A nil client does nothing.
type client struct {
	cfg     Config
	log     *slog.Logger
	keys    *credentials
	http    http.RoundTripper
	own     *transport // nil if Config.HTTP is set
	pace    pacer
	results reporter
	cluster bool // the path ends with the cluster, so all events of a request have the same cluster

	seed   maphash.Seed
	shards []*shard
	aside  callbackQueue

	working atomic.Int64  // workers that are running
	ending  atomic.Bool   // Close was called
	closed  chan struct{} // closed when Close has a result
	err     error         // result of Close
}

// Format prints the name of the sink for every verb. Otherwise a client that is passed to
// a logger would show its credentials.
func (c *client) Format(f fmt.State, _ rune) {
	name := ""
	if c != nil {
		name = c.cfg.Name
	}
	_, _ = fmt.Fprintf(f, "client of sink %q", name) // fmt.State cannot report the error
}

func newClient(cfg Config) (*client, error) {
	cfg, err := defaultAndCheckConfig(cfg)
	if err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.Default()
	}
	c := &client{
		cfg:     cfg,
		log:     log.With("sink", cfg.Name),
		http:    cfg.HTTP,
		cluster: formatSpecOrJSON(cfg.Format).cluster,
		seed:    maphash.MakeSeed(),
		closed:  make(chan struct{}),
	}
	if cfg.AppendCluster != nil {
		c.cluster = *cfg.AppendCluster
	}
	if err := c.setUpCredentialsAndTransport(); err != nil {
		return nil, fmt.Errorf("configure change events of sink %q: %w", cfg.Name, err)
	}
	root, cancel := context.WithCancelCause(context.Background())
	c.pace = pacer{
		maxAge:  cfg.MaxAge,
		root:    root,
		cancel:  cancel,
		closing: make(chan struct{}),
	}
	c.results = reporter{
		senderRetries: cfg.SenderRetries,
		log:           c.log,
		tally:         newResultCounters(),
		root:          root,
	}
	if cfg.SenderRetries { // events of a node come one by one, so any worker may take one
		c.shards = []*shard{newShard(cfg.QueueSize*cfg.MaxConcurrentRequests, cfg.MaxConcurrentRequests)}
	} else {
		for range cfg.MaxConcurrentRequests {
			c.shards = append(c.shards, newShard(cfg.QueueSize, 1))
		}
	}
	c.results.metrics, err = newMetrics(cfg.Registerer, cfg.Name, c)
	if err != nil {
		c.pace.cancel(err)
		return nil, fmt.Errorf("register metrics of change events: %w", err)
	}
	return c, nil
}

// setUpCredentialsAndTransport reads the credentials and creates the transport, unless Config.HTTP
// replaces it.
func (c *client) setUpCredentialsAndTransport() (err error) {
	if c.http != nil {
		c.keys, err = newCredentials(c.cfg, c.log, nil)
		return err
	}
	own, err := newTransport(c.cfg)
	if err != nil {
		return err
	}
	c.http, c.own = own, own
	var loadRoots func() error
	if c.cfg.CAFile != "" {
		loadRoots = own.loadRootsOnce
	}
	c.keys, err = newCredentials(c.cfg, c.log, loadRoots)
	if err != nil {
		return err
	}
	endpoint := c.cfg.Endpoint
	if keys := c.keys.current.Load(); keys != nil {
		endpoint = keys.texts[fileEndpoint]
	}
	u, err := parseAndCheckEndpoint(endpoint, c.cfg.AllowHTTP, c.cfg.AllowHosts...)
	if err != nil {
		return nil //nolint:nilerr // its file is not there yet
	}
	return own.checkLiteralIPAllowed(u)
}

// startWorkers starts the workers of the shards, one goroutine for callbacks, and one
// that reads files again. The number of goroutines does not depend on the number of
// events.
func (c *client) startWorkers() {
	c.aside.initChannels()
	// Count all workers before the first one can end.
	for _, s := range c.shards {
		c.working.Add(int64(len(s.hands)))
	}
	for _, s := range c.shards {
		for i := range s.hands {
			w := &worker{client: c, shard: s, hand: &s.hands[i]}
			go w.deliverUntilClosed()
		}
	}
	if c.keys.hasFiles() {
		c.working.Add(1)
		go c.rereadUnreadableFilesUntilClose()
	}
	go c.runCallbacksAndLogOverflows()
}

// Check returns an error if a configuration is invalid or one of its files cannot
// be read. It sends nothing.
func Check(cfg Config) error {
	if !cfg.Enabled {
		return nil
	}
	cfg.Registerer, cfg.Logger = nil, slog.New(slog.DiscardHandler)
	c, err := newClient(cfg)
	if err != nil {
		return err
	}
	c.pace.cancel(errEnded)
	if failed := c.keys.trouble.Load(); failed != nil {
		return fmt.Errorf("configure change events of sink %q: %w", c.cfg.Name, failed.joinErrors())
	}
	return nil
}

// SendChangeEvent implements Client.
func (c *client) SendChangeEvent(ctx context.Context, event ChangeEvent) {
	if c == nil {
		return
	}
	now := time.Now()
	if event.Timestamp.IsZero() {
		event.Timestamp = now
	}
	if event.Source == "" {
		event.Source = c.cfg.Source
	}
	if event.Cluster == "" {
		event.Cluster = c.cfg.ClusterName
	}
	event.DryRun = event.DryRun || c.cfg.DryRun
	if !c.wantsAction(event.Action) {
		c.queueCallbackOfUnwantedEvent(&event, now)
		return
	}
	// The caller may change these after the call. All other fields are values.
	if event.ErrorCodes != nil {
		event.ErrorCodes = slices.Clone(event.ErrorCodes)
	}
	if event.Links != nil {
		event.Links = slices.Clone(event.Links)
	}
	if event.Changes != nil {
		event.Changes = cloneFieldChanges(event.Changes)
	}
	if event.Details != nil {
		event.Details = maps.Clone(event.Details)
	}
	c.enqueueOverwritingOldest(ctx, &event, now)
}

// enqueueOverwritingOldest adds an event to its shard. If the shard is full, it replaces the oldest
// event.
func (c *client) enqueueOverwritingOldest(ctx context.Context, event *ChangeEvent, now time.Time) {
	s := c.shardOf(event)
	s.spinThenLock()
	s.offered++
	if s.closed {
		s.mu.Unlock()
		c.results.countEventResult(event.Action, deliveryResult{class: ClassClosed}, now)
		return
	}
	var lost notice
	slot, overwritesOldest := s.waiting.reserveSlot()
	if overwritesOldest {
		lost = notice{action: slot.event.Action}
		if slot.event.OnDelivery != nil {
			lost.event = new(slot.event)
		}
		c.aside.owed.Add(1)
	}
	slot.event, slot.ctx, slot.at = *event, ctx, now
	hasIdleWorker := s.idle > 0
	s.mu.Unlock()

	// The rest needs no lock, and other senders may wait for it.
	if hasIdleWorker {
		s.wakeWorker()
	}
	if overwritesOldest {
		c.countAndQueueOverflow(lost, now)
	}
}

// shardOf returns the shard of an event's node, subject or cluster. It is always the
// same, so events about one object are sent in order.
func (c *client) shardOf(e *ChangeEvent) *shard {
	if len(c.shards) == 1 {
		return c.shards[0]
	}
	about := cmp.Or(e.NodeName, e.Subject, e.Cluster)
	return c.shards[maphash.String(c.seed, about)%uint64(len(c.shards))]
}

// wantsAction reports whether the sink receives events with an action.
func (c *client) wantsAction(action string) bool {
	if len(c.cfg.Actions) > 0 {
		return slices.Contains(c.cfg.Actions, action)
	}
	return c.cfg.IncludeOptionalActions || !isOptionalAction(action)
}

// Close implements Client.
func (c *client) Close() error {
	if c == nil {
		return nil
	}
	if !c.ending.Swap(true) {
		c.err = c.drainAndClose()
		close(c.closed)
	}
	<-c.closed
	return c.err
}

// grace limits how long Close waits after it has cancelled the requests. Only an
// OnDelivery or a RoundTripper that blocks takes longer.
const grace = 100 * time.Millisecond

// drainAndClose waits until all events are settled, or the shutdown timeout is over. It returns an error
// if events were not delivered.
func (c *client) drainAndClose() error {
	c.pace.endsAt = time.Now().Add(c.cfg.ShutdownTimeout)
	close(c.pace.closing)
	for _, s := range c.shards {
		s.closeAndWakeWorker()
	}
	_, settledBefore := c.countEvents()
	timer := time.NewTimer(c.cfg.ShutdownTimeout)
	defer timer.Stop()
	pending := 0
	select {
	case <-c.aside.ended:
	case <-timer.C:
		pending, _ = c.countEvents()
	}
	// Events that were dropped because of Close were not delivered, either.
	unsent := int(c.results.tally.classes[ClassShutdown].n.Load()) //nolint:gosec // a count of events
	var err error
	if undelivered := pending + unsent; undelivered > 0 {
		_, settled := c.countEvents()
		err = fmt.Errorf("close change events of sink %q: %d events not delivered within %s, %d delivered",
			c.cfg.Name, undelivered, c.cfg.ShutdownTimeout, settled-settledBefore-unsent)
	}

	// Cancel the requests that are still under way.
	c.pace.cancel(errEnded)
	timer.Reset(grace)
	select {
	case <-c.aside.ended:
	case <-timer.C:
	}
	if c.own != nil {
		c.own.CloseIdleConnections() // also connections that are still being opened
	}
	c.results.metrics.stopCollecting(c)
	return err
}

// countEvents returns how many events are pending, and how many are settled.
func (c *client) countEvents() (pending, settled int) {
	for _, s := range c.shards {
		pendingInShard, _, offered := s.pendingStats(time.Time{})
		pending += pendingInShard
		settled += int(offered) - pendingInShard //nolint:gosec // a count of events
	}
	return pending, settled
}
