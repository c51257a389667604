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
	turnPause  = 5 * time.Second       // while all drain slots are in use
	goingLook  = time.Second           // while pods terminate; later a tenth of the duration of the drain
	idleLook   = 10 * time.Second      // while nothing changes
	failedLook = 30 * time.Second      // after a failure, to detect actions of a person
	leastLook  = 10 * time.Millisecond // prevents a busy loop while waiting for the rate limiter
	callBound  = 15 * time.Second      // timeout of one request
	turnTerm   = 2 * time.Minute       // a node without a step for this time loses its drain slot
	overdue    = 10 * time.Second      // a pod is reported as terminating this long after its grace period
	settling   = 10 * time.Second      // a stale list may show an evicted pod unchanged for this time
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
	return &Drainer{
		cfg: cfg, client: c, metrics: m,
		slots: drainSlots{most: cfg.MaxNodes, nodesWithRunningDrain: nodesWithRunningDrain, metrics: m, nodes: map[types.UID]*drainSlot{}},
		evictor: evictor{
			cfg: cfg, client: c, metrics: m,
			limiter: rate.NewLimiter(rate.Limit(cfg.EvictionsPerSecond), max(cfg.MaxPodsInFlight, int(cfg.EvictionsPerSecond/2))),
		},
	}
}

