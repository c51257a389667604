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

// writeProgressToStatus writes the progress of the drain to the status.
func writeProgressToStatus(st *v1alpha1.NodeFaultStatus, leaving []podPlan, requests podRequests, now time.Time) {
	s := st.Drain
	s.Remaining, s.Terminating, s.BlockedPods = capToInt32(len(leaving)), 0, nil
	type ranked struct {
		v1alpha1.BlockedPod
		rank int
	}
	var blockers []ranked
	for _, plan := range leaving {
		t := requests[plan.pod.UID]
		switch {
		case plan.action == awaitEnd || !t.accepted.IsZero():
			s.Terminating++
			if plan.action == awaitEnd && now.After(plan.pod.DeletionTimestamp.Add(overdue)) {
				since := plan.pod.DeletionTimestamp.UTC().Format(time.RFC3339)
				blockers = append(blockers, ranked{v1alpha1.BlockedPod{Pod: namespacedName(plan.pod), BlockedBy: byTerminating, Message: "still terminating, its grace period ended at " + since}, 1})
			}
		case t.refusals > 0 && plan.action == evictPod:
			blockers = append(blockers, ranked{t.blocker, 0})
		case plan.action == waitFor:
			blockers = append(blockers, ranked{v1alpha1.BlockedPod{Pod: namespacedName(plan.pod), BlockedBy: plan.blockedBy, Message: plan.message}, 2})
		}
	}
	slices.SortStableFunc(blockers, func(a, b ranked) int { return cmp.Or(a.rank-b.rank, strings.Compare(a.Pod, b.Pod)) })
	for _, b := range blockers[:min(len(blockers), maxBlockers)] {
		s.BlockedPods = append(s.BlockedPods, b.BlockedPod)
	}
	s.Message = progressMessage(s, len(blockers))
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

// delayUntilNextStep returns the delay until the next step.
func (e *evictor) delayUntilNextStep(st *v1alpha1.NodeFaultStatus, leaving []podPlan, requests podRequests, now time.Time) (again time.Duration) {
	at := now.Add(idleLook)
	sooner := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	sooner(st.Drain.Deadline.Time)
	unasked := 0
	for _, plan := range leaving {
		t := requests[plan.pod.UID]
		switch {
		case plan.action == awaitEnd || !t.accepted.IsZero():
			sooner(now.Add(min(max(now.Sub(st.Drain.StartedAt.Time)/10, goingLook), idleLook)))
		case plan.action == waitFor:
			if !plan.until.IsZero() {
				sooner(plan.until)
			}
		case t.next.After(now):
			sooner(t.next)
		default: // the rate limiter did not allow it
			unasked++
		}
		if plan.action == evictPod && plan.rule.DeleteAfter > 0 && t.next.After(now) {
			if force := st.Drain.StartedAt.Add(plan.rule.DeleteAfter); force.After(now) {
				sooner(force)
			}
		}
	}
	if unasked > 0 {
		missing := float64(min(unasked, e.cfg.MaxPodsInFlight)) - e.limiter.TokensAt(now)
		sooner(now.Add(time.Duration(missing / e.cfg.EvictionsPerSecond * float64(time.Second))))
	}
	return max(at.Sub(now), leastLook)
}
