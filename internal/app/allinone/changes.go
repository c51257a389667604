package allinone

import (
	"cmp"
	"net"
	"slices"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/changes"
)

// timelineSink is the name of the sink for the timeline of the embedded fleet API.
const timelineSink = "timeline"

// localSource is the source of change events without a component.
const localSource = "fleetloop/fleetloop"

// localCluster is the cluster name of changes without a cluster.
const localCluster = "local"

// sinksWithTimeline returns the configured sinks and the timeline of the fleet API at apiAddr.
func (c Config) sinksWithTimeline(apiAddr string) changes.Config {
	cfg := c.Changes
	if !cfg.Enabled {
		cfg = changes.Config{Enabled: true, ShutdownTimeout: c.Changes.ShutdownTimeout, Product: c.Changes.Product}
	}
	cfg.ClusterName = cmp.Or(cfg.ClusterName, localCluster)
	timeline := changes.SinkConfig{
		Name:   timelineSink,
		Target: changes.Target{Endpoint: "http://" + apiAddr + v1.ChangesPath, AllowHTTP: true},
	}
	if host, _, err := net.SplitHostPort(apiAddr); err == nil {
		timeline.AllowAddresses = []string{host} // the listener may have a private address
	}
	cfg.Sinks = append(slices.Clone(cfg.Sinks), timeline)
	return cfg
}
