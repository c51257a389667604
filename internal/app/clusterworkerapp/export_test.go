package clusterworkerapp

// Move has the health port take effect.
func (c *Config) Move() { c.applyHealthPortToDefaultAddrs() }
