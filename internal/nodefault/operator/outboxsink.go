package operator

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// Errors of a sink that no response reports.
const (
	errorInvalidSink = "invalid_sink" // the settings of the sink are invalid
	errorQueueFull   = "queue_full"   // records were dropped because too many were waiting
)

// maxRejected is how many rejected records are stored per sink.
const maxRejected = 16

// A sinkAdvance is the result of advancing a sink.
type sinkAdvance struct {
	status      v1alpha1.DeliveryStatus
	toSend      *v1alpha1.Record // record to send next; nil if none
	wait        time.Duration    // delay until the next attempt; 0 while a response is pending
	undelivered int32            // records that are left
	resending   bool             // rejected records must still be sent again
	graceLeft   time.Duration    // how much longer a response counts as prompt; 0 without a record in flight
}

// advanceSink advances a sink: it applies the last result and chooses the next record to send.
func (o *Outbox) advanceSink(f *v1alpha1.NodeFault, sink EventSink, now time.Time) sinkAdvance {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.stateOf(deliveryKey{node: f.Name, sink: sink.Name}, f.UID)
	status := o.latestDeliveryStatus(f, sink, state, now)

	// Apply the last result, and begin a requested resend.
	if state.result != nil {
		o.applyDeliveryResult(state, &status, now)
		state.unwritten = true
	}
	request := f.Annotations[v1alpha1.AnnotationResend]
	if request != "" && request != f.Status.LastResendRequest && request != state.resendRequest {
		state.resendRequest, state.toResend = request, slices.Clone(status.Rejected)
	}

	// Choose the next record, unless one is in flight or must wait for its retry.
	var advanced sinkAdvance
	if state.inFlight == 0 && !o.stopping {
		advanced.wait = max(state.retryAt.Sub(now), 0)
		if advanced.wait == 0 {
			o.skipAndCountTrimmedRecords(f, state, &status, now)
			next := o.skipUnwantedAndPickNext(f, sink, state, &status, now)
			if sink.Client == nil {
				advanced.wait = o.setOrClearInvalidSinkError(&status, next, now)
			} else {
				advanced.toSend = next
			}
		}
	}

	latest := status
	state.latest = &latest
	advanced.status = status
	advanced.undelivered = countUndelivered(f, sink, state, &status)
	if advanced.undelivered == 0 {
		advanced.wait = 0
	}
	advanced.resending = len(state.toResend) > 0
	if state.inFlight != 0 {
		advanced.graceLeft = max(0, promptResponse-now.Sub(state.sentAt))
	}
	return advanced
}

// stateOf returns the state of a delivery. A NodeFault with another UID starts without state.
func (o *Outbox) stateOf(key deliveryKey, fault types.UID) *deliveryState {
	state := o.deliveries[key]
	if state == nil || state.uid != fault {
		state = &deliveryState{uid: fault}
		o.deliveries[key] = state
	}
	return state
}

// latestDeliveryStatus returns the status of a sink: the last written one if the cache may be
// older, or else the stored one.
func (o *Outbox) latestDeliveryStatus(
	f *v1alpha1.NodeFault, sink EventSink, state *deliveryState, now time.Time,
) v1alpha1.DeliveryStatus {
	status, known := f.Status.SinkDeliveries[sink.Name]
	if !known {
		status = o.initialDeliveryStatus(&f.Status, sink, now)
	} else if !hasEnabledAt(status) { // created by an earlier release
		status.EnabledAt = &metav1.Time{Time: now}
	}
	if state.latest != nil && state.latest.ProcessedSequence >= status.ProcessedSequence {
		status = *state.latest
	}
	status.Rejected = slices.Clone(status.Rejected)
	return status
}

// countUndelivered returns how many records a sink must still receive, including resends.
func countUndelivered(
	f *v1alpha1.NodeFault, sink EventSink, state *deliveryState, status *v1alpha1.DeliveryStatus,
) int32 {
	undelivered := int32(len(state.toResend)) //nolint:gosec // at most maxRejected
	for i := range f.Status.History {
		record := &f.Status.History[i]
		if record.Sequence > status.ProcessedSequence && sink.wantsAction(record.Action) {
			undelivered++
		}
	}
	return undelivered
}

// setOrClearInvalidSinkError updates the status of a sink with invalid settings, whose records
// wait. next is the first of them, or nil. It returns the delay until that record expires.
func (o *Outbox) setOrClearInvalidSinkError(
	status *v1alpha1.DeliveryStatus, next *v1alpha1.Record, now time.Time,
) (untilExpiry time.Duration) {
	if next == nil {
		if status.LastError == errorInvalidSink {
			status.LastError, status.LastFailedAt = "", nil
		}
		return 0
	}
	if status.LastError != errorInvalidSink {
		status.LastError, status.LastFailedAt = errorInvalidSink, &metav1.Time{Time: now}
	}
	return max(next.At.Add(o.cfg.MaxAge).Sub(now), 0) + time.Second // then the record has expired
}

