package operator

import (
	"cmp"
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
	"github.com/fleetloop/fleetloop/internal/execution"
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
	c.MaxAge = cmp.Or(c.MaxAge, 12*time.Hour)
	c.Retry = cmp.Or(c.Retry, time.Second)
	c.MaxRetry = cmp.Or(c.MaxRetry, 5*time.Minute)
	c.Drain = cmp.Or(c.Drain, changeevent.DefaultShutdownTimeout)
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

	mu sync.Mutex
	// queues holds the queues by the name and the UID of their execution. Several have the same name
	// if a deleted execution was created again.
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
	if deps.Now == nil {
		deps.Now = time.Now
	}
	o := &Outbox{
		cfg:      cfg.withDefaults(),
		sinks:    deps.Sinks,
		event:    deps.Event,
		wake:     deps.Wake,
		now:      deps.Now,
		queues:   map[types.NamespacedName]map[types.UID]*eventQueue{},
		answered: make(chan struct{}, 1),
	}
	metrics, err := newOutboxMetrics(deps.Registerer, o.countPendingEvents)
	if err != nil {
		return nil, fmt.Errorf("create outbox: %w", err)
	}
	o.metrics = metrics
	return o, nil
}

// Enabled reports whether the outbox has a sink.
func (o *Outbox) Enabled() bool { return o != nil && len(o.sinks) > 0 }

// AppendToStatus adds an event to a status, for the sinks that want it. It drops the oldest events of an
// execution that has too many. The caller writes the status.
func (o *Outbox) AppendToStatus(s *v1alpha1.KubernetesExecutionStatus, event v1alpha1.PendingChangeEvent) {
	if !o.Enabled() {
		return
	}
	event.Sinks = nil
	for _, sink := range o.sinks {
		if sink.Wants == nil || sink.Wants(event.Action) {
			event.Sinks = append(event.Sinks, sink.Name)
		}
	}
	if len(event.Sinks) == 0 {
		return
	}
	pending := append(slices.Clone(s.PendingChangeEvents), event)
	for len(pending) > v1alpha1.MaxPendingChangeEvents {
		o.metrics.countDropped(errorOverflow, len(pending[0].Sinks))
		pending = pending[1:]
	}
	s.PendingChangeEvents = pending
}

// SyncQueueFromStatus updates the queue of an execution with the events in its status. Events that are no
// longer stored leave the queue once all sinks have acknowledged them.
func (o *Outbox) SyncQueueFromStatus(ke *v1alpha1.KubernetesExecution) {
	if !o.Enabled() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	stored := ke.Status.PendingChangeEvents
	queue := o.queues[nameOf(ke)][ke.UID]
	if queue == nil {
		if len(stored) == 0 {
			return
		}
		queue = o.addQueue(nameOf(ke), ke.UID)
	}

	isStored := make(map[outboxKey]bool, len(stored))
	for i := range stored {
		isStored[outboxKeyOf(&stored[i])] = true
	}
	queue.events = slices.DeleteFunc(queue.events, func(event *outboxEvent) bool {
		return !isStored[event.key] && len(event.waiting) == 0
	})
	for i := range stored {
		event := &stored[i]
		if queue.findEvent(outboxKeyOf(event)) != nil {
			continue
		}
		queue.events = append(queue.events, &outboxEvent{
			key:     outboxKeyOf(event),
			change:  changeOf(ke, event),
			waiting: slices.DeleteFunc(slices.Clone(event.Sinks), o.isUnknownSink),
		})
	}

	if !queue.hasUnwrittenAcknowledgement(stored) {
		queue.acked = time.Time{}
	}
	if len(queue.events) == 0 {
		o.removeQueue(nameOf(ke), ke.UID)
	}
}

// isUnknownSink reports whether a sink is not configured.
func (o *Outbox) isUnknownSink(name string) bool {
	return !slices.ContainsFunc(o.sinks, func(s Sink) bool { return s.Name == name })
}

