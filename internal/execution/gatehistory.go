package execution

import (
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// historyWindow is the period of past executions that policies see.
const historyWindow = time.Hour

// A gateHistory holds ended executions while they are relevant, ordered by end.
type gateHistory struct {
	keep time.Duration
	all  []PastExecution
	of   map[pastKey][]PastExecution
}

type pastKey struct{ action, target string }

func newGateHistory(keep time.Duration) gateHistory {
	return gateHistory{keep: keep, of: make(map[pastKey][]PastExecution)}
}

// addPast adds an ended execution. It ignores those without a target, which no lookup asks for.
func (h *gateHistory) addPast(e PastExecution) {
	if e.Target == "" {
		return
	}
	key := pastKey{e.Action, e.Target}
	h.all = insertByEnd(h.all, e)
	h.of[key] = insertByEnd(h.of[key], e)
}

// clampFutureEnds limits all ends to now. A later end comes from a clock that runs ahead, and must not
// block its target until then.
func (h *gateHistory) clampFutureEnds(now time.Time) {
	for _, list := range append(slices.Collect(maps.Values(h.of)), h.all) {
		for i := len(list) - 1; i >= 0 && list[i].Ended.After(now); i-- {
			list[i].Ended = now
		}
	}
}

// dropExpired removes executions older than the retention.
func (h *gateHistory) dropExpired(now time.Time) {
	for len(h.all) > 0 && now.Sub(h.all[0].Ended) >= h.keep {
		key := pastKey{h.all[0].Action, h.all[0].Target}
		h.all = h.all[1:]
		if h.of[key] = h.of[key][1:]; len(h.of[key]) == 0 {
			delete(h.of, key)
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
	of := h.of[pastKey{action, target}]
	first := sort.Search(len(of), func(i int) bool { return now.Sub(of[i].Ended) < within })
	return of[first:]
}

func isFailed(e PastExecution) bool { return e.Outcome == v1alpha1.OutcomeFailed }

// cooldownLeft returns the rest of the cooldown on the target of a member.
func (h *gateHistory) cooldownLeft(m *gateMember, cooldown time.Duration, now time.Time) time.Duration {
	if m.Rollback || m.ReadOnly || m.Target == "" {
		return 0
	}
	lately := h.listEndedWithin(m.Action, m.Target, cooldown, now)
	if len(lately) == 0 {
		return 0
	}
	return lately[len(lately)-1].Ended.Add(cooldown).Sub(now)
}

// circuitState reports whether too many failures block an action on a target, and until when.
func (h *gateHistory) circuitState(m *gateMember, cfg GateConfig, now time.Time) (openUntil time.Time, open bool) {
	if m.Rollback || m.ReadOnly || cfg.MaxFailures == 0 {
		return openUntil, false
	}
	failures := 0
	for _, e := range slices.Backward(h.listEndedWithin(m.Action, m.Target, cfg.Window, now)) {
		switch {
		case e.Outcome == "": // cancelled: neither a failure nor a success
			continue
		case !isFailed(e):
			return openUntil, false
		}
		if failures++; failures == cfg.MaxFailures {
			return e.Ended.Add(cfg.Window), true
		}
	}
	return openUntil, false
}
