package sentinel

import "reflect"

// inheritState takes over the state of a predecessor that is still true, so that a change of
// configuration repeats no event and forgets none.
//
// For the same collection of the same API it takes over the announcements, even if the rules have
// changed. The events that the broker has do not depend on the reason, and new ages apply to an
// announcement from now on. In another collection or API the ids mean other resources, so nothing
// known by id is taken over. If the API is the same under another name, waiting resources are
// announced once more with the same event ids.
//
// How long resources have waited for their adapters is taken over only if the selection is the
// same.
//
// The spent budget is always taken over, because it protects the receivers of events. Counters
// continue.
func (s *Sentinel) inheritState(predecessor *Sentinel) {
	if predecessor == nil {
		return
	}
	before := predecessor.counts.copyStats()
	s.counts.rounds, s.counts.lastRound, s.counts.published = before.Rounds, before.LastRound, before.Published
	s.budget = predecessor.budget
	s.reporter.sampler = predecessor.reporter.sampler

	sameCollection := predecessor.cfg.ResourceType == s.cfg.ResourceType
	sameAPI := predecessor.cfg.HyperfleetAPI.Endpoint == s.cfg.HyperfleetAPI.Endpoint
	if !sameCollection || !sameAPI {
		return
	}
	s.memory = predecessor.memory
	s.memory.SetLimitAndEvict(s.cfg.MemoryLimit)
	s.record = predecessor.record
	s.record.SetLimitAndEvict(s.cfg.DecisionsLimit)
	s.reporter.logged = predecessor.reporter.logged
	s.rounds.Store(predecessor.rounds.Load()) // the memory counts in rounds
	s.feedDisabledUntil = predecessor.feedDisabledUntil
	s.listing.store(predecessor.listing.load())

	if !haveSameSelection(s, predecessor) {
		s.memory.ResetWaitTimes()
		return
	}
	s.counts.resources, s.population = before.Resources, predecessor.population
}

// haveSameSelection reports whether two sentinels select the same resources of a collection, and
// count the same ones as waiting.
func haveSameSelection(a, b *Sentinel) bool {
	return a.selector.String() == b.selector.String() && a.part == b.part && reflect.DeepEqual(a.cfg.Decision, b.cfg.Decision)
}
