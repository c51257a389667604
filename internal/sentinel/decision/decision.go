// Package decision says whether a resource is due for a cloud event, and why.
//
// A Profile is an ordered list of pure rules: a resource and the time go in, a
// Verdict comes out, the first rule that speaks decides. Nothing is remembered
// here. What was announced before is given to Verdict.Hold by whoever
// remembers it, and EventID names the event so that the same nudge has the
// same id however often it is sent. The package imports the standard library
// alone and has no failure: every resource, however broken, gets a verdict.
package decision

import "time"

// MaxClockSkew is how far ahead of our clock a time of the API may lie and
// still be believed.
const MaxClockSkew = time.Minute

// phaseReady is the only phase that counts as ready, letter for letter.
const phaseReady = "Ready"

// A Resource is what the rules look at. Its id and its labels decide nothing
// and are not here. A zero time is one that the API did not give.
type Resource struct {
	Generation         int64
	ObservedGeneration int64
	Phase              string

	Created        time.Time
	Updated        time.Time // last change of spec or labels
	LastUpdated    time.Time // last report of the adapters
	LastTransition time.Time // last change of phase

	// FirstSeen is when the caller first met the resource. It is counted from
	// only where the API gives no time at all.
	FirstSeen time.Time

	// Early is the part of its age by which the resource falls due before
	// it, from 0 to less than 1: what was reported on at one time need not fall due
	// at one time.
	Early float64

	// Raw is the resource as served, for profiles that look further. It is
	// valid only until Decide returns.
	Raw []byte
}

// Ready reports whether the resource is in the one phase that counts as ready.
func (r *Resource) Ready() bool { return r.Phase == phaseReady }

// A Verdict says what to do with a resource, and why.
//
// Next is when the resource falls due, or fell due if ShouldPublish is true:
// it is due from that instant on, not after it. A zero Next is due since ever.
type Verdict struct {
	ShouldPublish bool
	Reason        Reason
	Next          time.Time

	// Since is the time that the rule counted from, zero if there was none.
	Since time.Time

	// Interval is how long one announcement holds in the resource's phase.
	Interval time.Duration

	// Warning is what the resource's owner should look into.
	Warning Warning

	// Err is why a rule could not be evaluated, with ReasonExpressionFailed.
	Err error
}

// Ages are how old the last report may grow before a resource is due, by
// phase. A field that is not positive means that of DefaultAges.
type Ages struct {
	NotReady time.Duration
	Ready    time.Duration
}

// DefaultAges looks after what is not ready often, and after the rest now and
// then.
func DefaultAges() Ages {
	return Ages{NotReady: 10 * time.Second, Ready: 30 * time.Minute}
}

// Of is the age that holds for r.
func (a Ages) Of(r *Resource) time.Duration {
	age := a.notReady()
	if r.Ready() {
		age = orDefault(a.Ready, DefaultAges().Ready)
	}
	return age - time.Duration(r.Early*float64(age))
}

func (a Ages) notReady() time.Duration { return orDefault(a.NotReady, DefaultAges().NotReady) }

func orDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