// skipAndCountTrimmedRecords skips records that are no longer stored, and counts them.
func (o *Outbox) skipAndCountTrimmedRecords(
	f *v1alpha1.NodeFault, state *deliveryState, status *v1alpha1.DeliveryStatus, now time.Time,
) {
	lastTrimmed := f.Status.LastSequence
	if len(f.Status.History) > 0 {
		lastTrimmed = f.Status.History[0].Sequence - 1
	}
	trimmed := lastTrimmed - status.ProcessedSequence
	if trimmed <= 0 {
		return
	}
	status.ProcessedSequence = lastTrimmed
	status.Dropped += trimmed
	status.LastError, status.LastFailedAt = errorQueueFull, &metav1.Time{Time: now}
	o.metrics.undeliverable.WithLabelValues(errorQueueFull).Add(float64(trimmed))
	state.failures, state.retryAt = 0, time.Time{}
}

// skipUnwantedAndPickNext returns the next record to send. It skips unwanted and expired records.
func (o *Outbox) skipUnwantedAndPickNext(
	f *v1alpha1.NodeFault, sink EventSink, state *deliveryState, status *v1alpha1.DeliveryStatus, now time.Time,
) *v1alpha1.Record {
	// Requested resends come first.
	for len(state.toResend) > 0 {
		if record := findRecord(&f.Status, state.toResend[0]); record != nil {
			return record
		}
		state.toResend = state.toResend[1:] // it is no longer stored
	}
	for i := range f.Status.History {
		record := &f.Status.History[i]
		if record.Sequence <= status.ProcessedSequence {
			continue
		}
		switch {
		case !sink.wantsAction(record.Action):
			status.ProcessedSequence = record.Sequence
		case now.Sub(record.At.Time) > o.cfg.MaxAge:
			o.recordRejectedAndAdvance(status, record.Sequence, changeevent.ClassExpired, now)
		default:
			return record
		}
	}
	return nil
}

// findRecord returns the record with a sequence number, or nil if it is no longer stored.
func findRecord(status *v1alpha1.NodeFaultStatus, sequence int64) *v1alpha1.Record {
	for i := range status.History {
		if status.History[i].Sequence == sequence {
			return &status.History[i]
		}
	}
	return nil
}

// applyDeliveryResult applies the result of the record in flight.
func (o *Outbox) applyDeliveryResult(state *deliveryState, status *v1alpha1.DeliveryStatus, now time.Time) {
	class, sequence := state.result.Class, state.inFlight
	state.result, state.inFlight = nil, 0
	rejected := concernsOnlyThisEvent(class) || class == changeevent.ClassExpired
	if class != "" && !rejected { // the next record would fail, too, and this one may still be accepted
		status.LastError, status.LastFailedAt = string(class), &metav1.Time{Time: now}
		retry := backoff.Policy{Initial: o.cfg.Retry, Max: o.cfg.MaxRetry, Jitter: -1}
		state.retryAt = now.Add(retry.Delay(state.failures))
		state.failures++
		return
	}

	state.failures, state.retryAt = 0, time.Time{}
	state.toResend = withoutSequence(state.toResend, sequence)
	// A record that is sent again precedes the last settled one, even if another resend
	// was requested meanwhile.
	resent := sequence <= status.ProcessedSequence
	switch {
	case rejected && resent:
		status.LastError, status.LastFailedAt = string(class), &metav1.Time{Time: now}
	case rejected:
		o.recordRejectedAndAdvance(status, sequence, class, now)
	default:
		status.ProcessedSequence = max(status.ProcessedSequence, sequence)
		status.LastDeliveredAt = &metav1.Time{Time: now}
		status.LastError, status.LastFailedAt = "", nil
		status.Rejected = withoutSequence(status.Rejected, sequence)
	}
}

// withoutSequence removes a sequence number from a list, in place.
func withoutSequence(sequences []int64, removed int64) []int64 {
	return slices.DeleteFunc(sequences, func(s int64) bool { return s == removed })
}

// concernsOnlyThisEvent reports whether an error concerns only the event. All other errors concern
// the sink or the connection, such as a wrong token or address. They are corrected
// eventually, and the waiting records are delivered then.
func concernsOnlyThisEvent(c changeevent.Class) bool {
	return c == changeevent.ClassClientError || c == changeevent.ClassEncode
}

// recordRejectedAndAdvance settles a record as rejected.
func (o *Outbox) recordRejectedAndAdvance(
	status *v1alpha1.DeliveryStatus, sequence int64, class changeevent.Class, now time.Time,
) {
	status.ProcessedSequence = sequence
	status.LastError, status.LastFailedAt = string(class), &metav1.Time{Time: now}
	status.Rejected = append(status.Rejected, sequence)
	if excess := len(status.Rejected) - maxRejected; excess > 0 {
		status.Rejected = status.Rejected[excess:]
	}
	o.metrics.undeliverable.WithLabelValues(string(class)).Inc()
}
