// Package sentinelconfig makes a sentinel's settings of a SentinelConfig.
//
// An object and a configuration file that say the same give the same
// sentinel.Config; what the object has no words for is at its default. Every
// error names the field that is wrong, by its path in the object, and all of
// them are reported at once. No spec makes it panic: the API server's rules
// keep most nonsense out, but an object may be older than they are.
package sentinelconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/expression"
	"github.com/fleetloop/fleetloop/internal/sentinel/listing"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Settings are what a SentinelConfig says, as the parts of a sentinel want
// it. What lies in Secrets is missing until WithSecrets has filled it in.
type Settings struct {
	// Sentinel is the engine's configuration, with all defaults.
	Sentinel sentinel.Config

	// Broker is where events go.
	Broker Broker

	// Sharding is the division beyond labels; the zero value is none.
	Sharding Sharding

	token       v1alpha1.SecretKeyRef // of the API; no name: none
	credentials string                // name of the broker's Secret; empty: none
}

// Broker is where events go, and who we are there. What the type of broker
// has no use for is empty.
type Broker struct {
	Type  v1alpha1.BrokerType
	Topic string

	// ProjectID is the project of Pub/Sub.
	ProjectID string

	// Exchange is RabbitMQ's; it is the topic unless the spec names another.
	Exchange string

	// URL is the address of RabbitMQ or NATS, with the credentials in it.
	URL settings.Secret

	// KeyJSON is the key of a service account for Pub/Sub. Empty leaves the
	// credentials to the environment.
	KeyJSON settings.Secret
}

// Sharding is how resources are divided among sentinels beyond labels.
type Sharding struct {
	// Mode is how the parts are given out; empty means that all is ours.
	Mode v1alpha1.ShardingMode

	// Count is how many parts there are in mode static, and Index which of
	// them is ours, from 0.
	Count, Index int
}

// Translate makes settings of a spec. The error joins one for each thing that
// is wrong, each with the path of its field.
func Translate(spec *v1alpha1.SentinelConfigSpec) (Settings, error) {
	t := &translation{}
	s := Settings{Sentinel: sentinel.Config{
		ResourceType:   spec.ResourceType,
		PollInterval:   t.duration("spec.pollInterval", string(spec.PollInterval)),
		MaxAgeNotReady: t.duration("spec.backoffNotReady", string(spec.BackoffNotReady)),
		MaxAgeReady:    t.duration("spec.backoffReady", string(spec.BackoffReady)),
		HyperfleetAPI: sentinel.API{
			Endpoint: t.endpoint(spec.HyperfleetAPI.URL),
			Timeout:  t.duration("spec.hyperfleetAPI.timeout", string(spec.HyperfleetAPI.Timeout)),
			Flavour:  listing.Flavour(spec.HyperfleetAPI.Flavour),
		},
		MessageData: t.messageData(spec.MessageData),
		PayloadKeys: string(payload.CamelCase),
		Decision:    decision(spec.Decision),
	}}
	cfg := &s.Sentinel
	if spec.ShardSelector != nil {
		cfg.ResourceSelector = t.matchLabels(spec.ShardSelector.MatchLabels)
		cfg.LabelSelector = t.matchExpressions(spec.ShardSelector.MatchExpressions)
	}
	if spec.Source != nil {
		cfg.Source.Mode = sentinel.Mode(spec.Source.Mode)
		cfg.Source.FullSweepInterval = t.duration("spec.source.fullSweepInterval", string(spec.Source.FullSweepInterval))
	}
	s.Broker = t.broker(&spec.Broker)
	s.Sharding = t.sharding(spec.Sharding)
	if ref := spec.Broker.CredentialsSecretRef; ref != nil {
		s.credentials = ref.Name
		t.named("spec.broker.credentialsSecretRef.name", ref.Name)
	}
	if ref := spec.HyperfleetAPI.TokenSecretRef; ref != nil {
		s.token = v1alpha1.SecretKeyRef{Name: ref.Name, Key: cmp.Or(ref.Key, defaultTokenKey)}
		t.named("spec.hyperfleetAPI.tokenSecretRef.name", ref.Name)
	}
	t.check(cfg)
	if err := errors.Join(t.errs...); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// A translation collects what is wrong with a spec.
type translation struct{ errs []error }

func (t *translation) failf(field, format string, args ...any) {
	t.errs = append(t.errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
}

// duration reads a duration; one that is not given is zero.
func (t *translation) duration(field, text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		t.failf(field, "%q is not a duration such as 10s or 1h30m", text)
		return 0
	case d <= 0:
		t.failf(field, "%q is not positive", text)
		return 0
	}
	return d
}

func (t *translation) endpoint(text string) string {
	const field = "spec.hyperfleetAPI.url"
	u, err := url.Parse(text)
	switch {
	case text == "":
		t.failf(field, "is required")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		t.failf(field, "want a URL such as http://hyperfleet-api:8080") // not shown, it may hold a password
	case u.User != nil:
		t.failf(field, "holds a user name or a password; put a token into a Secret and name it in spec.hyperfleetAPI.tokenSecretRef")
	}
	return text
}

func (t *translation) named(field, name string) {
	if name == "" {
		t.failf(field, "is required")
	}
}

func (t *translation) matchLabels(labels map[string]string) []selector.Pair {
	var pairs []selector.Pair
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		pair := selector.Pair{Label: label, Value: labels[label]}
		if _, err := selector.FromPairs([]selector.Pair{pair}); err != nil {
			t.failf("spec.shardSelector.matchLabels", "%w", err)
			continue
		}
		pairs = append(pairs, pair)
	}
	return pairs
}

