package sentinel

// Whoever reads the configuration makes the sentinels and knows what became of
// it; they have the series. What was configured before is what runs after a
// change that was refused.

// ConfigReloaded counts a change of the configuration that is in force now.
func (s *Sentinel) ConfigReloaded() {
	s.metrics.reloads.Inc()
	s.metrics.lastReload.Set(1)
}

// ConfigRefused notes that the last change of the configuration was not taken.
func (s *Sentinel) ConfigRefused() { s.metrics.lastReload.Set(0) }

// ConfigNotLoaded counts that the configuration could not be read.
func (s *Sentinel) ConfigNotLoaded() { s.metrics.configErrors.Inc() }
