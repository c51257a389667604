package decision

import "time"

// A Profile is an ordered list of rules. The zero value is not usable; take
// GenerationThenAge or TransitionAge.
type Profile struct {
	ages  Ages
	rules []rule

	// clock is the time that the age of a resource is counted from.
	clock func(*Resource) time.Time

	// generations says whether generations play a part.
	generations bool

	ready, notReady, fresh Reason
}

// A rule decides about r, or leaves it to the next by returning false.
type rule func(p *Profile, r *Resource, now time.Time) (Verdict, bool)

// GenerationThenAge is due when the spec changed and no adapter has observed
// it yet, and else when the last report has reached its age. The change of
// phase plays no part.
func GenerationThenAge(ages Ages) *Profile {
	return &Profile{
		ages:        ages,
		rules:       []rule{specChanged, neverReported, reportedInFuture, decideByAge},
		clock:       func(r *Resource) time.Time { return r.LastUpdated },
		generations: true,
		ready:       ReasonMaxAgeReady,
		notReady:    ReasonMaxAgeNotReady,
		fresh:       ReasonMaxAgeNotExpired,
	}
}

// TransitionAge is due when the last change of phase has reached its age.
// Generations and reports play no part.
func TransitionAge(ages Ages) *Profile {
	return &Profile{
		ages:     ages,
		rules:    []rule{neverReported, reportedInFuture, decideByAge},
		clock:    func(r *Resource) time.Time { return r.LastTransition },
		ready:    ReasonBackoffExpired,
		notReady: ReasonBackoffExpired,
		fresh:    ReasonBackoffNotExpired,
	}
}

// Decide reports whether r is due at now and, if not, when it will be. The
// rules stand in priority order; the first that speaks decides.
func (p *Profile) Decide(r *Resource, now time.Time) Verdict {
	for _, speaks := range p.rules {
		if v, ok := speaks(p, r, now); ok {
			return v
		}
	}
	since := p.ageStart(r)
	age := p.ages.Of(r)
	return Verdict{Reason: p.fresh, Since: since, Next: since.Add(age), Interval: age, Warning: p.warnIfAhead(r)}
}

// specChanged speaks for a generation that no adapter has observed. It fell
// due when the spec changed. It is announced again at the age of what is not
// ready, whatever the phase still says: that word is about another spec, and
// the event may have been lost on its way.
func specChanged(p *Profile, r *Resource, now time.Time) (Verdict, bool) {
	if r.Generation <= r.ObservedGeneration {
		return Verdict{}, false
	}
	interval := p.ages.notReady()
	since, due := CountFrom(firstNonZero(r.Updated, r.LastUpdated, r.Created), interval, now)
	return Verdict{
		ShouldPublish: true,
		Reason:        ReasonGenerationChanged,
		Since:         since,
		Next:          due,
		Interval:      interval,
	}, true
}

// neverReported speaks where there is no time to count from. A resource that
// is not ready is due; one that is ready has been seen to by somebody, and
// waits until the caller knows how long it has been there (FirstSeen).
func neverReported(p *Profile, r *Resource, now time.Time) (Verdict, bool) {
	if !p.ageStart(r).IsZero() {
		return Verdict{}, false
	}
	age := p.ages.Of(r)
	if !r.Ready() {
		return Verdict{ShouldPublish: true, Reason: p.notReady, Interval: age, Warning: p.warnIfAhead(r)}, true
	}
	warning := p.warnIfAhead(r)
	if warning == WarningNone {
		warning = WarningNoTime
	}
	return Verdict{Reason: p.fresh, Next: now.Add(age), Interval: age, Warning: warning}, true
}

// reportedInFuture speaks for a time that can not be: to wait for it could be
// to wait for ever. The resource counts as due, and Hold keeps that to one
// event per interval.
func reportedInFuture(p *Profile, r *Resource, now time.Time) (Verdict, bool) {
	if !p.ageStart(r).After(now.Add(MaxClockSkew)) {
		return Verdict{}, false
	}
	return Verdict{
		ShouldPublish: true,
		Reason:        p.expiryReason(r),
		Interval:      p.ages.Of(r),
		Warning:       WarningFutureTime,
	}, true
}

// decideByAge speaks for a resource that has reached its age.
func decideByAge(p *Profile, r *Resource, now time.Time) (Verdict, bool) {
	since := p.ageStart(r)
	age := p.ages.Of(r)
	due := since.Add(age)
	if now.Before(due) {
		return Verdict{}, false
	}
	return Verdict{
		ShouldPublish: true,
		Reason:        p.expiryReason(r),
		Since:         since,
		Next:          due,
		Interval:      age,
		Warning:       p.warnIfAhead(r),
	}, true
}

// ageStart is the time that r's age is counted from; zero if there is none.
func (p *Profile) ageStart(r *Resource) time.Time {
	return firstNonZero(p.clock(r), r.Created, r.FirstSeen)
}

func (p *Profile) expiryReason(r *Resource) Reason {
	if r.Ready() {
		return p.ready
	}
	return p.notReady
}

// warnIfAhead warns of adapters that observed a generation which does not exist.
// Profiles that do not look at generations have nothing to say of it.
func (p *Profile) warnIfAhead(r *Resource) Warning {
	if p.generations && r.ObservedGeneration > r.Generation {
		return WarningObservedAhead
	}
	return WarningNone
}

// firstNonZero is the first of the times that is given.
func firstNonZero(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}
