package sentinel

// inherit takes over from a predecessor what is still true, so that nothing is
// said twice and nothing is forgotten because a configuration changed.
//
// Of the same collection of the same API that is what was announced, whatever
// the rules are now: which event a broker has does not depend on why it was
// published, and by new ages an announcement holds for a shorter or a longer
// time from then on. The ids of another collection or another API stand for
// other resources, so nothing that is known by id means anything there; if that
// API was the same one by another name, what waits is announced once more,
// under the same event id.
//
// Since when resources wait for their adapters is only taken over if all that
// were watched are watched still: nobody would find out what became of others.
func (s *Sentinel) inherit(p *Sentinel) {
	if p == nil {
		return
	}
	before := p.tallies.stats()
	s.tallies.rounds, s.tallies.lastRound, s.tallies.published = before.Rounds, before.LastRound, before.Published
	s.rounds.Store(p.rounds.Load()) // the memory's claims are of these
	s.sampler = p.sampler
	if p.cfg.ResourceType != s.cfg.ResourceType || p.cfg.HyperfleetAPI.Endpoint != s.cfg.HyperfleetAPI.Endpoint {
		return
	}
	s.tallies.resources = before.Resources
	s.memory, s.record = p.memory, p.record
	s.listing.set(p.listing.err())
}
