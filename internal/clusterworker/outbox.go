package clusterworker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	// OutboxMaxAge is how long a change is kept for a sink that does not accept it.
	OutboxMaxAge = 12 * time.Hour

	outboxLease       = 2 * time.Minute  // of a change in flight
	outboxRenewEvery  = 30 * time.Second // well within lease
	outboxPollEvery   = 5 * time.Second  // for changes that other processes left behind
	outboxExpireEvery = time.Minute
	maxInFlight       = 256                    // changes in flight per sink
	maxExpired        = 5000                   // changes removed by one statement
	outboxRoundPause  = 100 * time.Millisecond // pause between two rounds, so that many answers are handled in one
	closingSlack      = 2 * time.Second        // for the time between the end of Run and the clients
	shutdownSendTime  = 2 * time.Second        // for changes that are due at shutdown
	outboxCallTimeout = 10 * time.Second
)

// A PendingEvent is a change that a sink has not accepted yet.
type PendingEvent struct {
	Seq      int64
	Sink     string
	Change   Change
	Failures int
	// QueuedAt is when the change was stored for the sink, or stored again.
	QueuedAt time.Time
}

// An OutboxStore keeps pending changes. Its errors are errors of the database.
type OutboxStore interface {
	// LeaseDueChanges leases due changes of a sink, only the oldest of each cluster.
	LeaseDueChanges(ctx context.Context, sink string, limit int, lease time.Duration) ([]PendingEvent, error)
	// RenewChangeLeases extends leases to the given time from now.
	RenewChangeLeases(ctx context.Context, changeSeqs []int64, lease time.Duration) error
	// DeleteChangesAndRecordDeliveries removes changes and records their deliveries.
	DeleteChangesAndRecordDeliveries(ctx context.Context, results []DeliveryResult) error
	// RecordFailuresAndRescheduleChanges records a failure of each change and makes it due again after its
	// delay.
	RecordFailuresAndRescheduleChanges(ctx context.Context, results []DeliveryResult) error
	// DeleteExpiredChanges removes up to limit unleased changes that are older than maxAge, records
	// that they expired, and returns their number.
	DeleteExpiredChanges(ctx context.Context, maxAge time.Duration, limit int) (deleted int, err error)
}

// A DeliveryResult is the result of sending a change to a sink.
type DeliveryResult struct {
	Seq   int64
	State v1.DeliveryState
	// Delay is the time until the next attempt, for a change that is put off.
	Delay time.Duration
	// Attempts is the number of requests, 0 or 1.
	Attempts int
	// Class and Status are the error class and the HTTP status of the failure. They are
	// zero without one.
	Class  changeevent.Class
	Status int
}

// An EventSink is a receiver of changes.
type EventSink struct {
	Name string
	// Type is the format of its events.
	Type string
	// Client sends to the sink. It is nil for a sink with invalid settings: its changes
	// wait until the settings are corrected, or expire.
	Client changeevent.Client
}

// OutboxDeps are the dependencies of an Outbox.
type OutboxDeps struct {
	Store OutboxStore
	Sinks []EventSink
	// Closing is how long clients may continue to send after Run has returned. No other
	// process sends their changes before.
	Closing    time.Duration
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// An Outbox delivers changes of Shoots to sinks, at least once. Create it with NewOutbox and call Run
// once.
//
// The store keeps a change for each sink, from the statement that makes it until the
// sink accepts it. An Outbox claims the changes that are due, only the oldest of each
// cluster and sink, and passes them to the clients. An unavailable sink or a killed
// process delays a change, and may repeat it with the same id. Order holds for each
// cluster and sink. No sink waits for another, as each has its own limit. A change that
// a sink rejects for its content, or that has grown too old, is dropped and counted,
// whether or not its sink is still configured. The store records each delivery.
type Outbox struct {
	deps  OutboxDeps
	sinks []EventSink // those with a client
	wake  chan struct{}

	givenUp *prometheus.CounterVec
	sending prometheus.Gauge

	mu       sync.Mutex
	answered []answer

	// Used by Run only. A change stays in flight until the store has saved its result, if
	// that is final.
	inFlight map[int64]PendingEvent
	unsaved  []DeliveryResult
}

// An answer is the delivery result of a change.
type answer struct {
	seq      int64
	delivery changeevent.Delivery
}

// NewOutbox returns an Outbox. It starts nothing.
func NewOutbox(deps OutboxDeps) (*Outbox, error) {
	o := &Outbox{
		deps: deps, wake: make(chan struct{}, 1), inFlight: map[int64]PendingEvent{},
		givenUp: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_clusterworker_change_events_undeliverable_total",
			Help: "Total number of times that the cluster-worker gave up the delivery of a change event to a sink, by error: client_error (the sink rejected the event), encode (the event could not be encoded) or expired (older than 12 hours). A sink is the HTTP endpoint that receives change events.",
		}, []string{"error"}),
		sending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetloop_clusterworker_change_events_in_flight",
			Help: "Number of change events that this cluster-worker is sending to a sink, or whose result it has not saved yet. A sink is the HTTP endpoint that receives change events.",
		}),
	}
	for _, s := range deps.Sinks {
		if s.Client != nil {
			o.sinks = append(o.sinks, s)
		}
	}
	if err := deps.Registerer.Register(o.givenUp); err != nil {
		return nil, err
	}
	return o, deps.Registerer.Register(o.sending)
}

