package poller

import "time"

// delayedObservations holds observations to handle later.
type delayedObservations struct {
	timer *time.Timer // runs until the first is due
	held  map[shootKey]delayedObservation
	next  time.Time // when the first is due; zero is never
}

type delayedObservation struct {
	dueAt    time.Time
	observed observation
}

func newDelayedObservations() *delayedObservations {
	return &delayedObservations{timer: newStoppedTimer(), held: map[shootKey]delayedObservation{}}
}

// delayObservation delays an observation, which is handled later unless a newer one arrives first. It
// confirms nothing by then.
func (d *delayedObservations) delayObservation(key shootKey, observed observation, delay time.Duration) {
	observed.tries++
	observed.wasDelayed = true
	observed.readFor, observed.err = nil, nil
	dueAt := time.Now().Add(delay)
	d.held[key] = delayedObservation{dueAt, observed}
	if d.next.IsZero() || dueAt.Before(d.next) {
		d.next = dueAt
		d.timer.Reset(delay)
	}
}

// removeObservation removes the delayed observation of a Shoot, if there is one.
func (d *delayedObservations) removeObservation(key shootKey) (removed observation, found bool) {
	held, found := d.held[key]
	delete(d.held, key)
	return held.observed, found
}

// takeDueObservations removes and returns the observations that are due.
func (d *delayedObservations) takeDueObservations() map[shootKey]observation {
	now := time.Now()
	due := map[shootKey]observation{}
	d.next = time.Time{}
	for key, held := range d.held {
		if !held.dueAt.After(now) {
			due[key] = held.observed
			delete(d.held, key)
			continue
		}
		if d.next.IsZero() || held.dueAt.Before(d.next) {
			d.next = held.dueAt
		}
	}
	if !d.next.IsZero() {
		d.timer.Reset(time.Until(d.next))
	}
	return due
}