// matchExpressions gives the expressions as the text of a selector.
func (t *translation) matchExpressions(list []v1alpha1.LabelExpression) string {
	var reqs []selector.Requirement
	for i, e := range list {
		field := fmt.Sprintf("spec.shardSelector.matchExpressions[%d]", i)
		op, ok := map[string]selector.Op{
			"In": selector.In, "NotIn": selector.NotIn, "Exists": selector.Exists, "DoesNotExist": selector.NotExists,
		}[e.Operator]
		if !ok {
			t.failf(field+".operator", "%q is not an operator; use In, NotIn, Exists or DoesNotExist", e.Operator)
			continue
		}
		r := selector.Requirement{Key: e.Key, Op: op, Values: e.Values}
		if _, err := selector.New(r); err != nil {
			t.failf(field, "%w", err)
			continue
		}
		reqs = append(reqs, r)
	}
	sel, err := selector.New(reqs...)
	if err != nil {
		t.failf("spec.shardSelector.matchExpressions", "%w", err)
	}
	return sel.String()
}

func decision(d *v1alpha1.Decision) sentinel.Decision {
	out := sentinel.Decision{Profile: sentinel.ProfileTransitionAge}
	if d == nil {
		return out
	}
	out.Profile = cmp.Or(d.Profile, out.Profile)
	out.Result = d.Result
	for _, p := range d.Params {
		out.Params = append(out.Params, expression.Param{Name: p.Name, Expr: p.Expr})
	}
	return out
}

func (t *translation) sharding(s *v1alpha1.Sharding) Sharding {
	if s == nil {
		return Sharding{}
	}
	const field = "spec.sharding"
	switch mode := cmp.Or(s.Mode, v1alpha1.ShardingStatic); mode {
	case v1alpha1.ShardingAuto:
		if s.Count != nil || s.Index != nil {
			t.failf(field, "mode auto takes neither count nor index: the replicas find each other")
		}
		return Sharding{Mode: mode}
	case v1alpha1.ShardingStatic:
		switch {
		case s.Count == nil || s.Index == nil:
			t.failf(field, "mode static needs count and index")
		case *s.Count < 1:
			t.failf(field+".count", "%d is less than 1", *s.Count)
		case *s.Index < 0 || *s.Index >= *s.Count:
			t.failf(field+".index", "%d is not one of 0 to %d", *s.Index, *s.Count-1)
		default:
			return Sharding{Mode: mode, Count: int(*s.Count), Index: int(*s.Index)}
		}
	default:
		t.failf(field+".mode", "%q is not a mode; use static or auto", s.Mode)
	}
	return Sharding{}
}

// check fills in the defaults that a configuration file would have, and finds
// what only compiling shows.
func (t *translation) check(cfg *sentinel.Config) {
	if len(t.errs) > 0 {
		return // it would be said again in the file's words
	}
	if _, err := settings.Load(cfg, settings.Source{}); err != nil {
		t.errs = append(t.errs, err)
		return
	}
	_, errSelector := cfg.Selector()
	_, errDecider := cfg.Decider()
	_, errPayload := payload.New(cfg.MessageData, payload.Keys(cfg.PayloadKeys))
	for _, err := range []error{errSelector, errDecider, errPayload} {
		if err := Locate(err); err != nil {
			t.errs = append(t.errs, err)
		}
	}
}
