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

// decide applies the rules of SentinelConfigs to a resource of the console's fleet API, read with the
// token of the person.
func (f *fleet) decide(ctx context.Context, who console.Person, list []*v1alpha1.SentinelConfig, id string) ([]hosts.Decision, error) {
	client, err := f.as(who.Token)
	if err != nil {
		return nil, err
	}
	api := &oneReader{Raw: client.Raw()}
	decisions := make([]hosts.Decision, len(list))
	for i, s := range list {
		d, err := decideBy(ctx, api, s, id)
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

// oneReader reads each resource once.
type oneReader struct {
	*fleetclient.Raw

	asked string // the path and query of the last request
	body  []byte
	err   error
}

// ListPage implements source.Lister.
func (r *oneReader) ListPage(ctx context.Context, path string, q url.Values, _ []byte) ([]byte, error) {
	if asked := path + "?" + q.Encode(); asked != r.asked {
		r.asked = asked
		r.body, r.err = r.Raw.ListPage(ctx, path, q, nil)
	}
	return r.body, r.err
}

// decideBy applies the rules of a SentinelConfig.
func decideBy(ctx context.Context, api *oneReader, s *v1alpha1.SentinelConfig, id string) (hosts.Decision, error) {
	w, cfg, err := newWatch(s.Namespace+"/"+s.Name, s, api)
	if err != nil {
		return hosts.Decision{}, err
	}
	report, err := inspect.ExplainDecision(ctx, w, id, noRecord{})
	if err != nil {
		return hosts.Decision{}, err
	}
	d := hosts.Decision{Endpoint: cfg.HyperfleetAPI.Endpoint, State: string(report.State), Message: report.Rule, Next: timeOrNil(report.Next)}
	if in := report.Inputs; in != nil {
		d.Inputs = &hosts.DecisionInputs{
			Generation: in.Generation, ObservedGeneration: in.ObservedGeneration, Phase: in.Phase, Ready: in.Ready,
			LastUpdated: timeOrNil(in.LastUpdatedTime), MaxAgeSeconds: in.MaxAgeSeconds,
		}
	}
	return d, nil
}

// newWatch returns what a SentinelConfig watches of the console's fleet API.
func newWatch(name string, s *v1alpha1.SentinelConfig, api watchedAPI) (*inspect.Watch, sentinel.Config, error) {
	translated, err := sentinelconfig.TranslateSpec(&s.Spec)
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

func timeOrNil(t time.Time) *time.Time {
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
