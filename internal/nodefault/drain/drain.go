// Package drain evicts the pods of a node.
//
// It uses the eviction API, so that disruption budgets hold, and it keeps the grace
// period of each pod. An eviction that a budget blocks is retried later, and the pod and
// the budget are reported, until the deadline of the drain. Then the drain fails. Pods
// are deleted or force-deleted only if the configuration of their namespace allows it. A
// terminating pod counts as left only when it is gone.
//
// The progress of a drain is stored in the status of the NodeFault. Only the times of
// retries are kept in memory. A new process continues where the last one stopped.
package drain

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// Never is the delay of a drain that needs no further step: it is over, or not requested.
const Never = time.Duration(math.MaxInt64)

// Intervals and timeouts of a drain.
const (
	slotRetryDelay   = 5 * time.Second       // while all drain slots are in use
	terminatingDelay = time.Second           // while pods terminate; later a tenth of the duration of the drain
	idleDelay        = 10 * time.Second      // while nothing changes
	failedDelay      = 30 * time.Second      // after a failure, to detect actions of a person
	minDelay         = 10 * time.Millisecond // prevents a busy loop while waiting for the rate limiter
	requestTimeout   = 15 * time.Second      // timeout of one request
	slotTerm         = 2 * time.Minute       // a node without a step for this time loses its drain slot
	overdue          = 10 * time.Second      // a pod is reported as terminating this long after its grace period
	settling         = 10 * time.Second      // a stale list may show an evicted pod unchanged for this time
)

// maxText is the maximum length of the message of a drain and the reason of a record, in
// bytes.
const maxText = 512

// Drainer drains nodes. Its methods are safe for concurrent use with different nodes.
type Drainer struct {
	cfg     Config
	client  kubernetes.Interface
	metrics *metrics
	slots   drainSlots
	evictor evictor
}

// New creates a drainer. nodesWithRunningDrain returns the nodes with a drain in state Running from a
// cache, so that a new process counts the drains of the last one. A nil function means
// none.
func New(cfg Config, c kubernetes.Interface, nodesWithRunningDrain func() []types.UID) *Drainer {
	cfg = cfg.withDefaults()
	if nodesWithRunningDrain == nil {
		nodesWithRunningDrain = func() []types.UID { return nil }
	}
	m := newMetrics()
	evictionBurst := max(cfg.MaxPodsInFlight, int(cfg.EvictionsPerSecond/2))
	return &Drainer{
		cfg:     cfg,
		client:  c,
		metrics: m,
		slots: drainSlots{
			most:                  cfg.MaxNodes,
			nodesWithRunningDrain: nodesWithRunningDrain,
			metrics:               m,
			nodes:                 map[types.UID]*drainSlot{},
		},
		evictor: evictor{
			cfg:     cfg,
			client:  c,
			limiter: rate.NewLimiter(rate.Limit(cfg.EvictionsPerSecond), evictionBurst),
			metrics: m,
		},
	}
}

// Step advances the drain of a node, updates the status, and returns the delay until the
// next step. With zero, the caller must write the status and then call Step again at
// once, because the next step relies on it. With Never, no further step is needed.
//
// With an error the status has no change that must be written, and the step can be
// repeated.
func (d *Drainer) Step(
	ctx context.Context, node *corev1.Node, status *v1alpha1.NodeFaultStatus, now time.Time,
) (after time.Duration, err error) {
	if node.UID != status.NodeUID {
		return 0, fmt.Errorf("drain node %q: its UID is %s, want %s", node.Name, node.UID, status.NodeUID)
	}
	switch {
	case isCompletedOrFailed(status.Drain):
		d.slots.release(status.NodeUID)
		return d.completeFailedDrainIfPodsGone(ctx, node, status, now)
	case status.DesiredActions == nil || !status.DesiredActions.Drain:
		d.Cancel(status, "no rule requires the drain any more", now)
		return Never, nil
	case status.DesiredActions.DryRun:
		return Never, d.recordDryRunPodCountOnce(ctx, node, status, now)
	case status.Drain == nil || status.Drain.State == v1alpha1.DrainCancelled:
		return d.beginDrainIfSlotFree(ctx, node, status, now)
	}
	return d.continueDrain(ctx, node, status, now)
}

