package decision

import "time"

// A Profile is an ordered list of rules. The zero value is not usable; create one with
// NewGenerationThenAgeProfile or NewTransitionAgeProfile.
type Profile struct {
	ages  Ages
	rules []rule

	// reportTime returns the time of the report from which the age of a resource is counted.
	reportTime func(*Resource) time.Time

	usesGenerations bool

	// The reasons of the verdicts of the profile.
	readyExpired    Reason // a ready resource has reached its age
	notReadyExpired Reason // any other resource has reached its age
	notExpired      Reason
}

// A rule decides about r, or leaves the decision to the next rule by returning false.
type rule func(p *Profile, r *Resource, now time.Time) (verdict Verdict, matched bool)

// NewGenerationThenAgeProfile returns a profile that combines generations and ages. A resource is
// due if no adapter has observed its changed spec yet, and otherwise when the last report has
// reached its age. The profile ignores changes of phase.
func NewGenerationThenAgeProfile(ages Ages) *Profile {
	return &Profile{
		ages:            ages,
		rules:           []rule{decideIfSpecChanged, decideIfNeverReported, decideIfReportedInFuture, decideIfReportTooOld},
		reportTime:      func(r *Resource) time.Time { return r.LastUpdated },
		usesGenerations: true,
		readyExpired:    ReasonMaxAgeReady,
		notReadyExpired: ReasonMaxAgeNotReady,
		notExpired:      ReasonMaxAgeNotExpired,
	}
}

// NewTransitionAgeProfile returns a profile that finds a resource due when the last change of phase has
// reached its age. It ignores generations and reports.
func NewTransitionAgeProfile(ages Ages) *Profile {
	return &Profile{
		ages:            ages,
		rules:           []rule{decideIfNeverReported, decideIfReportedInFuture, decideIfReportTooOld},
		reportTime:      func(r *Resource) time.Time { return r.LastTransition },
		readyExpired:    ReasonBackoffExpired,
		notReadyExpired: ReasonBackoffExpired,
		notExpired:      ReasonBackoffNotExpired,
	}
}

// Decide reports whether r is due at now and, if not, when it will be. The rules stand in priority
// order; the first that matches decides.
func (p *Profile) Decide(r *Resource, now time.Time) Verdict {
	for _, decide := range p.rules {
		if verdict, matched := decide(p, r, now); matched {
			return verdict
		}
	}
	since := p.ageStartOf(r)
	age := p.ages.MaxAgeOf(r)
	return Verdict{
		Reason:   p.notExpired,
		Since:    since,
		Next:     since.Add(age),
		Interval: age,
		Warning:  p.warnIfObservedAhead(r),
	}
}

// decideIfSpecChanged matches a generation that no adapter has observed. The resource fell due when the
// spec changed. It is announced again at the age of resources that are not ready, whatever its
// phase is: the phase belongs to an older spec, and the event may have been lost.
func decideIfSpecChanged(p *Profile, r *Resource, now time.Time) (verdict Verdict, matched bool) {
	if r.Generation <= r.ObservedGeneration {
		return Verdict{}, false
	}
	interval := p.ages.notReady()
	changed := firstNonZeroTime(r.Updated, r.LastUpdated, r.Created)
	since, due := SubtractClockSkew(changed, interval, now)
	return Verdict{
		ShouldPublish: true,
		Reason:        ReasonGenerationChanged,
		Since:         since,
		Next:          due,
		Interval:      interval,
	}, true
}

// decideIfNeverReported matches a resource without a time to count from. A resource that is not
// ready is due. A ready one has been handled before, and waits until the caller knows how long it
// has existed (FirstSeen).
func decideIfNeverReported(p *Profile, r *Resource, now time.Time) (verdict Verdict, matched bool) {
	if !p.ageStartOf(r).IsZero() {
		return Verdict{}, false
	}
	age := p.ages.MaxAgeOf(r)
	warning := p.warnIfObservedAhead(r)
	if !r.Ready() {
		return Verdict{ShouldPublish: true, Reason: p.notReadyExpired, Interval: age, Warning: warning}, true
	}
	if warning == WarningNone {
		warning = WarningNoTime
	}
	return Verdict{Reason: p.notExpired, Next: now.Add(age), Interval: age, Warning: warning}, true
}

// decideIfReportedInFuture matches an impossible time, for which the sentinel could wait forever. The
// resource counts as due, and DelayRepeat limits that to one event per interval.
func decideIfReportedInFuture(p *Profile, r *Resource, now time.Time) (verdict Verdict, matched bool) {
	if !p.ageStartOf(r).After(now.Add(MaxClockSkew)) {
		return Verdict{}, false
	}
	return Verdict{
		ShouldPublish: true,
		Reason:        p.ageExpiredReason(r),
		Interval:      p.ages.MaxAgeOf(r),
		Warning:       WarningFutureTime,
	}, true
}

// decideIfReportTooOld matches a resource whose last report has reached its maximum age.
func decideIfReportTooOld(p *Profile, r *Resource, now time.Time) (verdict Verdict, matched bool) {
	since := p.ageStartOf(r)
	age := p.ages.MaxAgeOf(r)
	due := since.Add(age)
	if now.Before(due) {
		return Verdict{}, false
	}
	return Verdict{
		ShouldPublish: true,
		Reason:        p.ageExpiredReason(r),
		Since:         since,
		Next:          due,
		Interval:      age,
		Warning:       p.warnIfObservedAhead(r),
	}, true
}

// ageStartOf returns the time from which r's age is counted; zero means none.
func (p *Profile) ageStartOf(r *Resource) time.Time {
	return firstNonZeroTime(p.reportTime(r), r.Created, r.FirstSeen)
}

func (p *Profile) ageExpiredReason(r *Resource) Reason {
	if r.Ready() {
		return p.readyExpired
	}
	return p.notReadyExpired
}

// warnIfObservedAhead warns of adapters that observed a generation which does not exist. Profiles that
// ignore generations do not warn.
func (p *Profile) warnIfObservedAhead(r *Resource) Warning {
	if p.usesGenerations && r.ObservedGeneration > r.Generation {
		return WarningObservedAhead
	}
	return WarningNone
}

// firstNonZeroTime returns the first time that is not zero.
func firstNonZeroTime(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}
