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
	for i, config := range configs {
		decision, err := explainDecisionOfConfig(ctx, api, config, resourceID)
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		if err != nil { // the other sentinels may still decide
			decision = hosts.Decision{State: hosts.StateError, Message: err.Error()}
		}
		decisions[i] = decision
	}
	return decisions, nil
}

// cachingPageReader keeps the answer to the last request, because all SentinelConfigs ask for the same resource.
type cachingPageReader struct {
	*fleetclient.Raw

	lastRequest string // path and query
	body        []byte // the answer to it
	err         error
}

func (r *cachingPageReader) ListPage(ctx context.Context, path string, q url.Values, _ []byte) ([]byte, error) {
	request := path + "?" + q.Encode()
	if request != r.lastRequest {
		r.lastRequest = request
		r.body, r.err = r.Raw.ListPage(ctx, path, q, nil)
	}
	return r.body, r.err
}

// explainDecisionOfConfig applies the rules of a SentinelConfig.
func explainDecisionOfConfig(
	ctx context.Context, api *cachingPageReader, config *v1alpha1.SentinelConfig, resourceID string,
) (hosts.Decision, error) {
	watch, err := inspect.NewWatchOfSpec(config.Namespace+"/"+config.Name, &config.Spec, api)
	if err != nil {
		return hosts.Decision{}, err
	}
	report, err := inspect.ExplainDecision(ctx, watch, resourceID, inspect.NoRecord{})
	if err != nil {
		return hosts.Decision{}, err
	}
	decision := hosts.Decision{
		Endpoint: watch.ConfiguredEndpoint,
		State:    string(report.State),
		Message:  report.Rule,
		Next:     nonZeroTimeOrNil(report.Next),
	}
	if in := report.Inputs; in != nil {
		decision.Inputs = &hosts.DecisionInputs{
			Generation:         in.Generation,
			ObservedGeneration: in.ObservedGeneration,
			Phase:              in.Phase,
			Ready:              in.Ready,
			LastUpdated:        nonZeroTimeOrNil(in.LastUpdatedTime),
			MaxAgeSeconds:      in.MaxAgeSeconds,
		}
	}
	return decision, nil
}

func nonZeroTimeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
