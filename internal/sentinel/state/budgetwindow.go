package state

import "time"

// windowSteps is the number of complete steps in a window. The current step counts in addition,
// which makes the window longer by one step, to be safe.
const windowSteps = 500

// The kinds of spent events.
const (
	spentUrgent = iota
	spentOther
	spentKinds
)

// A spendingWindow counts recent spending: within its complete steps and the current one.
type spendingWindow struct {
	step    time.Duration
	current int64 // number of the current step
	sum     [spentKinds]int
	spent   [windowSteps + 1][spentKinds]int32 // a ring of steps
}

// advanceToAndDropOld moves to the step of a time, and drops older steps.
func (w *spendingWindow) advanceToAndDropOld(sinceStart time.Duration) {
	ring := int64(len(w.spent))
	target := int64(sinceStart / w.step)
	if target-w.current > ring {
		w.current = target - ring // one turn drops all steps
	}
	for w.current < target {
		w.current++
		old := w.currentStepCounts()
		for kind := range old {
			w.sum[kind] -= int(old[kind])
			old[kind] = 0
		}
	}
}

// addSpendingTo spends the content of this window in another one. Each event counts at the end of its
// step or now, whichever is earlier.
func (w *spendingWindow) addSpendingTo(target *spendingWindow, elapsed time.Duration) {
	ring := int64(len(w.spent))
	for step := max(0, w.current-ring+1); step <= w.current; step++ {
		endOfStep := time.Duration(step+1)*w.step - 1
		target.advanceToAndDropOld(min(elapsed, endOfStep))
		for kind, events := range w.spent[step%ring] {
			target.currentStepCounts()[kind] += events
			target.sum[kind] += int(events)
		}
	}
}

func (w *spendingWindow) countSpentEvent(kind int) {
	w.currentStepCounts()[kind]++
	w.sum[kind]++
}

func (w *spendingWindow) currentStepCounts() *[spentKinds]int32 {
	return &w.spent[w.current%int64(len(w.spent))]
}
