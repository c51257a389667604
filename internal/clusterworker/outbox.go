package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

	undeliverable *prometheus.CounterVec
	sending       prometheus.Gauge

	mu         sync.Mutex
	deliveries []receivedDelivery // reported by the clients since the last round

	// Used by Run only. A change stays in flight until the store has saved its result, if
	// that is final.
	inFlight map[int64]PendingEvent
	unsaved  []DeliveryResult
}

// NewOutbox returns an Outbox. It starts nothing.
func NewOutbox(deps OutboxDeps) (*Outbox, error) {
	o := &Outbox{
		deps:     deps,
		wake:     make(chan struct{}, 1),
		inFlight: map[int64]PendingEvent{},
		undeliverable: prometheus.NewCounterVec(prometheus.CounterOpts{
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
	err := errors.Join(deps.Registerer.Register(o.undeliverable), deps.Registerer.Register(o.sending))
	if err != nil {
		return nil, fmt.Errorf("register metrics of change events: %w", err)
	}
	return o, nil
}

// WakeRun wakes Run, which asks the store again. It never blocks.
func (o *Outbox) WakeRun() {
	select {
	case o.wake <- struct{}{}:
	default: // it will wake up anyway
	}
}

// Run delivers changes until ctx ends, and then those that are due, for some seconds.
// The next process delivers the rest.
func (o *Outbox) Run(ctx context.Context) error {
	poll := time.NewTicker(outboxPollEvery)
	defer poll.Stop()
	var lastRenewal, lastExpiry time.Time
	for ctx.Err() == nil {
		now := time.Now()
		if now.Sub(lastExpiry) >= outboxExpireEvery {
			lastExpiry = now
			o.saveReceivedDeliveryResults(ctx) // delivered changes have not expired
			o.dropExpiredChanges(ctx)
		}
		if now.Sub(lastRenewal) >= outboxRenewEvery {
			lastRenewal = now
			o.renewInFlightLeasesOnce(ctx, outboxLease)
		}
		o.saveResultsAndSendDueChanges(ctx)
		_ = backoff.Sleep(ctx, outboxRoundPause) // the loop checks ctx below
		select {
		case <-ctx.Done():
		case <-o.wake:
		case <-poll.C:
		}
	}
	o.sendDueChangesBeforeShutdown(context.WithoutCancel(ctx))
	return nil
}

// saveResultsAndSendDueChanges saves delivery results and sends due changes. It reports whether there were any to
// send.
func (o *Outbox) saveResultsAndSendDueChanges(ctx context.Context) (sentAny bool) {
	o.saveReceivedDeliveryResults(ctx)
	inFlightPerSink := map[string]int{}
	for _, pending := range o.inFlight {
		inFlightPerSink[pending.Sink]++
	}
	for _, sink := range o.sinks {
		room := maxInFlight - inFlightPerSink[sink.Name]
		if room > 0 && o.claimAndSendDueChangesAsync(ctx, sink, room) {
			sentAny = true
		}
	}
	o.sending.Set(float64(len(o.inFlight)))
	return sentAny
}

// claimAndSendDueChangesAsync leases due changes of one sink, up to maxChanges, and sends them.
func (o *Outbox) claimAndSendDueChangesAsync(ctx context.Context, sink EventSink, maxChanges int) (sentAny bool) {
	// A claim whose answer is lost keeps its changes from all processes until its lease ends.
	graceCtx, release := withGracePeriod(ctx, shutdownSendTime)
	defer release()
	claimCtx, cancel := context.WithTimeout(graceCtx, outboxCallTimeout)
	defer cancel()
	due, err := o.deps.Store.LeaseDueChanges(claimCtx, sink.Name, maxChanges, outboxLease)
	if err != nil {
		o.logStoreFailure(graceCtx, "claim due change events", err)
		return false
	}
	for _, pending := range due {
		o.sendChangeAsync(ctx, sink, pending)
	}
	return len(due) > 0
}

// sendChangeAsync passes a change to the client of its sink, which reports its delivery once.
func (o *Outbox) sendChangeAsync(ctx context.Context, sink EventSink, pending PendingEvent) {
	if _, ok := o.inFlight[pending.Seq]; ok {
		return // its lease expired, and the client still has it
	}
	o.inFlight[pending.Seq] = pending
	event := pending.Change.ToChangeEvent()
	event.QueuedAt = pending.QueuedAt
	event.OnDelivery = func(delivery changeevent.Delivery) { o.receiveDelivery(pending.Seq, delivery) }
	sink.Client.SendChangeEvent(ctx, event)
}

// receiveDelivery takes the delivery of a change from a client, at any time.
func (o *Outbox) receiveDelivery(seq int64, delivery changeevent.Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deliveries = append(o.deliveries, receivedDelivery{seq, delivery})
	o.WakeRun()
}

// renewInFlightLeasesOnce extends the leases of changes in flight, as a client may wait long for a
// sink.
func (o *Outbox) renewInFlightLeasesOnce(ctx context.Context, lease time.Duration) {
	if len(o.inFlight) == 0 {
		return
	}
	callCtx, cancel := context.WithTimeout(ctx, outboxCallTimeout)
	defer cancel()
	if err := o.deps.Store.RenewChangeLeases(callCtx, slices.Collect(maps.Keys(o.inFlight)), lease); err != nil {
		o.logStoreFailure(ctx, "renew leases of change events", err)
	}
}

// dropExpiredChanges removes changes that are older than OutboxMaxAge. After an error the rest is removed the next time.
func (o *Outbox) dropExpiredChanges(ctx context.Context) {
	for {
		dropped := o.dropExpiredBatch(ctx)
		if dropped < maxExpired {
			return
		}
	}
}

func (o *Outbox) dropExpiredBatch(ctx context.Context) (dropped int) {
	callCtx, cancel := context.WithTimeout(ctx, outboxCallTimeout)
	defer cancel()
	dropped, err := o.deps.Store.DeleteExpiredChanges(callCtx, OutboxMaxAge, maxExpired)
	if err != nil {
		o.logStoreFailure(ctx, "delete expired change events", err)
		return 0
	}
	if dropped > 0 {
		o.undeliverable.WithLabelValues(string(changeevent.ClassExpired)).Add(float64(dropped))
		o.deps.Log.ErrorContext(ctx, "change events dropped, not delivered within maximum age", "count", dropped, "age", OutboxMaxAge)
	}
	return dropped
}

// sendDueChangesBeforeShutdown delivers due changes as long as sinks accept them, and leaves the rest
// to another process.
func (o *Outbox) sendDueChangesBeforeShutdown(ctx context.Context) {
	sendCtx, cancel := context.WithTimeout(ctx, shutdownSendTime)
	defer cancel()
	for sendCtx.Err() == nil {
		sentAny := o.saveResultsAndSendDueChanges(sendCtx)
		if !sentAny && len(o.inFlight) == 0 {
			break
		}
		_ = backoff.Sleep(sendCtx, outboxRoundPause) // the loop checks sendCtx
		select {
		case <-o.wake:
		case <-sendCtx.Done():
		}
	}
	ctx, stop := context.WithTimeout(ctx, outboxCallTimeout)
	defer stop()
	o.saveReceivedDeliveryResults(ctx)
	o.renewInFlightLeasesOnce(ctx, o.deps.Closing+closingSlack)
	if n := len(o.inFlight); n > 0 {
		o.deps.Log.WarnContext(ctx, "change events not delivered or not saved as delivered before shutdown, retained in database", "count", n, "not_saved", len(o.unsaved))
	}
}

// logStoreFailure logs a failed request to the store, which a later round retries.
func (o *Outbox) logStoreFailure(ctx context.Context, action string, err error) {
	if ctx.Err() == nil {
		o.deps.Log.WarnContext(ctx, "change event outbox: database request failed, retrying", "what", action, "err", err)
	}
}