// WakeRun wakes Run, which asks the store again. It never blocks.
func (o *Outbox) WakeRun() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run delivers changes until ctx ends, and then those that are due, for some seconds.
// The next process delivers the rest.
func (o *Outbox) Run(ctx context.Context) error {
	tick := time.NewTicker(outboxPollEvery)
	defer tick.Stop()
	var renewed, expired time.Time
	for ctx.Err() == nil {
		now := time.Now()
		if now.Sub(expired) >= outboxExpireEvery {
			expired = now
			o.saveDeliveryResults(ctx) // what was delivered has not expired
			o.dropExpiredChanges(ctx)
		}
		if now.Sub(renewed) >= outboxRenewEvery {
			renewed = now
			o.renewInFlightLeases(ctx, outboxLease)
		}
		o.saveResultsAndSendDueChanges(ctx)
		_ = backoff.Sleep(ctx, outboxRoundPause) // the loop checks ctx below
		select {
		case <-ctx.Done():
		case <-o.wake:
		case <-tick.C:
		}
	}
	o.sendDueChangesBeforeShutdown(context.WithoutCancel(ctx))
	return nil
}

// sendDueChangesBeforeShutdown delivers due changes as long as sinks accept them, and leaves the rest
// to another process.
func (o *Outbox) sendDueChangesBeforeShutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shutdownSendTime)
	defer cancel()
	for (o.saveResultsAndSendDueChanges(ctx) || len(o.inFlight) > 0) && backoff.Sleep(ctx, outboxRoundPause) == nil {
		select {
		case <-o.wake:
		case <-ctx.Done():
		}
	}
	rest, stop := context.WithTimeout(context.WithoutCancel(ctx), outboxCallTimeout)
	defer stop()
	o.saveDeliveryResults(rest)
	o.renewInFlightLeases(rest, o.deps.Closing+closingSlack)
	if n := len(o.inFlight); n > 0 {
		o.deps.Log.WarnContext(rest, "change events not delivered or not saved as delivered before shutdown, retained in database", "count", n, "not_saved", len(o.unsaved))
	}
}

// saveResultsAndSendDueChanges saves answers and sends due changes. It reports whether there were any to
// send.
func (o *Outbox) saveResultsAndSendDueChanges(ctx context.Context) (sentAny bool) {
	o.saveDeliveryResults(ctx)
	under := map[string]int{}
	for _, p := range o.inFlight {
		under[p.Sink]++
	}
	for _, s := range o.sinks {
		if room := maxInFlight - under[s.Name]; room > 0 && o.claimAndSendDueChanges(ctx, s, room) {
			sentAny = true
		}
	}
	o.sending.Set(float64(len(o.inFlight)))
	return sentAny
}

// claimAndSendDueChanges leases due changes of one sink, up to maxChanges, and sends them.
func (o *Outbox) claimAndSendDueChanges(ctx context.Context, sink EventSink, maxChanges int) (sentAny bool) {
	var due []PendingEvent
	// A claim whose answer is lost keeps its changes from all processes until its lease ends.
	graced, release := withGracePeriod(ctx, shutdownSendTime)
	defer release()
	// After an error there is nothing to send.
	_ = o.callStoreWithTimeout(graced, "claim due change events", func(ctx context.Context) (err error) {
		due, err = o.deps.Store.LeaseDueChanges(ctx, sink.Name, maxChanges, outboxLease)
		return err
	})
	for _, p := range due {
		o.sendChangeAsync(ctx, sink, p)
	}
	return len(due) > 0
}

// sendChangeAsync passes a change to the client of its sink, which calls back once.
func (o *Outbox) sendChangeAsync(ctx context.Context, sink EventSink, pending PendingEvent) {
	if _, ok := o.inFlight[pending.Seq]; ok {
		return // its lease expired, and the client still has it
	}
	o.inFlight[pending.Seq] = pending
	e := pending.Change.ToChangeEvent()
	e.QueuedAt = pending.QueuedAt
	e.OnDelivery = func(d changeevent.Delivery) {
		o.mu.Lock()
		o.answered = append(o.answered, answer{pending.Seq, d})
		o.mu.Unlock()
		o.WakeRun()
	}
	sink.Client.SendChangeEvent(ctx, e)
}

