package sentinel

import "reflect"

// inheritState takes over from a predecessor what is still true, so that nothing is
// said twice, and nothing is forgotten because a configuration changed.
//
// Of the same collection of the same API that is what was announced, whatever
// the rules are now: which event a broker has does not depend on why it was
// published, and by new ages an announcement holds for a shorter or a longer
// time from then on. The ids of another collection or another API stand for
// other resources, so nothing that is known by id means anything there; if that
// API was the same one by another name, what waits is announced once more,
// under the same event id.
//
// Since when resources wait for their adapters is taken over only if the same
// ones are watched: nobody would find out what became of the others.
//
// The budget of events protects those who receive them. They may be the same
// ones in any case, so what was spent is spent. What counts goes on counting.
func (s *Sentinel) inheritState(p *Sentinel) {
	if p == nil {
		return
	}
	before := p.counts.snapshot()
	s.counts.rounds, s.counts.lastRound, s.counts.published = before.Rounds, before.LastRound, before.Published
	s.budget, s.sampler = p.budget, p.sampler
	if p.cfg.ResourceType != s.cfg.ResourceType || p.cfg.HyperfleetAPI.Endpoint != s.cfg.HyperfleetAPI.Endpoint {
		return
	}
	s.memory, s.record, s.resourceLogs = p.memory, p.record, p.resourceLogs
	s.memory.Resize(s.cfg.MemoryLimit)
	s.record.Resize(s.cfg.DecisionsLimit)
	s.rounds.Store(p.rounds.Load()) // which the memory goes by
	s.feedDisabledUntil = p.feedDisabledUntil
	s.listing.store(p.listing.load())
	if !s.selectsSameAs(p) {
		s.memory.Restart()
		return
	}
	s.counts.resources, s.population = before.Resources, p.population
}

// selectsSameAs reports whether a sentinel selects the resources that another did, of
// one collection, and counts the same of them as waiting.
func (s *Sentinel) selectsSameAs(p *Sentinel) bool {
	return s.selector.String() == p.selector.String() && s.part == p.part && reflect.DeepEqual(s.cfg.Decision, p.cfg.Decision)
}
