package poller

import "time"

// delayedObservations holds observations to handle later.
type delayedObservations struct {
	timer *time.Timer // runs until the first is due
	held  map[shootKey]delayed
	next  time.Time // when the first is due; zero is never
}

type delayed struct {
	at time.Time
	s  observation
}

func newDelayedObservations() *delayedObservations {
	return &delayedObservations{timer: newStoppedTimer(), held: map[shootKey]delayed{}}
}

// delayObservation delays an observation, which is handled later unless a newer one arrives first. It
// confirms nothing by then.
func (d *delayedObservations) delayObservation(key shootKey, observed observation, delay time.Duration) {
	observed.tries++
	observed.waited = true
	observed.asked, observed.err = nil, nil
	at := time.Now().Add(delay)
	d.held[key] = delayed{at: at, s: observed}
	if d.next.IsZero() || at.Before(d.next) {
		d.next = at
		d.timer.Reset(delay)
	}
}

// removeObservation removes the delayed observation of a Shoot, if there is one.
func (d *delayedObservations) removeObservation(key shootKey) (removed observation, found bool) {
	e, found := d.held[key]
	delete(d.held, key)
	return e.s, found
}

// takeDueObservations removes and returns the observations that are due.
func (d *delayedObservations) takeDueObservations() map[shootKey]observation {
	due, now := map[shootKey]observation{}, time.Now()
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