// Step advances the drain of a node, updates the status, and returns the delay until the
// next step. With zero, the caller must write the status and then call Step again at
// once, because the next step relies on it. With Never, no further step is needed.
//
// With an error the status has no change that must be written, and the step can be
// repeated.
func (d *Drainer) Step(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (after time.Duration, err error) {
	if node.UID != st.NodeUID {
		return 0, fmt.Errorf("drain node %q: its UID is %s, want %s", node.Name, node.UID, st.NodeUID)
	}
	switch {
	case isCompletedOrFailed(st.Drain):
		d.slots.release(st.NodeUID)
		return d.completeFailedDrainIfPodsGone(ctx, node, st, now)
	case st.DesiredActions == nil || !st.DesiredActions.Drain:
		d.Cancel(st, "no rule requires the drain any more", now)
		return Never, nil
	case st.DesiredActions.DryRun:
		return Never, d.recordDryRunPodCountOnce(ctx, node, st, now)
	case st.Drain == nil || st.Drain.State == v1alpha1.DrainCancelled:
		return d.beginDrainIfSlotFree(ctx, node, st, now)
	}
	return d.continueDrain(ctx, node, st, now)
}

// isCompletedOrFailed reports whether a drain has completed or failed. A cancelled drain may be
// requested again within its session.
func isCompletedOrFailed(s *v1alpha1.DrainStatus) bool {
	return s != nil && (s.State == v1alpha1.DrainCompleted || s.State == v1alpha1.DrainFailed)
}

// Cancel cancels a running drain. In any other state it does nothing.
func (d *Drainer) Cancel(st *v1alpha1.NodeFaultStatus, reason string, now time.Time) {
	d.slots.release(st.NodeUID)
	if st.Drain == nil || st.Drain.State != v1alpha1.DrainRunning {
		return
	}
	d.endDrain(st, v1alpha1.DrainCancelled, reason, now)
	recordActionOnce(st, changeevent.ActionDrainCancelled, reason, now)
}

// ProgressOrWaitMessage returns a sentence about the progress of the drain, or "" if no drain is
// requested.
func (d *Drainer) ProgressOrWaitMessage(st *v1alpha1.NodeFaultStatus) string {
	switch {
	case st.Drain != nil && (st.Drain.State != v1alpha1.DrainCancelled || st.DesiredActions == nil || !st.DesiredActions.Drain):
		return st.Drain.Message
	case st.DesiredActions == nil || !st.DesiredActions.Drain || st.DesiredActions.DryRun:
		return ""
	}
	return fmt.Sprintf("waiting for a drain slot: at most %d nodes are drained at a time", d.cfg.MaxNodes)
}

// beginDrainIfSlotFree records the start of a drain, once a drain slot is free.
func (d *Drainer) beginDrainIfSlotFree(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (again time.Duration, err error) {
	if !d.slots.acquire(st.NodeUID, now) {
		return turnPause, nil
	}
	leaving, err := d.listLeavingPods(ctx, node, metav1.NewTime(now), fresh, now)
	if err != nil {
		d.slots.release(st.NodeUID)
		return 0, err
	}
	began := &v1alpha1.DrainStatus{
		State: v1alpha1.DrainRunning, StartedAt: metav1.NewTime(now), Deadline: metav1.NewTime(now.Add(d.cfg.Deadline)),
	}
	st.Drain = began
	if len(leaving) == 0 {
		d.completeDrain(st, now)
		return Never, nil
	}
	began.Remaining = capToInt32(len(leaving))
	began.Message = fmt.Sprintf("pods to evict: %d", len(leaving))
	recordActionOnce(st, changeevent.ActionDrainStarted, began.Message, now)
	return 0, nil
}

// completeFailedDrainIfPodsGone checks whether all pods have left the node since the drain failed.
func (d *Drainer) completeFailedDrainIfPodsGone(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (again time.Duration, err error) {
	if st.Drain.State != v1alpha1.DrainFailed {
		return Never, nil
	}
	leaving, err := d.listLeavingPods(ctx, node, st.Drain.StartedAt, fresh, now)
	if err != nil {
		return 0, err
	}
	if len(leaving) > 0 {
		return failedLook, nil
	}
	d.completeDrain(st, now)
	return Never, nil
}

// continueDrain evicts the pods that may be evicted now.
func (d *Drainer) continueDrain(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (again time.Duration, err error) {
	requests := d.slots.renewAndReleaseStale(st.NodeUID, now)
	late := !now.Before(st.Drain.Deadline.Time)
	leaving, err := d.listLeavingPodsFreshIfEmpty(ctx, node, st, now, late)
	if err != nil {
		return 0, err
	}
	requests.forgetOtherPods(leaving)
	if len(leaving) == 0 {
		d.completeDrain(st, now)
		return Never, nil
	}
	if late {
		writeProgressToStatus(st, leaving, requests, now)
		d.failDrain(st, now)
		return Never, nil
	}
	err = d.evictor.sendDueRemovals(ctx, st, leaving, requests, now)
	writeProgressToStatus(st, leaving, requests, now)
	if err != nil {
		return 0, err
	}
	return d.evictor.delayUntilNextStep(st, leaving, requests, now), nil
}

// listLeavingPodsFreshIfEmpty returns the pods that must leave. If a stale list has none, it lists them
// again from the API server.
func (d *Drainer) listLeavingPodsFreshIfEmpty(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time, alwaysFresh bool) ([]podPlan, error) {
	if !alwaysFresh {
		if leaving, err := d.listLeavingPods(ctx, node, st.Drain.StartedAt, lagging, now); err != nil || len(leaving) > 0 {
			return leaving, err
		}
	}
	return d.listLeavingPods(ctx, node, st.Drain.StartedAt, fresh, now)
}

func (d *Drainer) completeDrain(st *v1alpha1.NodeFaultStatus, now time.Time) {
	message := "no pods to evict"
	if nodefault.HasRecord(st, nodefault.RecordID(st.NodeUID, st.Session, changeevent.ActionDrainStarted, "")) {
		message = fmt.Sprintf("all pods have left the node, %d were evicted", st.Drain.Evicted)
	}
	d.endDrain(st, v1alpha1.DrainCompleted, message, now)
	recordActionOnce(st, changeevent.ActionDrainCompleted, message, now)
}

func (d *Drainer) failDrain(st *v1alpha1.NodeFaultStatus, now time.Time) {
	took := st.Drain.Deadline.Sub(st.Drain.StartedAt.Time).Round(time.Second)
	reason := fmt.Sprintf("pods left after %s (%d): %s", took, st.Drain.Remaining, blockedPodsText(st.Drain.BlockedPods, int(st.Drain.Remaining)))
	blocked, remaining, terminating := st.Drain.BlockedPods, st.Drain.Remaining, st.Drain.Terminating
	d.endDrain(st, v1alpha1.DrainFailed, reason, now)
	st.Drain.BlockedPods, st.Drain.Remaining, st.Drain.Terminating = blocked, remaining, terminating
	r := nodefault.NewRecord(st, changeevent.SourceNodeDrainer, changeevent.ActionDrainFailed, "", now)
	r.Outcome, r.Reason = changeevent.OutcomeFailed, nodefault.TruncateText(reason, maxText)
	nodefault.AppendRecordOnceAndTrim(st, r)
}

// endDrain records the end of a drain.
func (d *Drainer) endDrain(st *v1alpha1.NodeFaultStatus, state v1alpha1.DrainState, message string, now time.Time) {
	at := metav1.NewTime(now)
	st.Drain.State, st.Drain.FinishedAt, st.Drain.Message = state, &at, nodefault.TruncateText(message, maxText)
	st.Drain.Remaining, st.Drain.Terminating, st.Drain.BlockedPods = 0, 0, nil
	d.metrics.ends.WithLabelValues(string(state)).Inc()
	d.slots.release(st.NodeUID)
}

// recordActionOnce records an action, once per session.
func recordActionOnce(st *v1alpha1.NodeFaultStatus, action, reason string, now time.Time) {
	r := nodefault.NewRecord(st, changeevent.SourceNodeDrainer, action, "", now)
	r.Reason = nodefault.TruncateText(reason, maxText)
	nodefault.AppendRecordOnceAndTrim(st, r)
}

// ordinalDryRun distinguishes the record of a dry run from that of a real drain in the
// same session.
const ordinalDryRun = "dry-run"

// recordDryRunPodCountOnce records how many pods a drain would evict.
func (d *Drainer) recordDryRunPodCountOnce(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) error {
	r := nodefault.NewRecord(st, changeevent.SourceNodeDrainer, changeevent.ActionDrainStarted, ordinalDryRun, now)
	if nodefault.HasRecord(st, r.ID) {
		return nil
	}
	leaving, err := d.listLeavingPods(ctx, node, metav1.NewTime(now), lagging, now)
	if err != nil || len(leaving) == 0 {
		return err
	}
	r.DryRun, r.Reason = true, fmt.Sprintf("pods that a drain would evict: %d", len(leaving))
	nodefault.AppendRecordOnceAndTrim(st, r)
	return nil
}
