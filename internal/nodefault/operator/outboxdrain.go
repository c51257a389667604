package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// errDrainTimeout is the cause of a timeout of StopAwaitAndWriteResults.
var errDrainTimeout = errors.New("timeout waiting for sinks")

// StopAwaitAndWriteResults stops the outbox. It sends no more events, waits for the responses to those in
// flight, and records them, so that the next process does not repeat them. It waits at
// most OutboxConfig.Drain. The next process sends the remaining events again, with the same
// ids.
func (o *Outbox) StopAwaitAndWriteResults(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), o.cfg.Drain, errDrainTimeout)
	defer cancel()
	for {
		inFlight := o.stopSendingAndCountInFlight()
		if inFlight == 0 {
			return o.writeUnwrittenResults(ctx)
		}
		select {
		case <-o.responded:
		case <-ctx.Done():
			err := fmt.Errorf("%d change events: %w", inFlight, context.Cause(ctx))
			return errors.Join(err, o.writeUnwrittenResults(ctx))
		}
	}
}

// stopSendingAndCountInFlight stops sending, and returns how many events are in flight.
func (o *Outbox) stopSendingAndCountInFlight() (inFlight int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopping = true
	for _, state := range o.deliveries {
		if state.inFlight != 0 && state.result == nil {
			inFlight++
		}
	}
	return inFlight
}

// wakeStopAndAwaitInFlight makes StopAwaitAndWriteResults count again.
func (o *Outbox) wakeStopAndAwaitInFlight() {
	select {
	case o.responded <- struct{}{}:
	default: // it will count again anyway
	}
}

// An unwrittenProgress is the progress of one NodeFault that is not written yet.
type unwrittenProgress struct {
	fault    *v1alpha1.NodeFault
	progress DeliveryProgress
}

// writeUnwrittenResults writes the results that are not written yet.
func (o *Outbox) writeUnwrittenResults(ctx context.Context) error {
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), timeout, errDrainTimeout)
	defer cancel()
	var errs []error
	for node, unwritten := range o.applyUnwrittenResults(o.now()) {
		if err := o.faults.WriteProgress(ctx, unwritten.fault, unwritten.progress); err != nil {
			errs = append(errs, fmt.Errorf("write delivery state of NodeFault %q: %w", node, err))
		}
	}
	return errors.Join(errs...)
}

// applyUnwrittenResults applies the results that are left, and returns what must be written, by node.
func (o *Outbox) applyUnwrittenResults(now time.Time) map[string]*unwrittenProgress {
	o.mu.Lock()
	defer o.mu.Unlock()
	byNode := map[string]*unwrittenProgress{}
	for key, state := range o.deliveries {
		hasUnwritten := state.result != nil || state.unwritten
		if state.latest == nil || !hasUnwritten {
			continue
		}
		latest := *state.latest.DeepCopy()
		if state.result != nil {
			o.applyDeliveryResult(state, &latest, now)
		}
		state.latest = &latest

		unwritten := byNode[key.node]
		if unwritten == nil {
			unwritten = &unwrittenProgress{
				fault: &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: key.node, UID: state.uid}},
				// The records are not at hand here, so the undelivered ones cannot be counted.
				progress: DeliveryProgress{Sinks: map[string]*v1alpha1.DeliveryStatus{}, Undelivered: undeliveredUnknown},
			}
			byNode[key.node] = unwritten
		}
		unwritten.progress.Sinks[key.sink] = &latest
	}
	return byNode
}
