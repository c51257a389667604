// Package decision decides whether a resource is due for a cloud event, and why.
//
// A Profile is an ordered list of pure rules: a resource and the time go in, a Verdict comes out,
// and the first rule that matches decides. An ExpressionProfile decides by the user's own rules,
// CEL expressions over the whole resource, which ParseObject parses. The package keeps no state.
// The caller passes the last event to Verdict.DelayRepeat. DeriveEventID names the event, so that a
// repeated attempt has the same id. Every resource, however broken, gets a verdict; one that an
// expression could not decide has the error in Verdict.Err.
package decision

import "time"

// MaxClockSkew is how far a time of the API may be ahead of the local clock and still be accepted.
const MaxClockSkew = time.Minute

// phaseReady is the only phase that counts as ready. The comparison is case-sensitive.
const phaseReady = "Ready"

// A Resource holds the fields that the rules use. Its id and its labels do not affect the decision
// and are not included. A zero time is one that the API did not return.
type Resource struct {
	Generation         int64
	ObservedGeneration int64
	Phase              string

	Created        time.Time
	Updated        time.Time // last change of spec or labels
	LastUpdated    time.Time // last report of the adapters
	LastTransition time.Time // last change of phase

	// FirstSeen is when the caller first read the resource. It is used only if the API returns no
	// time at all.
	FirstSeen time.Time

	// Early is the fraction of its age by which the resource falls due early, from 0 to less than
	// 1. It spreads resources that were reported on at the same time.
	Early float64

	// Raw is the resource as served, for profiles that use other fields. It is valid only until
	// Decide returns.
	Raw []byte
}

// Ready reports whether the phase of the resource is Ready.
func (r *Resource) Ready() bool { return r.Phase == phaseReady }

// A Verdict is the decision about a resource, and the reason for it.
//
// Next is when the resource falls due, or fell due if ShouldPublish is true. It is due from that
// instant on. A zero Next means always due.
type Verdict struct {
	ShouldPublish bool
	Reason        Reason
	Next          time.Time

	// Since is the time that the rule counted from; zero means none.
	Since time.Time

	// Interval is how long one event is valid in the resource's phase.
	Interval time.Duration

	// Warning is a problem that the owner of the resource should investigate.
	Warning Warning

	// Err is why a rule could not be evaluated, with ReasonExpressionFailed.
	Err error
}

// Ages holds the maximum age of the last report, by phase. A field that is not positive means that
// of DefaultAges.
type Ages struct {
	NotReady time.Duration
	Ready    time.Duration
}

// DefaultAges returns a short age for resources that are not ready, and a long one for ready
// resources.
func DefaultAges() Ages {
	return Ages{NotReady: 10 * time.Second, Ready: 30 * time.Minute}
}

// MaxAgeOf returns the age that applies to r.
func (a Ages) MaxAgeOf(r *Resource) time.Duration {
	age := a.notReady()
	if r.Ready() {
		age = positiveOrDefault(a.Ready, DefaultAges().Ready)
	}
	return age - time.Duration(r.Early*float64(age))
}

func (a Ages) notReady() time.Duration { return positiveOrDefault(a.NotReady, DefaultAges().NotReady) }

func positiveOrDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
