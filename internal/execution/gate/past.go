package gate

import (
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// historyWindow is what policies are told about.
const historyWindow = time.Hour

// A history is the executions that are over, as long as they matter, in the
// order in which they ended.
type history struct {
	keep time.Duration
	all  []Past
	of   map[pastKey][]Past
}

type pastKey struct{ action, target string }

func newHistory(keep time.Duration) history {
	return history{keep: keep, of: make(map[pastKey][]Past)}
}

// addPast remembers one. Of those without a target nobody asks.
func (h *history) addPast(e Past) {
	if e.Target == "" {
		return
	}
	key := pastKey{e.Action, e.Target}
	h.all = insertByEnd(h.all, e)
	h.of[key] = insertByEnd(h.of[key], e)
}

// clampEnds has all have ended by now. What ended later did so by a clock that is
// ahead: it must not keep its target from others until then.
func (h *history) clampEnds(now time.Time) {
	for _, list := range append(slices.Collect(maps.Values(h.of)), h.all) {
		for i := len(list) - 1; i >= 0 && list[i].Ended.After(now); i-- {
			list[i].Ended = now
		}
	}
}

// dropExpired lets go of those that are too old by now.
func (h *history) dropExpired(now time.Time) {
	for len(h.all) > 0 && now.Sub(h.all[0].Ended) >= h.keep {
		key := pastKey{h.all[0].Action, h.all[0].Target}
		h.all = h.all[1:]
		if h.of[key] = h.of[key][1:]; len(h.of[key]) == 0 {
			delete(h.of, key)
		}
	}
}

// insertByEnd puts one where it belongs, which is the end but for clocks that
// differ.
func insertByEnd(list []Past, e Past) []Past {
	i := len(list)
	for i > 0 && e.Ended.Before(list[i-1].Ended) {
		i--
	}
	return slices.Insert(list, i, e)
}

// endedWithin are those of an action on a target that ended within a while before now.
func (h *history) endedWithin(action, target string, within time.Duration, now time.Time) []Past {
	of := h.of[pastKey{action, target}]
	first := sort.Search(len(of), func(i int) bool { return now.Sub(of[i].Ended) < within })
	return of[first:]
}

func isFailed(e Past) bool { return e.Outcome == v1alpha1.OutcomeFailed }
