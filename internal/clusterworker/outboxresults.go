package clusterworker

import (
	"context"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

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

// A receivedDelivery is the delivery of a change, as its client reported it.
type receivedDelivery struct {
	seq      int64
	delivery changeevent.Delivery
}

// saveReceivedDeliveryResults saves delivery results in the store. After an error it keeps those that are
// final for the next call, so that no change is sent twice. The failure of a delivery is
// dropped, because another process may send the change by then: it is sent again after its
// lease.
func (o *Outbox) saveReceivedDeliveryResults(ctx context.Context) {
	o.mu.Lock()
	deliveries := o.deliveries
	o.deliveries = nil
	o.mu.Unlock()

	var failed []DeliveryResult
	for _, received := range deliveries {
		result := classifyDelivery(o.inFlight[received.seq], received.delivery)
		o.countUndeliverable(result)
		if result.State == v1.DeliveryPending {
			failed = append(failed, result)
		} else {
			o.unsaved = append(o.unsaved, result)
		}
	}
	if len(failed) > 0 {
		o.rescheduleChanges(ctx, failed)
		o.removeFromInFlight(failed)
	}
	if len(o.unsaved) > 0 && o.finishChanges(ctx, o.unsaved) == nil {
		o.removeFromInFlight(o.unsaved)
		o.unsaved = nil
	}
	o.sending.Set(float64(len(o.inFlight)))
}

// classifyDelivery returns what a delivery means for a change. An event that can never succeed
// is not sent again, because it would block those behind it forever. All other errors
// are due to the sink or the network.
func classifyDelivery(pending PendingEvent, delivery changeevent.Delivery) DeliveryResult {
	result := DeliveryResult{Seq: pending.Seq, Attempts: delivery.Attempts, Class: delivery.Class, Status: delivery.Status}
	switch {
	case delivery.Class == "" && delivery.Attempts == 0:
		result.State = v1.DeliverySkipped // the sink does not want the action
	case delivery.Class == "":
		result.State, result.Status = v1.DeliveryDelivered, 0
	case delivery.Class == changeevent.ClassExpired:
		result.State, result.Class = v1.DeliveryExpired, "" // the stored error says why it was not delivered before
	case delivery.Class == changeevent.ClassClientError || delivery.Class == changeevent.ClassEncode:
		result.State = v1.DeliveryRejected
	case time.Since(pending.QueuedAt) > OutboxMaxAge:
		result.State = v1.DeliveryExpired
	default:
		result.State = v1.DeliveryPending
		result.Delay = backoff.Policy{Initial: outboxPollEvery, Max: 5 * time.Minute, Jitter: -1}.Delay(pending.Failures)
	}
	return result
}

// countUndeliverable counts a change that will not be sent again.
func (o *Outbox) countUndeliverable(result DeliveryResult) {
	if result.State == v1.DeliveryRejected {
		o.undeliverable.WithLabelValues(string(result.Class)).Inc()
	}
	if result.State == v1.DeliveryExpired {
		o.undeliverable.WithLabelValues(string(changeevent.ClassExpired)).Inc()
	}
}

func (o *Outbox) rescheduleChanges(ctx context.Context, failed []DeliveryResult) {
	callCtx, cancel := context.WithTimeout(ctx, outboxCallTimeout)
	defer cancel()
	if err := o.deps.Store.RecordFailuresAndRescheduleChanges(callCtx, failed); err != nil {
		o.logStoreFailure(ctx, "reschedule change events", err)
	}
}

func (o *Outbox) finishChanges(ctx context.Context, results []DeliveryResult) error {
	callCtx, cancel := context.WithTimeout(ctx, outboxCallTimeout)
	defer cancel()
	err := o.deps.Store.DeleteChangesAndRecordDeliveries(callCtx, results)
	if err != nil {
		o.logStoreFailure(ctx, "finish change events", err)
	}
	return err
}

func (o *Outbox) removeFromInFlight(results []DeliveryResult) {
	for _, result := range results {
		delete(o.inFlight, result.Seq)
	}
}
