package budget

import "time"

// steps is the number of complete steps in a window. The current step counts in addition, which
// makes the window longer by one step, to be safe.
const steps = 500

const (
	urgent = iota
	other
	kinds
)

// A window counts recent spending: within its complete steps and the current one.
type window struct {
	step  time.Duration
	at    int64 // the current step
	sum   [kinds]int
	spent [steps + 1][kinds]int32
}

// advanceTo moves to the step of a time, and drops older steps.
func (w *window) advanceTo(since time.Duration) {
	to := int64(since / w.step)
	if to-w.at > int64(len(w.spent)) {
		w.at = to - int64(len(w.spent))
	}
	for w.at < to {
		w.at++
		old := w.currentSlot()
		for kind := range old {
			w.sum[kind] -= int(old[kind])
			old[kind] = 0
		}
	}
}

// replayInto spends the content of this window in another one. Each event counts at the end of its
// step or now, whichever is earlier.
func (w *window) replayInto(into *window, now time.Duration) {
	for at := max(0, w.at-int64(len(w.spent))+1); at <= w.at; at++ {
		into.advanceTo(min(now, time.Duration(at+1)*w.step-1))
		for kind, n := range w.spent[at%int64(len(w.spent))] {
			into.currentSlot()[kind] += n
			into.sum[kind] += int(n)
		}
	}
}

func (w *window) spendEvent(kind int) {
	w.currentSlot()[kind]++
	w.sum[kind]++
}

func (w *window) currentSlot() *[kinds]int32 { return &w.spent[w.at%int64(len(w.spent))] }
