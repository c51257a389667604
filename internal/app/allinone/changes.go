package allinone

import (
	"cmp"
	"net"
	"slices"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/changes"
)

// timelineSink is what the timeline of this process's own fleet API is called
// among the sinks.
const timelineSink = "timeline"

// localSource is the source of change events that name no component of their own.
const localSource = "fleetloop/fleetloop"

// localCluster is what sinks call the place of a change that names no cluster.
const localCluster = "local"

// sinksConfig are those that are told what the parts of this process do: the timeline
// of its fleet API, which answers at addr, and those that are configured.
func (c Config) sinksConfig(addr string) changes.Config {
	cfg := c.Changes
	if !cfg.Enabled {
		cfg = changes.Config{Enabled: true, ShutdownTimeout: c.Changes.ShutdownTimeout, Product: c.Changes.Product}
	}
	cfg.ClusterName = cmp.Or(cfg.ClusterName, localCluster)
	own := changes.SinkConfig{Name: timelineSink, Target: changes.Target{Endpoint: "http://" + addr + v1.ChangesPath, AllowHTTP: true}}
	if host, _, err := net.SplitHostPort(addr); err == nil {
		own.AllowAddresses = []string{host} // it may listen on a private one
	}
	cfg.Sinks = append(slices.Clone(cfg.Sinks), own)
	return cfg
}
