package state

import "time"

// windowSteps is the number of complete steps in a window. The current step counts in addition,
// which makes the window longer by one step, to be safe.
const windowSteps = 500

const (
	spentUrgent = iota
	spentOther
	spentKinds
)

// A spendingWindow counts recent spending: within its complete steps and the current one.
type spendingWindow struct {
	step  time.Duration
	at    int64 // the current step
	sum   [spentKinds]int
	spent [windowSteps + 1][spentKinds]int32
}

// advanceToAndDropOld moves to the step of a time, and drops older steps.
func (w *spendingWindow) advanceToAndDropOld(sinceStart time.Duration) {
	to := int64(sinceStart / w.step)
	if to-w.at > int64(len(w.spent)) {
		w.at = to - int64(len(w.spent))
	}
	for w.at < to {
		w.at++
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
	for at := max(0, w.at-int64(len(w.spent))+1); at <= w.at; at++ {
		target.advanceToAndDropOld(min(elapsed, time.Duration(at+1)*w.step-1))
		for kind, n := range w.spent[at%int64(len(w.spent))] {
			target.currentStepCounts()[kind] += n
			target.sum[kind] += int(n)
		}
	}
}

func (w *spendingWindow) countSpentEvent(kind int) {
	w.currentStepCounts()[kind]++
	w.sum[kind]++
}

func (w *spendingWindow) currentStepCounts() *[spentKinds]int32 {
	return &w.spent[w.at%int64(len(w.spent))]
}
