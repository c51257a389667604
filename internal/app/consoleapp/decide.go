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
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
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
	w, cfg, err := newWatchAndConfig(config.Namespace+"/"+config.Name, config, api)
	if err != nil {
		return hosts.Decision{}, err
	}
	report, err := inspect.ExplainDecision(ctx, w, resourceID, noRecord{})
	if err != nil {
		return hosts.Decision{}, err
	}
	d := hosts.Decision{Endpoint: cfg.HyperfleetAPI.Endpoint, State: string(report.State), Message: report.Rule, Next: nonZeroTimeOrNil(report.Next)}
	if in := report.Inputs; in != nil {
		d.Inputs = &hosts.DecisionInputs{
			Generation: in.Generation, ObservedGeneration: in.ObservedGeneration, Phase: in.Phase, Ready: in.Ready,
			LastUpdated: nonZeroTimeOrNil(in.LastUpdatedTime), MaxAgeSeconds: in.MaxAgeSeconds,
		}
	}
	return d, nil
}

// newWatchAndConfig returns what a SentinelConfig watches of the console's fleet API.
func newWatchAndConfig(name string, config *v1alpha1.SentinelConfig, api watchedAPI) (*inspect.Watch, sentinel.Config, error) {
	translated, err := sentinelconfig.TranslateSpec(&config.Spec)
	if err != nil {
		return nil, sentinel.Config{}, err
	}
	cfg := translated.Sentinel
	w, err := inspect.NewWatch(name, cfg, api)
	if err != nil {
		return nil, sentinel.Config{}, err
	}
	if d := translated.Sharding; d.Mode == v1alpha1.ShardingStatic {
		if w.Part, err = shard.NewStaticPart(d.Count, d.Index); err != nil {
			return nil, sentinel.Config{}, err
		}
	}
	return w, cfg, nil
}

type watchedAPI interface {
	source.Lister
	Endpoint() string
}

func nonZeroTimeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// noRecord stands for the record of a running sentinel, which the console does not read.
type noRecord struct{}

func (noRecord) URL() string { return "" }

func (noRecord) FetchDecisions(context.Context, string) (state.RecordResponse, error) {
	return state.RecordResponse{}, nil
}