// isCompletedOrFailed reports whether a drain has completed or failed. A cancelled drain may be
// requested again within its session.
func isCompletedOrFailed(s *v1alpha1.DrainStatus) bool {
	return s != nil && (s.State == v1alpha1.DrainCompleted || s.State == v1alpha1.DrainFailed)
}

// Cancel cancels a running drain. In any other state it does nothing.
func (d *Drainer) Cancel(status *v1alpha1.NodeFaultStatus, reason string, now time.Time) {
	d.slots.release(status.NodeUID)
	if status.Drain == nil || status.Drain.State != v1alpha1.DrainRunning {
		return
	}
	clearPodProgress(status.Drain)
	d.endDrain(status, v1alpha1.DrainCancelled, reason, now)
	recordActionOnce(status, changeevent.ActionDrainCancelled, reason, now)
}

// ProgressOrWaitMessage returns a sentence about the progress of the drain, or "" if no drain is
// requested.
func (d *Drainer) ProgressOrWaitMessage(status *v1alpha1.NodeFaultStatus) string {
	drain, desired := status.Drain, status.DesiredActions
	requested := desired != nil && desired.Drain
	// A cancelled drain that is requested again waits for its next start.
	restarts := drain != nil && drain.State == v1alpha1.DrainCancelled && requested
	switch {
	case drain != nil && !restarts:
		return drain.Message
	case !requested || desired.DryRun:
		return ""
	}
	return fmt.Sprintf("waiting for a drain slot: at most %d nodes are drained at a time", d.cfg.MaxNodes)
}

// beginDrainIfSlotFree records the start of a drain, once a drain slot is free.
func (d *Drainer) beginDrainIfSlotFree(
	ctx context.Context, node *corev1.Node, status *v1alpha1.NodeFaultStatus, now time.Time,
) (again time.Duration, err error) {
	if !d.slots.acquire(status.NodeUID, now) {
		return slotRetryDelay, nil
	}
	leaving, err := d.listLeavingPods(ctx, node, metav1.NewTime(now), fresh, now)
	if err != nil {
		d.slots.release(status.NodeUID)
		return 0, err
	}
	status.Drain = &v1alpha1.DrainStatus{
		State:     v1alpha1.DrainRunning,
		StartedAt: metav1.NewTime(now),
		Deadline:  metav1.NewTime(now.Add(d.cfg.Deadline)),
	}
	if len(leaving) == 0 {
		d.completeDrain(status, now)
		return Never, nil
	}
	status.Drain.Remaining = capToInt32(len(leaving))
	status.Drain.Message = fmt.Sprintf("pods to evict: %d", len(leaving))
	recordActionOnce(status, changeevent.ActionDrainStarted, status.Drain.Message, now)
	return 0, nil
}

// completeFailedDrainIfPodsGone checks whether all pods have left the node since the drain failed.
func (d *Drainer) completeFailedDrainIfPodsGone(
	ctx context.Context, node *corev1.Node, status *v1alpha1.NodeFaultStatus, now time.Time,
) (again time.Duration, err error) {
	if status.Drain.State != v1alpha1.DrainFailed {
		return Never, nil
	}
	leaving, err := d.listLeavingPods(ctx, node, status.Drain.StartedAt, fresh, now)
	if err != nil {
		return 0, err
	}
	if len(leaving) > 0 {
		return failedDelay, nil
	}
	d.completeDrain(status, now)
	return Never, nil
}

// continueDrain evicts the pods that may be evicted now.
func (d *Drainer) continueDrain(
	ctx context.Context, node *corev1.Node, status *v1alpha1.NodeFaultStatus, now time.Time,
) (again time.Duration, err error) {
	requests := d.slots.renewAndReleaseStale(status.NodeUID, now)
	deadlinePassed := !now.Before(status.Drain.Deadline.Time)
	leaving, err := d.listLeavingPodsFreshIfEmpty(ctx, node, status, now, deadlinePassed)
	if err != nil {
		return 0, err
	}
	requests.forgetOtherPods(leaving)
	if len(leaving) == 0 {
		d.completeDrain(status, now)
		return Never, nil
	}
	if deadlinePassed {
		writeProgressToStatus(status, leaving, requests, now)
		d.failDrain(status, now)
		return Never, nil
	}
	err = d.evictor.sendDueRemovals(ctx, status, leaving, requests, now)
	writeProgressToStatus(status, leaving, requests, now)
	if err != nil {
		return 0, err
	}
	return d.evictor.delayUntilNextStep(status, leaving, requests, now), nil
}

