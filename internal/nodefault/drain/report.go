package drain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

const (
	maxBlockers = 8   // in a status
	maxBlocker  = 256 // bytes of the message of one pod
	maxNames    = 4   // in a message
)

// A rankedBlocker is a blocked pod with its rank in reports.
type rankedBlocker struct {
	pod  v1alpha1.BlockedPod
	rank int
}

// Ranks of blocked pods. Those that most need a person come first.
const (
	rankRejected    = iota // a request to remove the pod was rejected
	rankTerminating        // the pod is terminating for too long
	rankWaiting            // the configuration waits for the pod
)

// writeProgressToStatus writes the progress of the drain to the status.
func writeProgressToStatus(
	status *v1alpha1.NodeFaultStatus, leaving []podPlan, requests podRequests, now time.Time,
) {
	drain := status.Drain
	clearPodProgress(drain)
	drain.Remaining = capToInt32(len(leaving))
	var blockers []rankedBlocker
	for _, plan := range leaving {
		state := requests[plan.pod.UID]
		if isTerminating(plan, state) {
			drain.Terminating++
		}
		if blocker, blocked := blockerOf(plan, state, now); blocked {
			blockers = append(blockers, blocker)
		}
	}
	slices.SortStableFunc(blockers, func(a, b rankedBlocker) int {
		return cmp.Or(a.rank-b.rank, strings.Compare(a.pod.Pod, b.pod.Pod))
	})
	for _, blocker := range blockers[:min(len(blockers), maxBlockers)] {
		drain.BlockedPods = append(drain.BlockedPods, blocker.pod)
	}
	drain.Message = progressMessage(drain, len(blockers))
}

// isTerminating reports whether a pod is terminating, or will be once the list shows it.
func isTerminating(plan podPlan, state requestState) bool {
	return plan.action == awaitEnd || !state.accepted.IsZero()
}

// blockerOf returns what blocks a pod, and whether anything does.
func blockerOf(plan podPlan, state requestState, now time.Time) (blocker rankedBlocker, blocked bool) {
	switch {
	case plan.action == awaitEnd:
		graceEnd := plan.pod.DeletionTimestamp
		if !now.After(graceEnd.Add(overdue)) {
			return rankedBlocker{}, false
		}
		return rankedBlocker{rank: rankTerminating, pod: v1alpha1.BlockedPod{
			Pod:       namespacedName(plan.pod),
			BlockedBy: byTerminating,
			Message:   "still terminating, its grace period ended at " + graceEnd.UTC().Format(time.RFC3339),
		}}, true
	case isTerminating(plan, state):
		return rankedBlocker{}, false
	case state.refusals > 0 && plan.action == evictPod:
		return rankedBlocker{rank: rankRejected, pod: state.blocker}, true
	case plan.action == waitFor:
		return rankedBlocker{rank: rankWaiting, pod: v1alpha1.BlockedPod{
			Pod:       namespacedName(plan.pod),
			BlockedBy: plan.blockedBy,
			Message:   plan.message,
		}}, true
	default:
		return rankedBlocker{}, false
	}
}

// progressMessage returns a message about the progress of a drain.
func progressMessage(drain *v1alpha1.DrainStatus, blockedTotal int) string {
	text := fmt.Sprintf("pods left: %d, terminating: %d", drain.Remaining, drain.Terminating)
	if blockedTotal > 0 {
		text += "; blocked: " + blockedPodsText(drain.BlockedPods, blockedTotal)
	}
	return nodefault.TruncateText(text, maxText)
}

// blockedPodsText lists some of the blocked pods with their blockers. total is the total
// number of blocked pods.
func blockedPodsText(blocked []v1alpha1.BlockedPod, total int) string {
	var list []string
	for _, b := range blocked[:min(len(blocked), maxNames)] {
		list = append(list, b.Pod+" ("+b.BlockedBy+")")
	}
	if more := total - len(list); more > 0 && len(list) > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	if len(list) == 0 {
		return "no blocked pod known"
	}
	return strings.Join(list, ", ")
}

func capToInt32(n int) int32 { return int32(min(n, math.MaxInt32)) } //nolint:gosec // it is bounded in the same line

// delayUntilNextStep returns the delay until the next step: the earliest time at which any pod, or
// the deadline, needs one.
func (e *evictor) delayUntilNextStep(
	status *v1alpha1.NodeFaultStatus, leaving []podPlan, requests podRequests, now time.Time,
) (delay time.Duration) {
	next := earlier(now.Add(idleDelay), status.Drain.Deadline.Time)
	rateLimited := 0
	for _, plan := range leaving {
		nextOfPod, isRateLimited := nextStepOfPod(status.Drain, plan, requests[plan.pod.UID], now)
		if isRateLimited {
			rateLimited++
		}
		if !nextOfPod.IsZero() {
			next = earlier(next, nextOfPod)
		}
	}
	if rateLimited > 0 {
		// The next step waits until there are tokens for all requests that may be in flight.
		missingTokens := float64(min(rateLimited, e.cfg.MaxPodsInFlight)) - e.limiter.TokensAt(now)
		refill := time.Duration(missingTokens / e.cfg.EvictionsPerSecond * float64(time.Second))
		next = earlier(next, now.Add(refill))
	}
	return max(next.Sub(now), minDelay)
}

// nextStepOfPod returns the time at which a pod needs a step, after the requests of this step were
// sent. The time is zero if it is unknown. rateLimited means that the pod only waits for the rate
// limiter.
func nextStepOfPod(
	drain *v1alpha1.DrainStatus, plan podPlan, state requestState, now time.Time,
) (next time.Time, rateLimited bool) {
	if isTerminating(plan, state) {
		// The longer the drain lasts, the less often its pods are listed. With a tenth of its
		// duration so far, it is found to have ended at most a tenth too late.
		delay := now.Sub(drain.StartedAt.Time) / 10
		return now.Add(min(max(delay, terminatingDelay), idleDelay)), false
	}
	if plan.action == waitFor {
		return plan.until, false
	}

	// The plan is an eviction. A rejected request sets the time of the next one. Without such a time, the
	// rate limiter did not allow a request.
	if !state.next.After(now) {
		return time.Time{}, true
	}
	if plan.rule.DeleteAfter > 0 {
		// From then on, a pod that cannot be evicted is deleted.
		if deleteAt := drain.StartedAt.Add(plan.rule.DeleteAfter); deleteAt.After(now) {
			return earlier(state.next, deleteAt), false
		}
	}
	return state.next, false
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
