package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// Sink is a receiver of change events.
type Sink struct {
	// Name identifies the sink in status.pendingChangeEvents.
	Name string
	// Client sends an event once and reports the result. Nil means that the settings of the sink
	// are invalid: its events wait.
	Client changeevent.Client
	// Wants reports whether the sink receives an action. Nil means all.
	Wants func(action string) bool
}

// OutboxConfig limits an outbox. The zero value is usable.
type OutboxConfig struct {
	// MaxAge is how long the delivery of an event is retried. Zero means 12 h.
	MaxAge time.Duration
	// Retry and MaxRetry are the first and the longest pause after a failure. Zero
	// means 1 s and 5 min.
	Retry, MaxRetry time.Duration
	// Drain is how long Drain waits for answers. Zero means 10 s.
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

const (
	// maxDeletedPending limits the deleted executions whose events are kept in memory.
	maxDeletedPending = 10000
	// writeAfter is how long an acknowledgement waits for a write that removes the event.
	writeAfter = 10 * time.Second
	// holdAfter is how old an event is when its execution gets a finalizer.
	holdAfter = 2 * time.Second
)

var errDrained = errors.New("sinks did not answer in time")

// Outbox delivers the change events of executions to sinks, at least once and in order for each
// execution and sink. A nil Outbox has no sinks.
//
// An undelivered event is stored in status.pendingChangeEvents by the same write as the transition
// that it reports, with the sinks that have to acknowledge it. An acknowledgement is kept in memory
// and removes the event with the next write. After a crash, the controller therefore sends events
// whose acknowledgement was not written again, with the same id.
//
// An event is dropped, and counted, if a sink rejects it, if it is older than OutboxConfig.MaxAge, or
// if an execution has too many. Events of a sink that is no longer configured are removed.
type Outbox struct {
	cfg     OutboxConfig
	sinks   []Sink
	event   func(execution.Change) changeevent.ChangeEvent
	wake    func(types.NamespacedName)
	now     func() time.Time
	metrics *outboxMetrics

	mu       sync.Mutex
	queues   map[types.NamespacedName]map[types.UID]*eventQueue
	deleted  int           // number of queues of deleted executions
	draining bool          // no further events are sent
	answered chan struct{} // receives a token for each answer while draining
}

// OutboxDeps are the dependencies of an outbox.
type OutboxDeps struct {
	Sinks []Sink
	// Event converts a change to the event that is sent.
	Event func(execution.Change) changeevent.ChangeEvent
	// Wake triggers a reconcile of an execution. It does not block.
	Wake       func(types.NamespacedName)
	Registerer prometheus.Registerer
	Now        func() time.Time // nil means time.Now
}

// NewOutbox creates an outbox.
func NewOutbox(cfg OutboxConfig, deps OutboxDeps) (*Outbox, error) {
	o := &Outbox{
		cfg: cfg.withDefaults(), sinks: deps.Sinks, event: deps.Event, wake: deps.Wake, now: deps.Now,
		queues: map[types.NamespacedName]map[types.UID]*eventQueue{}, answered: make(chan struct{}, 1),
	}
	if o.now == nil {
		o.now = time.Now
	}
	var err error
	if o.metrics, err = newOutboxMetrics(deps.Registerer, o.countPendingEvents); err != nil {
		return nil, fmt.Errorf("create outbox: %w", err)
	}
	return o, nil
}

// Enabled reports whether the outbox has a sink.
func (o *Outbox) Enabled() bool { return o != nil && len(o.sinks) > 0 }

// AppendToStatus adds an event to a status, for the sinks that want it. The caller writes the
// status.
func (o *Outbox) AppendToStatus(s *v1alpha1.KubernetesExecutionStatus, p v1alpha1.PendingChangeEvent) {
	if !o.Enabled() {
		return
	}
	p.Sinks = nil
	for _, sink := range o.sinks {
		if sink.Wants == nil || sink.Wants(p.Action) {
			p.Sinks = append(p.Sinks, sink.Name)
		}
	}
	if len(p.Sinks) == 0 {
		return
	}
	s.PendingChangeEvents = append(slices.Clone(s.PendingChangeEvents), p)
	if n := len(s.PendingChangeEvents) - v1alpha1.MaxPendingChangeEvents; n > 0 {
		for i := range n {
			o.metrics.countDropped(errorOverflow, len(s.PendingChangeEvents[i].Sinks))
		}
		s.PendingChangeEvents = s.PendingChangeEvents[n:]
	}
}

// SyncQueueFromStatus updates the outbox with the stored events of an execution.
func (o *Outbox) SyncQueueFromStatus(ke *v1alpha1.KubernetesExecution) {
	if !o.Enabled() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	stored := ke.Status.PendingChangeEvents
	l := o.queues[nameOf(ke)][ke.UID]
	if l == nil {
		if len(stored) == 0 {
			return
		}
		l = o.addQueue(nameOf(ke), ke.UID)
	}
	kept := make([]*outboxEvent, 0, len(stored))
	for _, e := range l.events {
		is := slices.ContainsFunc(stored, func(p v1alpha1.PendingChangeEvent) bool { return outboxKeyOf(&p) == e.key })
		if is || len(e.waiting) > 0 {
			kept = append(kept, e)
		}
	}
	for i := range stored {
		p := &stored[i]
		if !slices.ContainsFunc(kept, func(e *outboxEvent) bool { return e.key == outboxKeyOf(p) }) {
			kept = append(kept, &outboxEvent{outboxKeyOf(p), changeOf(ke, p), slices.DeleteFunc(slices.Clone(p.Sinks), o.isUnknownSink)})
		}
	}
	l.events = kept
	if !slices.ContainsFunc(stored, func(p v1alpha1.PendingChangeEvent) bool { return l.isAcknowledgedByAnySink(&p) }) {
		l.acked = time.Time{}
	}
	if len(kept) == 0 {
		o.removeQueue(nameOf(ke), ke.UID)
	}
}

// isUnknownSink reports whether a sink is not configured.
func (o *Outbox) isUnknownSink(name string) bool {
	return !slices.ContainsFunc(o.sinks, func(s Sink) bool { return s.Name == name })
}

func (o *Outbox) addQueue(name types.NamespacedName, uid types.UID) *eventQueue {
	l := &eventQueue{sinks: map[string]*sinkProgress{}}
	if o.queues[name] == nil {
		o.queues[name] = map[types.UID]*eventQueue{}
	}
	o.queues[name][uid] = l
	return l
}

func (o *Outbox) removeQueue(name types.NamespacedName, uid types.UID) {
	if l := o.queues[name][uid]; l != nil && l.deleted {
		o.deleted--
	}
	if delete(o.queues[name], uid); len(o.queues[name]) == 0 {
		delete(o.queues, name)
	}
}

// RemoveAcknowledged removes acknowledged and dropped events from a status. It reports whether it changed the
// status, and how long a write of only that change may wait for another one.
func (o *Outbox) RemoveAcknowledged(ke *v1alpha1.KubernetesExecution, now time.Time) (changed bool, writeWithin time.Duration) {
	stored := ke.Status.PendingChangeEvents
	if o == nil || len(stored) == 0 {
		return false, 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.queues[nameOf(ke)][ke.UID]
	var left []v1alpha1.PendingChangeEvent
	for _, p := range stored {
		sinks := slices.DeleteFunc(slices.Clone(p.Sinks), func(name string) bool { return o.isUnknownSink(name) || l.isAcknowledgedBy(outboxKeyOf(&p), name) })
		changed = changed || len(sinks) != len(p.Sinks)
		if p.Sinks = sinks; len(sinks) > 0 {
			left = append(left, p)
		}
	}
	ke.Status.PendingChangeEvents = left
	if !changed || l == nil || l.acked.IsZero() {
		return changed, 0
	}
	return changed, max(0, l.acked.Add(writeAfter).Sub(now))
}

// Deliver sends to each idle sink the oldest event of an execution that it has not acknowledged. It
// returns when to call again; zero means that OutboxDeps.Wake triggers it.
func (o *Outbox) Deliver(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (callAgainIn time.Duration) {
	if !o.Enabled() {
		return 0
	}
	return o.sendNextEvents(ctx, nameOf(ke), ke.UID, now)
}

// NeedsFinalizer reports whether an execution needs a finalizer because its deletion would lose an event. It
// also returns when to ask again.
func (o *Outbox) NeedsFinalizer(ke *v1alpha1.KubernetesExecution, now time.Time) (needed bool, callAgainIn time.Duration) {
	for i := range ke.Status.PendingChangeEvents {
		p := &ke.Status.PendingChangeEvents[i]
		if wait := p.At.Add(holdAfter).Sub(now); wait > 0 {
			callAgainIn = shorterNonZero(callAgainIn, wait)
		} else if o.isUnacknowledged(ke, p) {
			needed = true
		}
	}
	return needed, callAgainIn
}

func (o *Outbox) isUnacknowledged(ke *v1alpha1.KubernetesExecution, p *v1alpha1.PendingChangeEvent) bool {
	if !o.Enabled() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.queues[nameOf(ke)][ke.UID]
	return slices.ContainsFunc(p.Sinks, func(sink string) bool { return !l.isAcknowledgedBy(outboxKeyOf(p), sink) })
}

// DeliverEventsOfDeleted continues the delivery for deleted executions of a name, all except the one with UID exceptUID.
// It returns when to call again.
func (o *Outbox) DeliverEventsOfDeleted(ctx context.Context, name types.NamespacedName, exceptUID types.UID, now time.Time) (callAgainIn time.Duration) {
	if !o.Enabled() {
		return 0
	}
	o.mu.Lock()
	var gone []types.UID
	for uid, l := range o.queues[name] {
		if uid == exceptUID {
			continue
		}
		if !l.deleted {
			l.deleted = true
			o.deleted++
		}
		switch {
		case !l.hasPending():
			o.removeQueue(name, uid)
		case o.deleted > maxDeletedPending:
			for _, e := range l.events {
				o.metrics.countDropped(errorOverflow, len(e.waiting))
			}
			o.removeQueue(name, uid)
		default:
			gone = append(gone, uid)
		}
	}
	o.mu.Unlock()
	for _, uid := range gone {
		callAgainIn = shorterNonZero(callAgainIn, o.sendNextEvents(ctx, name, uid, now))
	}
	return callAgainIn
}

// delivery is an event for a client.
type delivery struct {
	client changeevent.Client
	event  changeevent.ChangeEvent
}

func (o *Outbox) sendNextEvents(ctx context.Context, name types.NamespacedName, uid types.UID, now time.Time) (callAgainIn time.Duration) {
	o.mu.Lock()
	l := o.queues[name][uid]
	var send []delivery
	if l != nil {
		for _, sink := range o.sinks {
			d, wait := o.takeNextDelivery(name, uid, l, sink, now)
			callAgainIn = shorterNonZero(callAgainIn, wait)
			if d != nil {
				send = append(send, *d)
			}
		}
	}
	o.mu.Unlock()
	for _, d := range send { // outside the lock: the client may answer before it returns
		d.client.SendChangeEvent(ctx, d.event)
	}
	return callAgainIn
}

// takeNextDelivery returns the next event for a sink, if any, and when to ask again.
func (o *Outbox) takeNextDelivery(name types.NamespacedName, uid types.UID, l *eventQueue, sink Sink, now time.Time) (d *delivery, callAgainIn time.Duration) {
	p := l.sinks[sink.Name]
	if p == nil {
		p = &sinkProgress{}
		l.sinks[sink.Name] = p
	}
	for _, e := range l.events {
		if !slices.Contains(e.waiting, sink.Name) {
			continue
		}
		expires := e.change.At.Add(o.cfg.MaxAge)
		switch {
		case p.inFlight != nil || o.draining:
			return nil, 0
		case !now.Before(expires):
			o.metrics.countDropped(string(changeevent.ClassExpired), 1)
			l.acknowledge(e, sink.Name, now)
			p.failures, p.next = 0, time.Time{}
			continue
		case sink.Client == nil:
			return nil, expires.Sub(now)
		case now.Before(p.next):
			return nil, min(p.next.Sub(now), expires.Sub(now))
		}
		p.inFlight = e
		made := o.event(e.change)
		made.OnDelivery = func(d changeevent.Delivery) { o.recordSinkAnswer(name, uid, sink.Name, e, d) }
		return &delivery{sink.Client, made}, 0
	}
	return nil, 0
}

// recordSinkAnswer records the answer of a sink.
func (o *Outbox) recordSinkAnswer(name types.NamespacedName, uid types.UID, sink string, e *outboxEvent, d changeevent.Delivery) {
	o.mu.Lock()
	l := o.queues[name][uid]
	if l == nil || l.sinks[sink] == nil || l.sinks[sink].inFlight != e {
		o.mu.Unlock()
		return
	}
	now, p := o.now(), l.sinks[sink]
	p.inFlight = nil
	switch {
	case d.Class == "", isPermanentRejection(d.Class):
		if d.Class != "" {
			o.metrics.countDropped(string(d.Class), 1)
		}
		l.acknowledge(e, sink, now)
		p.failures, p.next = 0, time.Time{}
	default: // keep the order: later events would fail too
		p.next = now.Add(backoff.Policy{Initial: o.cfg.Retry, Max: o.cfg.MaxRetry, Jitter: -1}.Delay(p.failures))
		p.failures++
	}
	draining := o.draining
	o.mu.Unlock()
	if !draining {
		o.wake(name)
		return
	}
	select {
	case o.answered <- struct{}{}:
	default:
	}
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

	for left := o.stopSending(); left > 0 && err == nil; left = o.stopSending() {
		select {
		case <-o.answered:
		case <-ctx.Done():
			err = fmt.Errorf("%d change events: %w", left, context.Cause(ctx))
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()

	for name, lines := range o.queues {
		for _, l := range lines {
			switch {
			case l.deleted: // no other replica sends them
				for _, e := range l.events {
					o.metrics.countDropped(errorDeleted, len(e.waiting))
				}
			case !l.acked.IsZero():
				unwritten = append(unwritten, name)
			}
		}
	}
	return unwritten, err
}

// stopSending prevents further sends and counts the events in flight.
func (o *Outbox) stopSending() (inFlight int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.draining = true
	for _, lines := range o.queues {
		for _, l := range lines {
			for _, p := range l.sinks {
				if p.inFlight != nil {
					inFlight++
				}
			}
		}
	}
	return inFlight
}

// countPendingEvents counts the events that some sink has not acknowledged.
func (o *Outbox) countPendingEvents() (count float64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, lines := range o.queues {
		for _, l := range lines {
			for _, e := range l.events {
				if len(e.waiting) > 0 {
					count++
				}
			}
		}
	}
	return count
}

// changeOf returns the change that a stored event reports.
func changeOf(ke *v1alpha1.KubernetesExecution, p *v1alpha1.PendingChangeEvent) execution.Change {
	c := execution.Change{
		Action: execution.ChangeAction(p.Action), Execution: ke.Namespace + "/" + ke.Name, UID: string(ke.UID), Does: ke.Spec.Action,
		By: p.By, Agent: ke.Spec.RequestedByAgent, Reason: p.Reason, Message: p.Message, At: p.At.Time, DryRun: p.DryRun,
	}
	if a, known := action.Find(ke.Spec.Action); known { // the request may name an alias
		c.Does = a.Name
	}
	if ke.Status.Plan != nil {
		c.Target = ke.Status.Plan.Target
	}
	return c
}

// microTime truncates a time to the precision of the API server.
func microTime(t time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(t.Truncate(time.Microsecond))
}