func (o *Outbox) addQueue(name types.NamespacedName, uid types.UID) *eventQueue {
	queue := &eventQueue{sinks: map[string]*sinkProgress{}}
	if o.queues[name] == nil {
		o.queues[name] = map[types.UID]*eventQueue{}
	}
	o.queues[name][uid] = queue
	return queue
}

func (o *Outbox) removeQueue(name types.NamespacedName, uid types.UID) {
	if queue := o.queues[name][uid]; queue != nil && queue.deleted {
		o.deleted--
	}
	delete(o.queues[name], uid)
	if len(o.queues[name]) == 0 {
		delete(o.queues, name)
	}
}

// RemoveAcknowledgedFromStatus removes acknowledged and dropped events from a status. It reports whether it changed
// the status, and how long a write of only that change may wait for another one.
func (o *Outbox) RemoveAcknowledgedFromStatus(ke *v1alpha1.KubernetesExecution, now time.Time) (changed bool, writeWithin time.Duration) {
	stored := ke.Status.PendingChangeEvents
	if o == nil || len(stored) == 0 {
		return false, 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	queue := o.queues[nameOf(ke)][ke.UID]
	var left []v1alpha1.PendingChangeEvent
	for _, event := range stored {
		var unacknowledged []string
		for _, sink := range event.Sinks {
			if !o.isUnknownSink(sink) && !queue.isAcknowledgedBy(outboxKeyOf(&event), sink) {
				unacknowledged = append(unacknowledged, sink)
			}
		}
		if len(unacknowledged) != len(event.Sinks) {
			changed = true
		}
		if len(unacknowledged) > 0 {
			event.Sinks = unacknowledged
			left = append(left, event)
		}
	}
	ke.Status.PendingChangeEvents = left
	if !changed || queue == nil || queue.acked.IsZero() {
		return changed, 0
	}
	return changed, max(0, queue.acked.Add(writeAfter).Sub(now))
}

// NeedsFinalizer reports whether an execution needs a finalizer because its deletion would lose an event.
// It also returns when to ask again. Most events are delivered within holdAfter and need none.
func (o *Outbox) NeedsFinalizer(ke *v1alpha1.KubernetesExecution, now time.Time) (needed bool, callAgainIn time.Duration) {
	for i := range ke.Status.PendingChangeEvents {
		event := &ke.Status.PendingChangeEvents[i]
		if wait := event.At.Add(holdAfter).Sub(now); wait > 0 {
			callAgainIn = shorterNonZero(callAgainIn, wait)
			continue
		}
		if o.isUnacknowledged(ke, event) {
			needed = true
		}
	}
	return needed, callAgainIn
}

// isUnacknowledged reports whether a sink of a stored event has not acknowledged it.
func (o *Outbox) isUnacknowledged(ke *v1alpha1.KubernetesExecution, event *v1alpha1.PendingChangeEvent) bool {
	if !o.Enabled() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	queue := o.queues[nameOf(ke)][ke.UID]
	for _, sink := range event.Sinks {
		if !queue.isAcknowledgedBy(outboxKeyOf(event), sink) {
			return true
		}
	}
	return false
}

// countPendingEvents counts the events that some sink has not acknowledged.
func (o *Outbox) countPendingEvents() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	count := 0
	for _, queues := range o.queues {
		for _, queue := range queues {
			count += queue.countPending()
		}
	}
	return float64(count)
}

// changeOf returns the change that a stored event reports.
func changeOf(ke *v1alpha1.KubernetesExecution, p *v1alpha1.PendingChangeEvent) execution.Change {
	change := execution.Change{
		Action:    execution.ChangeAction(p.Action),
		Execution: ke.Namespace + "/" + ke.Name,
		UID:       string(ke.UID),
		Does:      canonicalAction(ke.Spec.Action),
		By:        p.By,
		Agent:     ke.Spec.RequestedByAgent,
		Reason:    p.Reason,
		Message:   p.Message,
		At:        p.At.Time,
		DryRun:    p.DryRun,
	}
	if ke.Status.Plan != nil {
		change.Target = ke.Status.Plan.Target
	}
	return change
}

// microTime truncates a time to the precision of the API server.
func microTime(t time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(t.Truncate(time.Microsecond))
}
