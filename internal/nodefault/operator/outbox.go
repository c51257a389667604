package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
)

// An EventSink is a receiver of change events.
type EventSink struct {
	// Name is the key of the sink in status.sinkDeliveries.
	Name string
	// Client sends to the sink. It must try each event once, because the outbox retries.
	// Nil means that the settings of the sink are invalid; its records wait until they
	// are corrected.
	Client changeevent.Client
	// Wants reports whether the sink receives an action. Nil means all actions.
	Wants func(action string) bool
	// Replay makes a new sink begin with the oldest stored record rather than with the
	// next one.
	Replay bool
}

func (s EventSink) wantsAction(action string) bool { return s.Wants == nil || s.Wants(action) }

// OutboxConfig configures the timeouts of an outbox.
type OutboxConfig struct {
	// MaxAge is the maximum age of a record when it is sent. Zero means 12 h, because
	// older events are useless to people on call, and sinks reject them.
	MaxAge time.Duration
	// Retry is the delay of the first retry of a record, and MaxRetry is the maximum
	// delay. The client handles pauses that a sink asks for. Zero means 1 s and 5 min.
	Retry, MaxRetry time.Duration
	// Drain limits how long StopAwaitAndWriteResults waits for responses. Zero means 10 s.
	Drain time.Duration
}

func (c OutboxConfig) withDefaults() OutboxConfig {
	c.MaxAge = cmp.Or(c.MaxAge, 12*time.Hour)
	c.Retry = cmp.Or(c.Retry, time.Second)
	c.MaxRetry = cmp.Or(c.MaxRetry, 5*time.Minute)
	c.Drain = cmp.Or(c.Drain, changeevent.DefaultShutdownTimeout)
	return c
}

// promptResponse is how long the outbox waits for a response before it records that the event is
// pending. Most responses are faster, and then only the result is written.
const promptResponse = 2 * time.Second

// OutboxFaults accesses the NodeFaults.
type OutboxFaults interface {
	// Get returns a NodeFault from the cache, or nil if it does not exist.
	Get(ctx context.Context, name string) (*v1alpha1.NodeFault, error)
	// WriteProgress writes the progress of sinks, to status fields that only the outbox
	// writes.
	WriteProgress(ctx context.Context, f *v1alpha1.NodeFault, progress DeliveryProgress) error
}

// An Outbox delivers the change events of nodes. The events are the records of
// NodeFault.status.history, and the progress of each sink is stored in status.sinkDeliveries.
//
// A sink receives the records of a node one after the other. The next one is sent when
// the last is settled (accepted, rejected permanently, or expired) and that is stored. So
// their order holds, and a crash repeats at most one record. A requested resend that was
// not finished starts again. Nodes do not wait for each other, and neither do sinks.
//
// A sink receives the records from the time at which it is configured, even if its
// settings are invalid at first. Its entry in status.sinkDeliveries is created with the
// first record for it. A sink that is no longer configured loses its entry.
type Outbox struct {
	cfg     OutboxConfig
	sinks   []EventSink
	faults  OutboxFaults
	metrics *OutboxMetrics
	now     func() time.Time
	requeue func(name string) // triggers a reconcile of a NodeFault

	mu         sync.Mutex
	deliveries map[deliveryKey]*deliveryState
	stopping   bool          // no more events are sent
	responded  chan struct{} // signals a response to StopAwaitAndWriteResults
}

// A deliveryKey identifies the delivery of one node's records to one sink.
type deliveryKey struct{ node, sink string }

// A deliveryState is the state of a delivery that is not stored in the NodeFault.
type deliveryState struct {
	uid types.UID // of the NodeFault

	latest    *v1alpha1.DeliveryStatus // last status that was written or is about to be
	unwritten bool                     // latest has a result that is not written yet

	inFlight int64                 // sequence of the record in flight; 0 if none
	sentAt   time.Time             // when it was passed to the client
	result   *changeevent.Delivery // its response, until it is applied

	failures int       // consecutive failures of the next record
	retryAt  time.Time // earliest time of the next attempt

	resendRequest string  // value of the annotation that requested the current resend
	toResend      []int64 // rejected records that must still be sent again
}

// NewOutbox creates an outbox. requeue triggers a reconcile of a NodeFault.
func NewOutbox(
	cfg OutboxConfig,
	sinks []EventSink,
	faults OutboxFaults,
	metrics *OutboxMetrics,
	requeue func(name string),
) *Outbox {
	return &Outbox{
		cfg:        cfg.withDefaults(),
		sinks:      sinks,
		faults:     faults,
		metrics:    metrics,
		now:        time.Now,
		requeue:    requeue,
		deliveries: map[deliveryKey]*deliveryState{},
		responded:  make(chan struct{}, 1),
	}
}

