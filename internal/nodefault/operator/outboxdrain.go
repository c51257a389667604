package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// errDrainTimeout is the cause of a timeout of StopAndAwaitInFlight.
var errDrainTimeout = errors.New("timeout waiting for sinks")

// StopAndAwaitInFlight stops the outbox. It sends no more events, waits for the responses to those in
// flight, and records them, so that the next process does not repeat them. It waits at
// most OutboxConfig.Drain. The next process sends the remaining events again, with the same
// ids.
func (o *Outbox) StopAndAwaitInFlight(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), o.cfg.Drain, errDrainTimeout)
	defer cancel()
	for left := o.stopSendingAndCountInFlight(); left > 0; left = o.stopSendingAndCountInFlight() {
		select {
		case <-o.settled:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d change events: %w", left, context.Cause(ctx)), o.writeUnwrittenResults(ctx))
		}
	}
	return o.writeUnwrittenResults(ctx)
}

// stopSendingAndCountInFlight stops sending, and returns how many events are in flight.
func (o *Outbox) stopSendingAndCountInFlight() (inFlight int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	for _, st := range o.lines {
		if st.inFlight != 0 && st.answered == nil {
			inFlight++
		}
	}
	return inFlight
}

// wakeStopAndAwaitInFlight makes StopAndAwaitInFlight count again.
func (o *Outbox) wakeStopAndAwaitInFlight() {
	select {
	case o.settled <- struct{}{}:
	default:
	}
}

// writeUnwrittenResults writes the results that are not written yet.
func (o *Outbox) writeUnwrittenResults(ctx context.Context) error {
	type progress struct {
		fault *v1alpha1.NodeFault
		DeliveryProgress
	}
	nodes := map[string]*progress{}
	now := o.now()
	o.mu.Lock()
	for l, st := range o.lines {
		if st.latest == nil || st.answered == nil && !st.unwritten {
			continue
		}
		d := *st.latest.DeepCopy()
		if st.answered != nil {
			o.applyDeliveryResult(st, &d, now)
		}
		st.latest = &d
		p := nodes[l.node]
		if p == nil {
			f := &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: l.node, UID: st.uid}}
			p = &progress{f, DeliveryProgress{Sinks: map[string]*v1alpha1.DeliveryStatus{}, Untold: -1}}
			nodes[l.node] = p
		}
		p.Sinks[l.sink] = &d
	}
	o.mu.Unlock()
	const most = 10 * time.Second
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), most, errDrainTimeout)
	defer cancel()
	var errs []error
	for node, p := range nodes {
		if err := o.faults.WriteProgress(ctx, p.fault, p.DeliveryProgress); err != nil {
			errs = append(errs, fmt.Errorf("write delivery state of NodeFault %q: %w", node, err))
		}
	}
	return errors.Join(errs...)
}
