package poller

import "time"

// delays holds observations to handle later.
type delays struct {
	timer *time.Timer // runs until the first is due
	held  map[key]delayed
	next  time.Time // when the first is due; zero is never
}

type delayed struct {
	at time.Time
	s  observation
}

func newDelays() *delays { return &delays{timer: stoppedTimer(), held: map[key]delayed{}} }

// add delays an observation, which is handled later unless a newer one arrives first. It
// confirms nothing by then.
func (d *delays) add(k key, n observation, after time.Duration) {
	n.tries++
	n.waited = true
	n.asked, n.err = nil, nil
	at := time.Now().Add(after)
	d.held[k] = delayed{at: at, s: n}
	if d.next.IsZero() || at.Before(d.next) {
		d.next = at
		d.timer.Reset(after)
	}
}

// remove removes the delayed observation of a Shoot, if there is one.
func (d *delays) remove(k key) (was observation, ok bool) {
	e, ok := d.held[k]
	delete(d.held, k)
	return e.s, ok
}

// takeDue removes and returns the observations that are due.
func (d *delays) takeDue() map[key]observation {
	due, now := map[key]observation{}, time.Now()
	d.next = time.Time{}
	for k, e := range d.held {
		switch {
		case !e.at.After(now):
			due[k] = e.s
			delete(d.held, k)
		case d.next.IsZero() || e.at.Before(d.next):
			d.next = e.at
		}
	}
	if !d.next.IsZero() {
		d.timer.Reset(time.Until(d.next))
	}
	return due
}
