// Package drain has the pods of a node go, as far as they may.
//
// It asks the API server to evict them, so that disruption budgets hold, and
// gives no pod less time to end than it wants for itself. What a budget keeps is
// asked for again later, and named, with the budget, until the time of the drain
// is over; then the drain has failed, and nothing is done by force that was not
// configured for the namespace. A pod that does not end is not gone.
//
// How far a drain is stands in the status of the NodeFault; what is remembered
// beside is when to ask again. A process that begins anew goes on where the last
// one was.
package drain

import (
	"context"
	"fmt"
	"math"
	"sync"
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

// Never is when a drain has to be looked at again that is over, or not asked for.
const Never = time.Duration(math.MaxInt64)

// How often to look.
const (
	turnPause  = 5 * time.Second       // while it is another node's turn
	goingLook  = time.Second           // while pods are on their way, and later a tenth of the time that it took so far
	idleLook   = 10 * time.Second      // while nothing moves
	failedLook = 30 * time.Second      // after a failure, for what a person does
	leastLook  = 10 * time.Millisecond // lest waiting for our own rate becomes a loop
	callBound  = 15 * time.Second      // of one request
	turnTerm   = 2 * time.Minute       // without a step a node has lost its turn
	overdue    = 10 * time.Second      // so long after its end a pod is named as one that does not end
	settling   = 10 * time.Second      // within it a list that lags may show an evicted pod as it was
)

// maxText is how long a message of a drain, or the reason of a record, may be.
const maxText = 512

// Drainer drains nodes. Its methods may be called for several nodes at a time,
// and for one after the other.
type Drainer struct {
	cfg      Config
	client   kubernetes.Interface
	draining func() []types.UID
	limiter  *rate.Limiter
	metrics  *metrics

	mu    sync.Mutex
	turns map[types.UID]time.Time // of nodes whose turn it is: the last step
	nodes map[types.UID]memory
}

// New makes a drainer. draining gives the nodes whose status says Running, as a
// cache has them, so that a process that begins counts the drains of the last
// one; nil is none.
func New(cfg Config, c kubernetes.Interface, draining func() []types.UID) *Drainer {
	cfg = cfg.withDefaults()
	if draining == nil {
		draining = func() []types.UID { return nil }
	}
	return &Drainer{
		cfg: cfg, client: c, draining: draining, metrics: newMetrics(),
		limiter: rate.NewLimiter(rate.Limit(cfg.EvictionsPerSecond), max(cfg.MaxPodsInFlight, int(cfg.EvictionsPerSecond/2))),
		turns:   map[types.UID]time.Time{}, nodes: map[types.UID]memory{},
	}
}

// Step takes the drain of a node as far as it goes now, changes the status
// accordingly, and says when to look again. Zero is at once: the status has to be
// written first, as what follows relies on it. Never is that there is nothing to
// do any more.
//
// With an error nothing was changed that must be written, and the step may be
// taken again.
func (d *Drainer) Step(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (after time.Duration, err error) {
	if node.UID != st.NodeUID {
		return 0, fmt.Errorf("drain node %q: its UID is %s, want %s", node.Name, node.UID, st.NodeUID)
	}
	switch {
	case hasEnded(st.Drain):
		d.releaseSlot(st.NodeUID)
		return d.lookBack(ctx, node, st, now)
	case st.DesiredActions == nil || !st.DesiredActions.Drain:
		d.Cancel(st, "no rule requires the drain any more", now)
		return Never, nil
	case st.DesiredActions.DryRun:
		return Never, d.tellDry(ctx, node, st, now)
	case st.Drain == nil || st.Drain.State == v1alpha1.DrainCancelled:
		return d.beginDrain(ctx, node, st, now)
	}
	return d.goOn(ctx, node, st, now)
}

// hasEnded is whether a drain has come to its end. One that was cancelled may be
// asked for again within its session.
func hasEnded(s *v1alpha1.DrainStatus) bool {
	return s != nil && (s.State == v1alpha1.DrainCompleted || s.State == v1alpha1.DrainFailed)
}

// Cancel ends a drain that is under way. Any other stays as it is.
func (d *Drainer) Cancel(st *v1alpha1.NodeFaultStatus, reason string, now time.Time) {
	d.releaseSlot(st.NodeUID)
	if st.Drain == nil || st.Drain.State != v1alpha1.DrainRunning {
		return
	}
	d.endDrain(st, v1alpha1.DrainCancelled, reason, now)
	r := nodefault.RecordOf(st, changeevent.SourceNodeDrainer, changeevent.ActionDrainCancelled, "", now)
	r.Reason = nodefault.Cut(reason, maxText)
	nodefault.Tell(st, r)
}

// Message says in a sentence how far the drain is, "" if none is asked for.
func (d *Drainer) Message(st *v1alpha1.NodeFaultStatus) string {
	switch {
	case st.Drain != nil && (st.Drain.State != v1alpha1.DrainCancelled || st.DesiredActions == nil || !st.DesiredActions.Drain):
		return st.Drain.Message
	case st.DesiredActions == nil || !st.DesiredActions.Drain || st.DesiredActions.DryRun:
		return ""
	}
	return fmt.Sprintf("waiting for a drain slot: at most %d nodes are drained at a time", d.cfg.MaxNodes)
}

// beginDrain writes down that a drain begins, once it is the node's turn.
func (d *Drainer) beginDrain(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error) {
	if !d.acquireSlot(st.NodeUID, now) {
		return turnPause, nil
	}
	pods, err := d.podsOf(ctx, node.Name, fresh)
	if err != nil {
		d.releaseSlot(st.NodeUID)
		return 0, err
	}
	began := &v1alpha1.DrainStatus{
		State: v1alpha1.DrainRunning, StartedAt: metav1.NewTime(now), Deadline: metav1.NewTime(now.Add(d.cfg.Deadline)),
	}
	going := d.sortPods(node, began, pods, now)
	st.Drain = began
	if len(going) == 0 {
		d.completeDrain(st, now)
		return Never, nil
	}
	began.Remaining = toInt32(len(going))
	began.Message = fmt.Sprintf("pods to evict: %d", len(going))
	d.recordAction(st, changeevent.ActionDrainStarted, began.Message, now)
	return 0, nil
}

// lookBack sees whether a person has made room since a drain failed.
func (d *Drainer) lookBack(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error) {
	if st.Drain.State != v1alpha1.DrainFailed {
		return Never, nil
	}
	pods, err := d.podsOf(ctx, node.Name, fresh)
	if err != nil {
		return 0, err
	}
	if len(d.sortPods(node, &v1alpha1.DrainStatus{StartedAt: st.Drain.StartedAt}, pods, now)) > 0 {
		return failedLook, nil
	}
	d.completeDrain(st, now)
	return Never, nil
}

// goOn evicts what may go now.
func (d *Drainer) goOn(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error) {
	d.keepSlot(st.NodeUID, now)
	late := !now.Before(st.Drain.Deadline.Time)
	going, err := d.remaining(ctx, node, st, now, late)
	if err != nil {
		return 0, err
	}
	m := d.podMemory(st.NodeUID, going)
	if len(going) == 0 {
		d.completeDrain(st, now)
		return Never, nil
	}
	if late {
		d.reportProgress(st, going, m, now)
		d.failDrain(st, now)
		return Never, nil
	}
	err = d.sendEvictions(ctx, st, going, m, now)
	d.reportProgress(st, going, m, now)
	if err != nil {
		return 0, err
	}
	return d.nextCheck(st, going, m, now), nil
}

// remaining are the pods that have to go. That there are none is never taken
// from a list that may lag.
func (d *Drainer) remaining(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time, late bool) ([]item, error) {
	how := lagging
	if late {
		how = fresh
	}
	pods, err := d.podsOf(ctx, node.Name, how)
	if err != nil {
		return nil, err
	}
	going := d.sortPods(node, st.Drain, pods, now)
	if len(going) > 0 || late {
		return going, nil
	}
	if pods, err = d.podsOf(ctx, node.Name, fresh); err != nil {
		return nil, err
	}
	return d.sortPods(node, st.Drain, pods, now), nil
}

func (d *Drainer) completeDrain(st *v1alpha1.NodeFaultStatus, now time.Time) {
	message := "no pods to evict"
	if nodefault.Told(st, nodefault.RecordID(st.NodeUID, st.Session, changeevent.ActionDrainStarted, "")) {
		message = fmt.Sprintf("all pods have left the node, %d were evicted", st.Drain.Evicted)
	}
	d.endDrain(st, v1alpha1.DrainCompleted, message, now)
	d.recordAction(st, changeevent.ActionDrainCompleted, message, now)
}

func (d *Drainer) failDrain(st *v1alpha1.NodeFaultStatus, now time.Time) {
	took := st.Drain.Deadline.Sub(st.Drain.StartedAt.Time).Round(time.Second)
	reason := fmt.Sprintf("pods left after %s (%d): %s", took, st.Drain.Remaining, blockerNames(st.Drain.BlockedPods, int(st.Drain.Remaining)))
	blocked, remaining, terminating := st.Drain.BlockedPods, st.Drain.Remaining, st.Drain.Terminating
	d.endDrain(st, v1alpha1.DrainFailed, reason, now)
	st.Drain.BlockedPods, st.Drain.Remaining, st.Drain.Terminating = blocked, remaining, terminating
	r := nodefault.RecordOf(st, changeevent.SourceNodeDrainer, changeevent.ActionDrainFailed, "", now)
	r.Outcome, r.Reason = changeevent.OutcomeFailed, nodefault.Cut(reason, maxText)
	nodefault.Tell(st, r)
}

// endDrain writes down that a drain is over.
func (d *Drainer) endDrain(st *v1alpha1.NodeFaultStatus, state v1alpha1.DrainState, message string, now time.Time) {
	at := metav1.NewTime(now)
	st.Drain.State, st.Drain.FinishedAt, st.Drain.Message = state, &at, nodefault.Cut(message, maxText)
	st.Drain.Remaining, st.Drain.Terminating, st.Drain.BlockedPods = 0, 0, nil
	d.metrics.countEnd(state)
	d.releaseSlot(st.NodeUID)
}

// recordAction records what was done. What was told of this session before is not told
// again.
func (d *Drainer) recordAction(st *v1alpha1.NodeFaultStatus, action, reason string, now time.Time) {
	r := nodefault.RecordOf(st, changeevent.SourceNodeDrainer, action, "", now)
	r.Reason = nodefault.Cut(reason, maxText)
	nodefault.Tell(st, r)
}

// ordinalDryRun tells what would be done from what is done, should it be done
// later in the same session.
const ordinalDryRun = "dry-run"

// tellDry records what a drain would have had go.
func (d *Drainer) tellDry(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) error {
	r := nodefault.RecordOf(st, changeevent.SourceNodeDrainer, changeevent.ActionDrainStarted, ordinalDryRun, now)
	if nodefault.Told(st, r.ID) {
		return nil
	}
	pods, err := d.podsOf(ctx, node.Name, lagging)
	if err != nil {
		return err
	}
	going := d.sortPods(node, &v1alpha1.DrainStatus{StartedAt: metav1.NewTime(now)}, pods, now)
	if len(going) == 0 {
		return nil
	}
	r.DryRun, r.Reason = true, fmt.Sprintf("pods that a drain would evict: %d", len(going))
	nodefault.Tell(st, r)
	return nil
}