// saveDeliveryResults saves delivery results in the store. After an error it keeps those that are
// final for the next call, so that no change is sent twice. The failure of a delivery is
// dropped, because another process may send the change by then: it is sent again after its
// lease.
func (o *Outbox) saveDeliveryResults(ctx context.Context) {
	o.mu.Lock()
	answered := o.answered
	o.answered = nil
	o.mu.Unlock()
	for _, a := range answered {
		r := classifyDelivery(o.inFlight[a.seq], a.delivery)
		switch r.State {
		case v1.DeliveryRejected:
			o.givenUp.WithLabelValues(string(r.Class)).Inc()
		case v1.DeliveryExpired:
			o.givenUp.WithLabelValues(string(changeevent.ClassExpired)).Inc()
		case v1.DeliveryPending, v1.DeliveryDelivered, v1.DeliverySkipped:
		}
		o.unsaved = append(o.unsaved, r)
	}
	var done, failed []DeliveryResult
	for _, r := range o.unsaved {
		if r.State == v1.DeliveryPending {
			failed = append(failed, r)
		} else {
			done = append(done, r)
		}
	}
	if len(failed) > 0 {
		_ = o.callStoreWithTimeout(ctx, "reschedule change events", func(ctx context.Context) error { return o.deps.Store.RecordFailuresAndRescheduleChanges(ctx, failed) })
		o.removeFromInFlight(failed)
	}
	o.unsaved = done
	if len(done) > 0 && o.callStoreWithTimeout(ctx, "finish change events", func(ctx context.Context) error { return o.deps.Store.DeleteChangesAndRecordDeliveries(ctx, done) }) == nil {
		o.removeFromInFlight(done)
		o.unsaved = nil
	}
	o.sending.Set(float64(len(o.inFlight)))
}

func (o *Outbox) removeFromInFlight(results []DeliveryResult) {
	for _, r := range results {
		delete(o.inFlight, r.Seq)
	}
}

// classifyDelivery returns what a delivery means for a change. An event that can never succeed
// is not sent again, because it would block those behind it forever. All other errors
// are due to the sink or the network.
func classifyDelivery(pending PendingEvent, delivery changeevent.Delivery) DeliveryResult {
	r := DeliveryResult{Seq: pending.Seq, Attempts: delivery.Attempts, Class: delivery.Class, Status: delivery.Status}
	switch {
	case delivery.Class == "" && delivery.Attempts == 0:
		r.State = v1.DeliverySkipped // the sink does not want the action
	case delivery.Class == "":
		r.State, r.Status = v1.DeliveryDelivered, 0
	case delivery.Class == changeevent.ClassExpired:
		r.State, r.Class = v1.DeliveryExpired, "" // the stored error says why it was not delivered before
	case delivery.Class == changeevent.ClassClientError || delivery.Class == changeevent.ClassEncode:
		r.State = v1.DeliveryRejected
	case time.Since(pending.QueuedAt) > OutboxMaxAge:
		r.State = v1.DeliveryExpired
	default:
		r.State = v1.DeliveryPending
		r.Delay = backoff.Policy{Initial: outboxPollEvery, Max: 5 * time.Minute, Jitter: -1}.Delay(pending.Failures)
	}
	return r
}

// renewInFlightLeases extends the leases of changes in flight, as a client may wait long for a
// sink.
func (o *Outbox) renewInFlightLeases(ctx context.Context, lease time.Duration) {
	if len(o.inFlight) == 0 {
		return
	}
	seqs := make([]int64, 0, len(o.inFlight))
	for seq := range o.inFlight {
		seqs = append(seqs, seq)
	}
	_ = o.callStoreWithTimeout(ctx, "renew leases of change events", func(ctx context.Context) error { return o.deps.Store.RenewChangeLeases(ctx, seqs, lease) })
}

// dropExpiredChanges removes changes that are older than OutboxMaxAge.
func (o *Outbox) dropExpiredChanges(ctx context.Context) {
	for n := maxExpired; n == maxExpired; {
		n = 0
		// After an error the rest is removed the next time.
		_ = o.callStoreWithTimeout(ctx, "delete expired change events", func(ctx context.Context) (err error) {
			n, err = o.deps.Store.DeleteExpiredChanges(ctx, OutboxMaxAge, maxExpired)
			return err
		})
		if n > 0 {
			o.givenUp.WithLabelValues(string(changeevent.ClassExpired)).Add(float64(n))
			o.deps.Log.ErrorContext(ctx, "change events dropped, not delivered within maximum age", "count", n, "age", OutboxMaxAge)
		}
	}
}

// callStoreWithTimeout makes one request to the store. A later round retries a failed request.
func (o *Outbox) callStoreWithTimeout(ctx context.Context, action string, call func(context.Context) error) error {
	callCtx, cancel := context.WithTimeout(ctx, outboxCallTimeout)
	defer cancel()
	err := call(callCtx)
	if err != nil && ctx.Err() == nil {
		o.deps.Log.WarnContext(ctx, "change event outbox: database request failed, retrying", "what", action, "err", err)
	}
	return err
}
