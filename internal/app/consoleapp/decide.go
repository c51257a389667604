package consoleapp

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/hosts"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
)

// explainDecisions applies the rules of SentinelConfigs to a resource of the fleet API. It reads
// the resource with the token of the person.
func (f *fleetAPIClient) explainDecisions(
	ctx context.Context, person console.Person, configs []*v1alpha1.SentinelConfig, resourceID string,
) ([]hosts.Decision, error) {
	client, err := f.clientWithToken(person.Token)
	if err != nil {
		return nil, err
	}
	api := &cachingPageReader{Raw: client.Raw()}
	decisions := make([]hosts.Decision, len(configs))
	for i, s := range configs {
		d, err := explainDecisionOfConfig(ctx, api, s, resourceID)
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		if err != nil {
			d = hosts.Decision{State: hosts.StateError, Message: err.Error()}
		}
		decisions[i] = d
	}
	return decisions, nil
}

// cachingPageReader reads each resource once.
type cachingPageReader struct {
	*fleetclient.Raw

	asked string // the path and query of the last request
	body  []byte
	err   error
}

// ListPage implements source.Lister.
func (r *cachingPageReader) ListPage(ctx context.Context, path string, q url.Values, _ []byte) ([]byte, error) {
	if asked := path + "?" + q.Encode(); asked != r.asked {
		r.asked = asked
		r.body, r.err = r.Raw.ListPage(ctx, path, q, nil)
	}
	return r.body, r.err
}

// explainDecisionOfConfig applies the rules of a SentinelConfig.
func explainDecisionOfConfig(
	ctx context.Context, api *cachingPageReader, config *v1alpha1.SentinelConfig, resourceID string,
) (hosts.Decision, error) {
	w, err := inspect.NewWatchOfSpec(config.Namespace+"/"+config.Name, &config.Spec, api)
	if err != nil {
		return hosts.Decision{}, err
	}
	report, err := inspect.ExplainDecision(ctx, w, resourceID, inspect.NoRecord{})
	if err != nil {
		return hosts.Decision{}, err
	}
	d := hosts.Decision{Endpoint: w.ConfiguredEndpoint, State: string(report.State), Message: report.Rule, Next: nonZeroTimeOrNil(report.Next)}
	if in := report.Inputs; in != nil {
		d.Inputs = &hosts.DecisionInputs{
			Generation: in.Generation, ObservedGeneration: in.ObservedGeneration, Phase: in.Phase, Ready: in.Ready,
			LastUpdated: nonZeroTimeOrNil(in.LastUpdatedTime), MaxAgeSeconds: in.MaxAgeSeconds,
		}
	}
	return d, nil
}

func nonZeroTimeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
