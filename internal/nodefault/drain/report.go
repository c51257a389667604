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

// reportProgress writes the progress of the drain to the status.
func reportProgress(st *v1alpha1.NodeFaultStatus, going []item, m memory, now time.Time) {
	s := st.Drain
	s.Remaining, s.Terminating, s.BlockedPods = toInt32(len(going)), 0, nil
	type ranked struct {
		v1alpha1.BlockedPod
		rank int
	}
	var blockers []ranked
	for _, it := range going {
		t := m[it.pod.UID]
		switch {
		case it.action == awaitEnd || !t.accepted.IsZero():
			s.Terminating++
			if it.action == awaitEnd && now.After(it.pod.DeletionTimestamp.Add(overdue)) {
				since := it.pod.DeletionTimestamp.UTC().Format(time.RFC3339)
				blockers = append(blockers, ranked{v1alpha1.BlockedPod{Pod: nameOf(it.pod), BlockedBy: byTerminating, Message: "still terminating, its grace period ended at " + since}, 1})
			}
		case t.refusals > 0 && it.action == evictPod:
			blockers = append(blockers, ranked{t.blocker, 0})
		case it.action == waitFor:
			blockers = append(blockers, ranked{v1alpha1.BlockedPod{Pod: nameOf(it.pod), BlockedBy: it.blockedBy, Message: it.message}, 2})
		}
	}
	slices.SortStableFunc(blockers, func(a, b ranked) int { return cmp.Or(a.rank-b.rank, strings.Compare(a.Pod, b.Pod)) })
	for _, b := range blockers[:min(len(blockers), maxBlockers)] {
		s.BlockedPods = append(s.BlockedPods, b.BlockedPod)
	}
	s.Message = progressMessage(s, len(blockers))
}

// progressMessage returns a message about the progress of a drain.
func progressMessage(s *v1alpha1.DrainStatus, blocked int) string {
	text := fmt.Sprintf("pods left: %d, terminating: %d", s.Remaining, s.Terminating)
	if blocked > 0 {
		text += "; blocked: " + blockerNames(s.BlockedPods, blocked)
	}
	return nodefault.TruncateText(text, maxText)
}

// blockerNames lists some of the blocked pods with their blockers. total is the total
// number of blocked pods.
func blockerNames(blockers []v1alpha1.BlockedPod, total int) string {
	var list []string
	for _, b := range blockers[:min(len(blockers), maxNames)] {
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

func toInt32(n int) int32 { return int32(min(n, math.MaxInt32)) } //nolint:gosec // it is bounded in the same line

// nextCheck returns the delay until the next step.
func (e *evictor) nextCheck(st *v1alpha1.NodeFaultStatus, going []item, m memory, now time.Time) (again time.Duration) {
	at := now.Add(idleLook)
	sooner := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	sooner(st.Drain.Deadline.Time)
	unasked := 0
	for _, it := range going {
		t := m[it.pod.UID]
		switch {
		case it.action == awaitEnd || !t.accepted.IsZero():
			sooner(now.Add(min(max(now.Sub(st.Drain.StartedAt.Time)/10, goingLook), idleLook)))
		case it.action == waitFor:
			if !it.until.IsZero() {
				sooner(it.until)
			}
		case t.next.After(now):
			sooner(t.next)
		default: // the rate limiter did not allow it
			unasked++
		}
		if it.action == evictPod && it.rule.DeleteAfter > 0 && t.next.After(now) {
			if force := st.Drain.StartedAt.Add(it.rule.DeleteAfter); force.After(now) {
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