// Reconcile writes the results of one NodeFault's deliveries, and sends its next records.
func (o *Outbox) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	f, err := o.faults.Get(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read NodeFault %q: %w", req.Name, err)
	}
	if f == nil {
		o.forgetNode(req.Name)
		return reconcile.Result{}, nil
	}
	progress, toSend, after := o.advanceSinks(f, o.now())
	if progress.differsFrom(&f.Status) {
		// Results are written also while the process ends.
		if err := o.faults.WriteProgress(context.WithoutCancel(ctx), f, progress); err != nil {
			return reconcile.Result{}, fmt.Errorf("write delivery state of NodeFault %q: %w", f.Name, err)
		}
	}
	// After the write: a crash between a delivery and the write of its result repeats that record,
	// and must not repeat the one before it.
	for _, d := range o.markWrittenAndInFlightUnlessStopping(f.Name, toSend, o.now()) {
		o.sendRecord(ctx, d)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// advanceSinks advances all sinks. It returns the status to write, the records to send once it is
// written, and the requeue delay.
func (o *Outbox) advanceSinks(
	f *v1alpha1.NodeFault, now time.Time,
) (progress DeliveryProgress, toSend []delivery, after time.Duration) {
	progress = DeliveryProgress{
		Sinks:          map[string]*v1alpha1.DeliveryStatus{},
		FinishedResend: f.Status.LastResendRequest,
	}
	for name := range f.Status.SinkDeliveries {
		if !o.hasSink(name) {
			progress.Sinks[name] = nil // the sink is no longer configured
		}
	}

	resendFinished := true
	graceLeft := promptResponse // how much longer all responses count as prompt
	for _, sink := range o.sinks {
		stored, known := f.Status.SinkDeliveries[sink.Name]
		if !known && f.Status.LastSequence == 0 {
			continue // its entry is created with the first record
		}
		advanced := o.advanceSink(f, sink, now)
		after = shorterNonZeroDelay(after, advanced.wait)
		if advanced.toSend != nil {
			key := deliveryKey{node: f.Name, sink: sink.Name}
			toSend = append(toSend, delivery{key: key, client: sink.Client, record: *advanced.toSend})
		} else if advanced.undelivered > 0 {
			graceLeft = min(graceLeft, advanced.graceLeft)
		}
		resendFinished = resendFinished && !advanced.resending
		progress.Undelivered = max(progress.Undelivered, advanced.undelivered)
		if !known || !equalIgnoringDeliveryTimes(stored, advanced.status) {
			progress.Sinks[sink.Name] = &advanced.status
		}
	}
	if request := f.Annotations[v1alpha1.AnnotationResend]; request != "" && resendFinished {
		progress.FinishedResend = request
	}
	o.metrics.setUndelivered(f.Name, progress.Undelivered)

	// While the responses may still arrive promptly, do not write only that more records wait.
	onlyMoreWait := len(progress.Sinks) == 0 && progress.Undelivered > f.Status.UndeliveredChangeEvents
	if onlyMoreWait && graceLeft > 0 {
		progress.Undelivered = f.Status.UndeliveredChangeEvents
		after = shorterNonZeroDelay(after, graceLeft)
	}
	return progress, toSend, after
}

func (o *Outbox) hasSink(name string) bool {
	return slices.ContainsFunc(o.sinks, func(s EventSink) bool { return s.Name == name })
}

// shorterNonZeroDelay returns the shorter delay. Zero means no delay.
func shorterNonZeroDelay(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// equalIgnoringDeliveryTimes reports whether nothing needs to be written.
func equalIgnoringDeliveryTimes(a, b v1alpha1.DeliveryStatus) bool {
	return a.ProcessedSequence == b.ProcessedSequence &&
		a.LastError == b.LastError &&
		a.Dropped == b.Dropped &&
		hasEnabledAt(a) == hasEnabledAt(b) &&
		slices.Equal(a.Rejected, b.Rejected)
}

// forgetNode removes the state of a deleted NodeFault.
func (o *Outbox) forgetNode(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, sink := range o.sinks {
		delete(o.deliveries, deliveryKey{node: name, sink: sink.Name})
	}
	o.metrics.setUndelivered(name, 0)
}
