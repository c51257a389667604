package execution

import (
	"slices"
	"sort"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// historyWindow is the period of past executions that policies see.
const historyWindow = time.Hour

// A gateHistory holds ended executions while they are relevant, ordered by end.
type gateHistory struct {
	retention time.Duration
	all       []PastExecution
	byKey     map[pastKey][]PastExecution
}

type pastKey struct{ action, target string }

func newGateHistory(retention time.Duration) gateHistory {
	return gateHistory{retention: retention, byKey: make(map[pastKey][]PastExecution)}
}

// addPast adds an ended execution. It ignores those without a target, which no lookup asks for.
func (h *gateHistory) addPast(e PastExecution) {
	if e.Target == "" {
		return
	}
	key := pastKey{e.Action, e.Target}
	h.all = insertByEnd(h.all, e)
	h.byKey[key] = insertByEnd(h.byKey[key], e)
}

// clampFutureEnds limits all ends to now. A later end comes from a clock that runs ahead, and must not
// block its target until then.
func (h *gateHistory) clampFutureEnds(now time.Time) {
	clampEnds(h.all, now)
	for _, list := range h.byKey {
		clampEnds(list, now)
	}
}

// clampEnds limits the ends in a list that is ordered by end.
func clampEnds(list []PastExecution, now time.Time) {
	for i := len(list) - 1; i >= 0 && list[i].Ended.After(now); i-- {
		list[i].Ended = now
	}
}

// dropExpired removes executions older than the retention.
func (h *gateHistory) dropExpired(now time.Time) {
	for len(h.all) > 0 && now.Sub(h.all[0].Ended) >= h.retention {
		key := pastKey{h.all[0].Action, h.all[0].Target}
		h.all = h.all[1:]
		h.byKey[key] = h.byKey[key][1:] // the oldest of all is also the oldest of its key
		if len(h.byKey[key]) == 0 {
			delete(h.byKey, key)
		}
	}
}

// insertByEnd inserts an execution by its end. Without clock skew that is the end of the list.
func insertByEnd(list []PastExecution, e PastExecution) []PastExecution {
	i := len(list)
	for i > 0 && e.Ended.Before(list[i-1].Ended) {
		i--
	}
	return slices.Insert(list, i, e)
}

// listEndedWithin returns the executions of an action on a target that ended within a period before
// now.
func (h *gateHistory) listEndedWithin(action, target string, within time.Duration, now time.Time) []PastExecution {
	list := h.byKey[pastKey{action, target}]
	first := sort.Search(len(list), func(i int) bool { return now.Sub(list[i].Ended) < within })
	return list[first:]
}

func isFailed(e PastExecution) bool { return e.Outcome == v1alpha1.OutcomeFailed }

// cooldownLeft returns the rest of the cooldown on the target of a member.
func (h *gateHistory) cooldownLeft(m *gateMember, cooldown time.Duration, now time.Time) time.Duration {
	if m.Rollback || m.ReadOnly || m.Target == "" {
		return 0
	}
	recent := h.listEndedWithin(m.Action, m.Target, cooldown, now)
	if len(recent) == 0 {
		return 0
	}
	latest := recent[len(recent)-1]
	return latest.Ended.Add(cooldown).Sub(now)
}

// circuitOpenUntil reports whether too many consecutive failures block the action of a member on its
// target, and until when.
func (h *gateHistory) circuitOpenUntil(m *gateMember, cfg GateConfig, now time.Time) (until time.Time, open bool) {
	if m.Rollback || m.ReadOnly || cfg.MaxFailures == 0 {
		return time.Time{}, false
	}
	failures := 0
	for _, ended := range slices.Backward(h.listEndedWithin(m.Action, m.Target, cfg.Window, now)) {
		if ended.Outcome == "" { // cancelled: neither a failure nor a success
			continue
		}
		if !isFailed(ended) {
			return time.Time{}, false
		}
		failures++
		if failures == cfg.MaxFailures {
			return ended.Ended.Add(cfg.Window), true
		}
	}
	return time.Time{}, false
}
