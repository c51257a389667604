package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// A EventSink is a receiver of change events.
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
	// Drain limits how long StopAndAwaitInFlight waits for responses. Zero means 10 s.
	Drain time.Duration
}

func (c OutboxConfig) withDefaults() OutboxConfig {
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{{&c.MaxAge, 12 * time.Hour}, {&c.Retry, time.Second}, {&c.MaxRetry, 5 * time.Minute}, {&c.Drain, changeevent.DefaultShutdownTimeout}} {
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	return c
}

// prompt is how long the outbox waits for a response before it records that the event is
// pending. Most responses are faster, and then only the result is written.
const prompt = 2 * time.Second

// errorUnusable is the error of a sink with invalid settings.
const errorUnusable = "invalid_sink"

// errorDropped is the error of records that were dropped because too many were waiting.
const errorDropped = "queue_full"

// maxRefused is how many rejected records are stored per sink.
const maxRefused = 16

// OutboxFaults accesses the NodeFaults.
type OutboxFaults interface {
	// Get returns a NodeFault from the cache, or nil if it does not exist.
	Get(ctx context.Context, name string) (*v1alpha1.NodeFault, error)
	// WriteProgress writes the progress of sinks, to status fields that only the outbox
	// writes. A nil DeliveryStatus removes a sink.
	WriteProgress(ctx context.Context, f *v1alpha1.NodeFault, progress DeliveryProgress) error
}

// DeliveryProgress holds the status fields that an outbox writes.
type DeliveryProgress struct {
	Sinks map[string]*v1alpha1.DeliveryStatus
	// Untold is the number of undelivered records. A negative value leaves it unchanged.
	Untold int32
	Resent string
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
	wake    func(name string)

	mu      sync.Mutex
	lines   map[deliveryLine]*deliveryState
	ending  bool          // no more events are sent
	settled chan struct{} // signals a response to StopAndAwaitInFlight
}

// A deliveryLine identifies the delivery of one node's records to one sink.
type deliveryLine struct{ node, sink string }

// A deliveryState is the state of a line that is not stored in the NodeFault.
type deliveryState struct {
	uid      types.UID
	latest   *v1alpha1.DeliveryStatus // last status that was written or is about to be
	inFlight int64                    // sequence of the record in flight; 0 if none
	sent     time.Time                // when it was passed to the client
	answered *changeevent.Delivery

	unwritten bool // latest has a result that is not written yet

	failures int       // consecutive failures of the next record
	next     time.Time // earliest time of the next attempt

	asked string  // value of the annotation that requested the current resend
	again []int64 // rejected records that must still be sent again
}

// NewOutbox creates an outbox. wake triggers a reconcile of a NodeFault.
func NewOutbox(cfg OutboxConfig, sinks []EventSink, faults OutboxFaults, metrics *OutboxMetrics, wake func(name string)) *Outbox {
	return &Outbox{cfg: cfg.withDefaults(), sinks: sinks, faults: faults, metrics: metrics, now: time.Now, wake: wake, lines: map[deliveryLine]*deliveryState{}, settled: make(chan struct{}, 1)}
}

// EnrollSinks adds an entry for each new sink. It must be called before records are added, so
// that new sinks receive them.
func (o *Outbox) EnrollSinks(st *v1alpha1.NodeFaultStatus, now time.Time) {
	before := *st
	st.SinkDeliveries = maps.Clone(st.SinkDeliveries)
	for _, s := range o.sinks {
		if _, is := st.SinkDeliveries[s.Name]; is {
			continue
		}
		if st.SinkDeliveries == nil {
			st.SinkDeliveries = map[string]v1alpha1.DeliveryStatus{}
		}
		st.SinkDeliveries[s.Name] = o.initialDeliveryStatus(&before, s, now)
	}
}

// initialDeliveryStatus returns the first entry of a sink.
func (o *Outbox) initialDeliveryStatus(st *v1alpha1.NodeFaultStatus, sink EventSink, now time.Time) v1alpha1.DeliveryStatus {
	d := v1alpha1.DeliveryStatus{ProcessedSequence: st.LastSequence, EnabledAt: &metav1.Time{Time: now}}
	first := st.LastSequence + 1
	switch {
	case sink.Replay:
		first = 0
	case !slices.ContainsFunc(slices.Collect(maps.Values(st.SinkDeliveries)), hasEnabledAt):
		// An earlier release created no entry for a sink that had accepted nothing.
		// UndeliveredChangeEvents then is the number of waiting records.
		first -= int64(st.UndeliveredChangeEvents)
	}
	for i := range st.History {
		if r := &st.History[i]; r.Sequence >= first && now.Sub(r.At.Time) <= o.cfg.MaxAge {
			d.ProcessedSequence, d.EnabledAt = r.Sequence-1, &metav1.Time{Time: r.At.Time}
			break
		}
	}
	return d
}

// hasEnabledAt reports whether the entry of a sink was created by EnrollSinks, rather than by an
// earlier release.
func hasEnabledAt(d v1alpha1.DeliveryStatus) bool { return d.EnabledAt != nil }

// Reconcile sends the next records, and writes results.
func (o *Outbox) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	f, err := o.faults.Get(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read NodeFault %q: %w", req.Name, err)
	}
	if f == nil {
		o.forgetNode(req.Name)
		return reconcile.Result{}, nil
	}
	p, next, after := o.advanceSinks(f, o.now())
	if len(p.Sinks) > 0 || p.Untold != f.Status.UndeliveredChangeEvents || p.Resent != f.Status.LastResendRequest {
		// Results are written also while the process ends.
		if err := o.faults.WriteProgress(context.WithoutCancel(ctx), f, p); err != nil {
			return reconcile.Result{}, fmt.Errorf("write delivery state of NodeFault %q: %w", f.Name, err)
		}
	}
	// After the write: a crash between a delivery and the write of its result repeats that record,
	// and must not repeat the one before it.
	for _, d := range o.markWrittenAndInFlightUnlessStopping(f.Name, next, o.now()) {
		o.sendRecord(ctx, d)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// advanceSinks advances all sinks. It returns the status to write, the records to send once it is
// written, and the requeue delay.
func (o *Outbox) advanceSinks(f *v1alpha1.NodeFault, now time.Time) (progress DeliveryProgress, toSend []delivery, after time.Duration) {
	progress = DeliveryProgress{Sinks: map[string]*v1alpha1.DeliveryStatus{}, Resent: f.Status.LastResendRequest}
	for name := range f.Status.SinkDeliveries {
		if !slices.ContainsFunc(o.sinks, func(s EventSink) bool { return s.Name == name }) {
			progress.Sinks[name] = nil // the sink is no longer configured
		}
	}
	done, expected := true, prompt
	for _, s := range o.sinks {
		before, known := f.Status.SinkDeliveries[s.Name]
		if !known && f.Status.LastSequence == 0 {
			continue // its entry is created with the first record
		}
		d, record, wait, left := o.advanceSink(f, s, now)
		after = shorterNonZeroDelay(after, wait)
		if record != nil {
			toSend = append(toSend, delivery{deliveryLine{f.Name, s.Name}, s.Client, *record})
		}
		if left > 0 && record == nil {
			expected = min(expected, o.inFlightGraceLeft(deliveryLine{f.Name, s.Name}, now))
		}
		done = done && !o.hasRejectedToResend(deliveryLine{f.Name, s.Name})
		progress.Untold = max(progress.Untold, left)
		if known && equalIgnoringDeliveryTimes(before, d) {
			continue
		}
		progress.Sinks[s.Name] = &d
	}
	if again := f.Annotations[v1alpha1.AnnotationResend]; again != "" && done {
		progress.Resent = again
	}
	o.metrics.setUndelivered(f.Name, progress.Untold)
	if progress.Untold > f.Status.UndeliveredChangeEvents && len(progress.Sinks) == 0 && expected > 0 {
		progress.Untold, after = f.Status.UndeliveredChangeEvents, shorterNonZeroDelay(after, expected)
	}
	return progress, toSend, after
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
	return a.ProcessedSequence == b.ProcessedSequence && a.LastError == b.LastError && a.Dropped == b.Dropped && hasEnabledAt(a) == hasEnabledAt(b) && slices.Equal(a.Rejected, b.Rejected)
}

// advanceSink advances a sink: it applies the last result and chooses the next record to
// send. It returns the status of the sink, that record or nil, the delay until the next
// attempt (0 while a response is pending), and how many records are left.
func (o *Outbox) advanceSink(f *v1alpha1.NodeFault, sink EventSink, now time.Time) (delivery v1alpha1.DeliveryStatus, toSend *v1alpha1.Record, wait time.Duration, undelivered int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := deliveryLine{f.Name, sink.Name}
	st := o.lines[l]
	if st == nil || st.uid != f.UID {
		st = &deliveryState{uid: f.UID}
		o.lines[l] = st
	}
	delivery, known := f.Status.SinkDeliveries[sink.Name]
	switch {
	case !known:
		delivery = o.initialDeliveryStatus(&f.Status, sink, now)
	case !hasEnabledAt(delivery): // created by an earlier release
		delivery.EnabledAt = &metav1.Time{Time: now}
	}
	if st.latest != nil && st.latest.ProcessedSequence >= delivery.ProcessedSequence { // the cache may be stale
		delivery = *st.latest
	}
	delivery.Rejected = slices.Clone(delivery.Rejected)
	if st.answered != nil {
		o.applyDeliveryResult(st, &delivery, now)
		st.unwritten = true
	}
	if asked := f.Annotations[v1alpha1.AnnotationResend]; asked != "" && asked != f.Status.LastResendRequest && asked != st.asked {
		st.asked, st.again = asked, slices.Clone(delivery.Rejected)
	}
	if st.inFlight == 0 && !o.ending {
		if wait = st.next.Sub(now); wait <= 0 {
			wait = 0
			o.skipAndCountTrimmedRecords(f, st, &delivery, now)
			next := o.skipUnwantedAndPickNext(f, sink, st, &delivery, now)
			switch {
			case sink.Client == nil:
				wait = o.setInvalidSinkError(&delivery, next, now)
			case next != nil:
				toSend = next
			}
		}
	}
	latest := delivery
	st.latest = &latest
	undelivered = int32(len(st.again)) //nolint:gosec // at most maxRefused
	for i := range f.Status.History {
		if r := &f.Status.History[i]; r.Sequence > delivery.ProcessedSequence && sink.wantsAction(r.Action) {
			undelivered++
		}
	}
	if undelivered == 0 {
		wait = 0
	}
	return delivery, toSend, wait, undelivered
}

// setInvalidSinkError updates the status of a sink with invalid settings, whose records
// wait. It returns the delay until the next record expires.
func (o *Outbox) setInvalidSinkError(d *v1alpha1.DeliveryStatus, next *v1alpha1.Record, now time.Time) (untilExpiry time.Duration) {
	switch {
	case next == nil && d.LastError == errorUnusable:
		d.LastError, d.LastFailedAt = "", nil
	case next == nil:
	default:
		if d.LastError != errorUnusable {
			d.LastError, d.LastFailedAt = errorUnusable, &metav1.Time{Time: now}
		}
		return max(next.At.Add(o.cfg.MaxAge).Sub(now), 0) + time.Second // then the record has expired
	}
	return 0
}

// skipAndCountTrimmedRecords skips records that are no longer stored, and counts them.
func (o *Outbox) skipAndCountTrimmedRecords(f *v1alpha1.NodeFault, st *deliveryState, d *v1alpha1.DeliveryStatus, now time.Time) {
	kept := f.Status.LastSequence
	if len(f.Status.History) > 0 {
		kept = f.Status.History[0].Sequence - 1
	}
	if n := kept - d.ProcessedSequence; n > 0 {
		d.ProcessedSequence, d.Dropped, d.LastError, d.LastFailedAt = kept, d.Dropped+n, errorDropped, &metav1.Time{Time: now}
		o.metrics.refused.WithLabelValues(errorDropped).Add(float64(n))
		st.failures, st.next = 0, time.Time{}
	}
}

// skipUnwantedAndPickNext returns the next record to send. It skips unwanted and expired records.
func (o *Outbox) skipUnwantedAndPickNext(f *v1alpha1.NodeFault, sink EventSink, st *deliveryState, d *v1alpha1.DeliveryStatus, now time.Time) *v1alpha1.Record {
	for len(st.again) > 0 {
		i := slices.IndexFunc(f.Status.History, func(r v1alpha1.Record) bool { return r.Sequence == st.again[0] })
		if i >= 0 {
			return &f.Status.History[i]
		}
		st.again = st.again[1:] // it is no longer stored
	}
	for i := range f.Status.History {
		r := &f.Status.History[i]
		switch {
		case r.Sequence <= d.ProcessedSequence:
		case !sink.wantsAction(r.Action):
			d.ProcessedSequence = r.Sequence
		case now.Sub(r.At.Time) > o.cfg.MaxAge:
			o.recordRejected(d, r.Sequence, changeevent.ClassExpired, now)
		default:
			return r
		}
	}
	return nil
}

// inFlightGraceLeft returns how much longer a response counts as prompt. It is 0 without a
// record in flight.
func (o *Outbox) inFlightGraceLeft(l deliveryLine, now time.Time) (left time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if st := o.lines[l]; st != nil && st.inFlight != 0 {
		return max(0, prompt-now.Sub(st.sent))
	}
	return 0
}

// hasRejectedToResend reports whether rejected records must still be sent again.
func (o *Outbox) hasRejectedToResend(l deliveryLine) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.lines[l]
	return st != nil && len(st.again) > 0
}

// A delivery is a record that is sent to a sink once the results before it are written.
type delivery struct {
	line   deliveryLine
	client changeevent.Client
	record v1alpha1.Record
}

// markWrittenAndInFlightUnlessStopping records that the results of a node are written. It marks the chosen deliveries as in
// flight and returns them, or none while the outbox stops.
func (o *Outbox) markWrittenAndInFlightUnlessStopping(node string, chosen []delivery, now time.Time) []delivery {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.sinks {
		if st := o.lines[deliveryLine{node, s.Name}]; st != nil {
			st.unwritten = false
		}
	}
	if o.ending {
		return nil // the next process sends them
	}
	for _, d := range chosen {
		st := o.lines[d.line]
		st.inFlight, st.sent = d.record.Sequence, now
	}
	return chosen
}

// sendRecord passes a record to the client, which calls back once.
func (o *Outbox) sendRecord(ctx context.Context, chosen delivery) {
	e := NewChangeEvent(chosen.line.node, chosen.record)
	e.OnDelivery = func(d changeevent.Delivery) {
		o.mu.Lock()
		st := o.lines[chosen.line]
		wanted := st != nil && st.inFlight == chosen.record.Sequence && d.ID == chosen.record.ID
		if wanted {
			st.answered = &d
		}
		ending := o.ending
		o.mu.Unlock()
		switch {
		case !wanted:
		case ending:
			o.wakeStopAndAwaitInFlight()
		default:
			o.wake(chosen.line.node)
		}
	}
	chosen.client.SendChangeEvent(ctx, e) // may call back before it returns
}

// applyDeliveryResult applies the result of the record in flight.
func (o *Outbox) applyDeliveryResult(st *deliveryState, d *v1alpha1.DeliveryStatus, now time.Time) {
	a, seq := *st.answered, st.inFlight
	st.answered, st.inFlight = nil, 0
	refused := concernsOnlyThisEvent(a.Class) || a.Class == changeevent.ClassExpired
	if a.Class != "" && !refused { // the next record would fail, too, and this one may still be accepted
		d.LastError, d.LastFailedAt = string(a.Class), &metav1.Time{Time: now}
		st.next = now.Add(backoff.Policy{Initial: o.cfg.Retry, Max: o.cfg.MaxRetry, Jitter: -1}.Delay(st.failures))
		st.failures++
		return
	}
	st.failures, st.next = 0, time.Time{}
	// A record that is sent again precedes the last settled one, even if another resend
	// was requested meanwhile.
	repeated := seq <= d.ProcessedSequence
	st.again = slices.DeleteFunc(st.again, func(s int64) bool { return s == seq })
	switch {
	case refused && repeated:
		d.LastError, d.LastFailedAt = string(a.Class), &metav1.Time{Time: now}
	case refused:
		o.recordRejected(d, seq, a.Class, now)
	default:
		d.ProcessedSequence, d.LastDeliveredAt, d.LastError, d.LastFailedAt = max(d.ProcessedSequence, seq), &metav1.Time{Time: now}, "", nil
		d.Rejected = slices.DeleteFunc(d.Rejected, func(r int64) bool { return r == seq })
	}
}

// concernsOnlyThisEvent reports whether an error concerns only the event. All other errors concern
// the sink or the connection, such as a wrong token or address. They are corrected
// eventually, and the waiting records are delivered then.
func concernsOnlyThisEvent(c changeevent.Class) bool {
	return c == changeevent.ClassClientError || c == changeevent.ClassEncode
}

func (o *Outbox) recordRejected(d *v1alpha1.DeliveryStatus, seq int64, class changeevent.Class, now time.Time) {
	d.ProcessedSequence, d.LastError, d.LastFailedAt = seq, string(class), &metav1.Time{Time: now}
	d.Rejected = append(d.Rejected, seq)
	if n := len(d.Rejected); n > maxRefused {
		d.Rejected = d.Rejected[n-maxRefused:]
	}
	o.metrics.refused.WithLabelValues(string(class)).Inc()
}

// forgetNode removes the state of a deleted NodeFault.
func (o *Outbox) forgetNode(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.sinks {
		delete(o.lines, deliveryLine{name, s.Name})
	}
	o.metrics.setUndelivered(name, 0)
}
