package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// Deliver sends to each idle sink the oldest event of an execution that it has not acknowledged. It
// returns when to call again; zero means that OutboxDeps.Wake triggers it.
func (o *Outbox) Deliver(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (callAgainIn time.Duration) {
	if !o.Enabled() {
		return 0
	}
	return o.sendNextEvents(ctx, nameOf(ke), ke.UID, now)
}

// DeliverEventsOfDeleted continues the delivery for deleted executions of a name, all except the one with
// UID exceptUID. It returns when to call again.
func (o *Outbox) DeliverEventsOfDeleted(
	ctx context.Context,
	name types.NamespacedName,
	exceptUID types.UID,
	now time.Time,
) (callAgainIn time.Duration) {
	if !o.Enabled() {
		return 0
	}
	for _, uid := range o.markDeletedAndListPending(name, exceptUID) {
		callAgainIn = shorterNonZero(callAgainIn, o.sendNextEvents(ctx, name, uid, now))
	}
	return callAgainIn
}

// markDeletedAndListPending marks the executions of a name as deleted, except one, and returns those with
// pending events. It removes the queues of the others, and those that would be too many.
func (o *Outbox) markDeletedAndListPending(name types.NamespacedName, exceptUID types.UID) (pending []types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for uid, queue := range o.queues[name] {
		if uid == exceptUID {
			continue
		}
		if !queue.deleted {
			queue.deleted = true
			o.deleted++
		}
		switch {
		case queue.countPending() == 0:
			o.removeQueue(name, uid)
		case o.deleted > maxDeletedPending:
			o.countAllDropped(queue, errorOverflow)
			o.removeQueue(name, uid)
		default:
			pending = append(pending, uid)
		}
	}
	return pending
}

// countAllDropped counts the undelivered events of a queue as dropped.
func (o *Outbox) countAllDropped(queue *eventQueue, reason string) {
	for _, event := range queue.events {
		o.metrics.countDropped(reason, len(event.waiting))
	}
}

// delivery is an event for a client.
type delivery struct {
	client changeevent.Client
	event  changeevent.ChangeEvent
}

// sendNextEvents sends to each idle sink the oldest event of an execution that it has not acknowledged. It
// returns when to call again.
func (o *Outbox) sendNextEvents(
	ctx context.Context, name types.NamespacedName, uid types.UID, now time.Time,
) (callAgainIn time.Duration) {
	deliveries, callAgainIn := o.takeNextDeliveries(name, uid, now)
	for _, next := range deliveries { // outside the lock: the client may answer before it returns
		next.client.SendChangeEvent(ctx, next.event)
	}
	return callAgainIn
}

// takeNextDeliveries returns the next event of an execution for each idle sink, and when to ask again.
func (o *Outbox) takeNextDeliveries(
	name types.NamespacedName, uid types.UID, now time.Time,
) (deliveries []delivery, callAgainIn time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue := o.queues[name][uid]
	if queue == nil {
		return nil, 0
	}
	for _, sink := range o.sinks {
		event, wait := o.takeNextEvent(queue, sink, now)
		callAgainIn = shorterNonZero(callAgainIn, wait)
		if event == nil {
			continue
		}
		sent := o.event(event.change)
		sent.OnDelivery = func(answer changeevent.Delivery) { o.recordSinkAnswer(name, uid, sink.Name, event, answer) }
		deliveries = append(deliveries, delivery{client: sink.Client, event: sent})
	}
	return deliveries, callAgainIn
}

// takeNextEvent returns the next event for a sink and marks it as in flight. If the sink is not ready for
// one, it returns nil and when to ask again; zero means after the answer of the sink. It drops expired
// events.
func (o *Outbox) takeNextEvent(queue *eventQueue, sink Sink, now time.Time) (next *outboxEvent, askAgainIn time.Duration) {
	progress := queue.sinks[sink.Name]
	if progress == nil {
		progress = &sinkProgress{}
		queue.sinks[sink.Name] = progress
	}
	for _, event := range queue.events {
		if !slices.Contains(event.waiting, sink.Name) {
			continue
		}
		expires := event.change.At.Add(o.cfg.MaxAge)
		switch {
		case progress.inFlight != nil || o.draining:
			return nil, 0
		case !now.Before(expires):
			o.metrics.countDropped(string(changeevent.ClassExpired), 1)
			queue.acknowledge(event, sink.Name, now)
			progress.resetFailures()
			continue
		case sink.Client == nil: // the event waits for valid settings until it expires
			return nil, expires.Sub(now)
		case now.Before(progress.next):
			return nil, min(progress.next.Sub(now), expires.Sub(now))
		}
		progress.inFlight = event
		return event, 0
	}
	return nil, 0
}

// recordSinkAnswer records the answer of a sink, and wakes the execution or the drain that waits for it.
func (o *Outbox) recordSinkAnswer(
	name types.NamespacedName, uid types.UID, sink string, event *outboxEvent, answer changeevent.Delivery,
) {
	o.mu.Lock()
	queue := o.queues[name][uid]
	if queue == nil || queue.sinks[sink] == nil || queue.sinks[sink].inFlight != event {
		o.mu.Unlock()
		return // the event was dropped meanwhile
	}
	o.applySinkAnswer(queue, sink, answer.Class)
	draining := o.draining
	o.mu.Unlock()

	if !draining {
		o.wake(name)
		return
	}
	select {
	case o.answered <- struct{}{}:
	default: // an earlier token already makes Drain count again
	}
}

// applySinkAnswer acknowledges the event that is in flight to a sink, or schedules its next attempt. An
// empty class means that the sink accepted the event.
func (o *Outbox) applySinkAnswer(queue *eventQueue, sink string, answerClass changeevent.Class) {
	now := o.now()
	progress := queue.sinks[sink]
	event := progress.inFlight
	progress.inFlight = nil
	if answerClass != "" && !isPermanentRejection(answerClass) {
		// The next event waits too: the order is kept, and it would fail as well.
		retry := backoff.Policy{Initial: o.cfg.Retry, Max: o.cfg.MaxRetry, Jitter: -1}
		progress.next = now.Add(retry.Delay(progress.failures))
		progress.failures++
		return
	}
	if answerClass != "" {
		o.metrics.countDropped(string(answerClass), 1)
	}
	queue.acknowledge(event, sink, now)
	progress.resetFailures()
}

// isPermanentRejection reports whether a sink rejects this event permanently, although it may accept others.
func isPermanentRejection(c changeevent.Class) bool {
	return c == changeevent.ClassClientError || c == changeevent.ClassEncode || c == changeevent.ClassExpired
}

// Drain stops sending and waits for outstanding answers, at most OutboxConfig.Drain. It returns the
// executions with acknowledgements that are not written.
func (o *Outbox) Drain(ctx context.Context) (unwritten []types.NamespacedName, err error) {
	if !o.Enabled() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), o.cfg.Drain, errDrained)
	defer cancel()
	o.stopSending()
	err = o.awaitAnswers(ctx)

	o.mu.Lock()
	defer o.mu.Unlock()
	for name, queues := range o.queues {
		for _, queue := range queues {
			switch {
			case queue.deleted: // no other replica sends them
				o.countAllDropped(queue, errorDeleted)
			case !queue.acked.IsZero():
				unwritten = append(unwritten, name)
			}
		}
	}
	return unwritten, err
}

// stopSending prevents further sends.
func (o *Outbox) stopSending() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.draining = true
}

// awaitAnswers waits until no event is in flight.
func (o *Outbox) awaitAnswers(ctx context.Context) error {
	for {
		inFlight := o.countInFlight()
		if inFlight == 0 {
			return nil
		}
		select {
		case <-o.answered:
		case <-ctx.Done():
			return fmt.Errorf("%d change events: %w", inFlight, context.Cause(ctx))
		}
	}
}

// countInFlight counts the events whose sink has not answered.
func (o *Outbox) countInFlight() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	count := 0
	for _, queues := range o.queues {
		for _, queue := range queues {
			for _, progress := range queue.sinks {
				if progress.inFlight != nil {
					count++
				}
			}
		}
	}
	return count
}
