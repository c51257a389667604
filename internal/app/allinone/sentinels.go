package allinone

import (
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// noteFunc receives each published event.
type noteFunc func(id, reason string, at time.Time)

// newSentinels builds one sentinel for clusters and one for node pools. Each has a check whether it makes
// progress.
func newSentinels(
	p *process.Process, cfg SentinelConfig, b *sentinelapp.Broker, api *fleetclient.Client, note noteFunc,
) (parts []lifecycle.Part, liveChecks []func() error, err error) {
	decisions := map[string]*state.DecisionRecord{}
	for _, collection := range []string{v1.CollectionClusters, v1.CollectionNodePools} {
		s, err := sentinelapp.New(p, sentinel.Config{
			ResourceType:   collection,
			PollInterval:   cfg.PollInterval,
			MaxAgeNotReady: cfg.MaxAgeNotReady,
			MaxAgeReady:    cfg.MaxAgeReady,
			Decision:       sentinel.Decision{Profile: sentinel.ProfileGenerationThenAge},
		}, api.Raw(), b, func(e sentinel.Published) { note(e.ResourceID, e.Reason, e.At) })
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, lifecycle.Part{Name: "sentinel " + collection, Run: s.Run, Ready: s.Ready})
		liveChecks = append(liveChecks, s.Live)
		decisions[s.DescribeWatch()] = s.Decisions()
	}
	p.HandleOnMetricsServer(sentinelapp.DecisionsPath, state.NewRecordHandler(decisions))
	return parts, liveChecks, nil
}