// listLeavingPodsFreshIfEmpty returns the pods that must leave. If a stale list has none, it lists them
// again from the API server.
func (d *Drainer) listLeavingPodsFreshIfEmpty(
	ctx context.Context, node *corev1.Node, status *v1alpha1.NodeFaultStatus, now time.Time, alwaysFresh bool,
) ([]podPlan, error) {
	if !alwaysFresh {
		leaving, err := d.listLeavingPods(ctx, node, status.Drain.StartedAt, lagging, now)
		if err != nil || len(leaving) > 0 {
			return leaving, err
		}
	}
	return d.listLeavingPods(ctx, node, status.Drain.StartedAt, fresh, now)
}

// completeDrain ends a drain whose pods have left, and records it.
func (d *Drainer) completeDrain(status *v1alpha1.NodeFaultStatus, now time.Time) {
	message := "no pods to evict"
	startRecord := nodefault.RecordID(status.NodeUID, status.Session, changeevent.ActionDrainStarted, "")
	if nodefault.HasRecord(status, startRecord) {
		message = fmt.Sprintf("all pods have left the node, %d were evicted", status.Drain.Evicted)
	}
	clearPodProgress(status.Drain)
	d.endDrain(status, v1alpha1.DrainCompleted, message, now)
	recordActionOnce(status, changeevent.ActionDrainCompleted, message, now)
}

// failDrain ends a drain whose deadline has passed, and records it. The pods that are left stay in
// the status.
func (d *Drainer) failDrain(status *v1alpha1.NodeFaultStatus, now time.Time) {
	took := status.Drain.Deadline.Sub(status.Drain.StartedAt.Time).Round(time.Second)
	left := status.Drain.Remaining
	reason := fmt.Sprintf("pods left after %s (%d): %s", took, left, blockedPodsText(status.Drain.BlockedPods, int(left)))
	d.endDrain(status, v1alpha1.DrainFailed, reason, now)
	r := nodefault.NewRecord(status, changeevent.SourceNodeDrainer, changeevent.ActionDrainFailed, "", now)
	r.Outcome, r.Reason = changeevent.OutcomeFailed, nodefault.TruncateText(reason, maxText)
	nodefault.AppendRecordOnceAndTrim(status, r)
}

// endDrain sets the final state of a drain, counts it, and frees its slot.
func (d *Drainer) endDrain(
	status *v1alpha1.NodeFaultStatus, state v1alpha1.DrainState, message string, now time.Time,
) {
	at := metav1.NewTime(now)
	status.Drain.State, status.Drain.FinishedAt = state, &at
	status.Drain.Message = nodefault.TruncateText(message, maxText)
	d.metrics.ends.WithLabelValues(string(state)).Inc()
	d.slots.release(status.NodeUID)
}

// clearPodProgress removes the pods from the status of a drain that has none left to evict.
func clearPodProgress(drain *v1alpha1.DrainStatus) {
	drain.Remaining, drain.Terminating, drain.BlockedPods = 0, 0, nil
}

// recordActionOnce records an action, once per session.
func recordActionOnce(status *v1alpha1.NodeFaultStatus, action, reason string, now time.Time) {
	r := nodefault.NewRecord(status, changeevent.SourceNodeDrainer, action, "", now)
	r.Reason = nodefault.TruncateText(reason, maxText)
	nodefault.AppendRecordOnceAndTrim(status, r)
}

// ordinalDryRun distinguishes the record of a dry run from that of a real drain in the
// same session.
const ordinalDryRun = "dry-run"

// recordDryRunPodCountOnce records how many pods a drain would evict.
func (d *Drainer) recordDryRunPodCountOnce(
	ctx context.Context, node *corev1.Node, status *v1alpha1.NodeFaultStatus, now time.Time,
) error {
	r := nodefault.NewRecord(status, changeevent.SourceNodeDrainer, changeevent.ActionDrainStarted, ordinalDryRun, now)
	if nodefault.HasRecord(status, r.ID) {
		return nil
	}
	leaving, err := d.listLeavingPods(ctx, node, metav1.NewTime(now), lagging, now)
	if err != nil || len(leaving) == 0 {
		return err
	}
	r.DryRun, r.Reason = true, fmt.Sprintf("pods that a drain would evict: %d", len(leaving))
	nodefault.AppendRecordOnceAndTrim(status, r)
	return nil
}
