package operator

import (
	"context"
	"time"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
)

// A delivery is a record that is sent to a sink once the results before it are written.
type delivery struct {
	key    deliveryKey
	client changeevent.Client
	record v1alpha1.Record
}

// markWrittenAndInFlightUnlessStopping records that the results of a node are written. It marks
// the chosen deliveries as in flight and returns them, or none while the outbox stops.
func (o *Outbox) markWrittenAndInFlightUnlessStopping(
	node string, chosen []delivery, now time.Time,
) []delivery {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, sink := range o.sinks {
		if state := o.deliveries[deliveryKey{node: node, sink: sink.Name}]; state != nil {
			state.unwritten = false
		}
	}
	if o.stopping {
		return nil // the next process sends them
	}
	for _, d := range chosen {
		state := o.deliveries[d.key]
		state.inFlight, state.sentAt = d.record.Sequence, now
	}
	return chosen
}

// sendRecord passes a record to the client, which reports the result once, perhaps before
// sendRecord returns.
func (o *Outbox) sendRecord(ctx context.Context, d delivery) {
	e := NewChangeEvent(d.key.node, d.record)
	e.OnDelivery = func(result changeevent.Delivery) { o.receiveResult(d, result) }
	d.client.SendChangeEvent(ctx, e)
}

// receiveResult stores the result of a delivery and triggers the reconcile that applies it.
func (o *Outbox) receiveResult(d delivery, result changeevent.Delivery) {
	o.mu.Lock()
	state := o.deliveries[d.key]
	expected := state != nil && state.inFlight == d.record.Sequence && result.ID == d.record.ID
	if expected {
		state.result = &result
	}
	stopping := o.stopping
	o.mu.Unlock()

	switch {
	case !expected: // the NodeFault was deleted meanwhile
	case stopping:
		o.wakeStopAndAwaitInFlight()
	default:
		o.requeue(d.key.node)
	}
}
