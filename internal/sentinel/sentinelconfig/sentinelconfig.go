// Package sentinelconfig translates a SentinelConfig into a sentinel's settings.
//
// An object and a configuration file with the same content give the same sentinel.Config; settings
// without a field in the object have their defaults. Every error names the invalid field, by its
// path in the object, and all of them are reported at once. No spec causes a panic: the API
// server's rules reject most invalid specs, but an object may be older than the rules.
package sentinelconfig

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Settings holds the content of a SentinelConfig in the form that the parts of a sentinel use. The
// data of Secrets is missing until WithSecrets has added it.
type Settings struct {
	// Sentinel is the engine's configuration, with all defaults.
	Sentinel sentinel.Config

	// Broker is the destination of events.
	Broker Broker

	// Sharding is the division in addition to labels; the zero value means none.
	Sharding Sharding

	token       v1alpha1.SecretKeyRef // of the API; no name means none
	headers     string                // name of the Secret with headers for the API; empty means none
	credentials string                // name of the broker's Secret; empty means none
}

// Broker is the destination of events, with its credentials. Fields that the type of broker does
// not use are empty.
type Broker struct {
	Type  v1alpha1.BrokerType
	Topic string

	// ProjectID is the project of Pub/Sub.
	ProjectID string

	// Exchange is RabbitMQ's exchange; the default is the topic.
	Exchange string

	// URL is the address of RabbitMQ or NATS, including the credentials.
	URL settings.Secret

	// KeyJSON is the key of a service account for Pub/Sub. Empty leaves the
	// credentials to the environment.
	KeyJSON settings.Secret
}

// Sharding is the division of resources among sentinels in addition to labels.
type Sharding struct {
	// Mode is how the parts are assigned; empty means that the sentinel owns all resources.
	Mode v1alpha1.ShardingMode

	// Count is the number of parts in mode static, and Index the part of this sentinel, from 0.
	Count, Index int
}

// TranslateSpec translates a spec into settings. The error joins one error for each problem, each with
// the path of its field.
func TranslateSpec(spec *v1alpha1.SentinelConfigSpec) (Settings, error) {
	t := &translation{}
	s := Settings{
		Sentinel: t.translateToConfig(spec),
		Broker:   t.translateBroker(&spec.Broker),
		Sharding: t.translateSharding(spec.Sharding),
	}
	if ref := spec.Broker.CredentialsSecretRef; ref != nil {
		s.credentials = t.requireText("spec.broker.credentialsSecretRef.name", ref.Name)
	}
	if ref := spec.HyperfleetAPI.HeadersSecretRef; ref != nil {
		s.headers = t.requireText("spec.hyperfleetAPI.headersSecretRef.name", ref.Name)
	}
	if ref := spec.HyperfleetAPI.TokenSecretRef; ref != nil {
		s.token = v1alpha1.SecretKeyRef{
			Name: t.requireText("spec.hyperfleetAPI.tokenSecretRef.name", ref.Name),
			Key:  cmp.Or(ref.Key, defaultTokenKey),
		}
	}
	t.setDefaultsAndValidate(&s.Sentinel)
	if err := errors.Join(t.errs...); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// translateToConfig returns the engine's configuration of the spec. Missing fields are zero.
func (t *translation) translateToConfig(spec *v1alpha1.SentinelConfigSpec) sentinel.Config {
	api := spec.HyperfleetAPI
	cfg := sentinel.Config{
		ResourceType:   requireOneOf(t, "spec.resourceType", spec.ResourceType, "clusters", "nodepools"),
		PollInterval:   t.parsePositiveDuration("spec.pollInterval", spec.PollInterval),
		MaxAgeNotReady: t.parsePositiveDuration("spec.backoffNotReady", spec.BackoffNotReady),
		MaxAgeReady:    t.parsePositiveDuration("spec.backoffReady", spec.BackoffReady),
		HyperfleetAPI: sentinel.API{
			Endpoint: t.validateEndpoint(api.URL),
			Timeout:  t.parsePositiveDuration("spec.hyperfleetAPI.timeout", api.Timeout),
			Flavour: requireOneOf(t, "spec.hyperfleetAPI.flavour",
				cmp.Or(source.Flavour(api.Flavour), source.FlavourAuto),
				source.FlavourAuto, source.FlavourFleetloop, source.FlavourHyperfleet),
		},
		MessageData: t.translateMessageData(spec.MessageData),
		PayloadKeys: string(payload.CamelCase),
		Decision:    t.translateDecision(spec.Decision),
	}
	if spec.ShardSelector != nil {
		cfg.ResourceSelector = t.translateMatchLabels(spec.ShardSelector.MatchLabels)
		cfg.LabelSelector = t.translateMatchExpressions(spec.ShardSelector.MatchExpressions)
	}
	if spec.Source != nil {
		cfg.Source.Mode = requireOneOf(t, "spec.source.mode",
			cmp.Or(sentinel.Mode(spec.Source.Mode), sentinel.ModeAuto),
			sentinel.ModeAuto, sentinel.ModeSweep, sentinel.ModeETag, sentinel.ModeCursor, sentinel.ModeWatch)
		cfg.Source.FullSweepInterval = t.parsePositiveDuration(
			"spec.source.fullSweepInterval", spec.Source.FullSweepInterval)
	}
	return cfg
}

// A translation collects the errors of a spec.
type translation struct{ errs []error }

func (t *translation) addFieldErrorf(field, format string, args ...any) {
	t.errs = append(t.errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
}

// parsePositiveDuration parses a duration; a missing one is zero.
func (t *translation) parsePositiveDuration(field string, text v1alpha1.Duration) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		t.addFieldErrorf(field, "%q is invalid: must be a duration such as 10s or 1h30m", text)
		return 0
	case d <= 0:
		t.addFieldErrorf(field, "%q is invalid: must be positive", text)
		return 0
	}
	return d
}

func (t *translation) validateEndpoint(endpoint string) (unchanged string) {
	const field = "spec.hyperfleetAPI.url"
	u, err := url.Parse(endpoint)
	isHTTP := err == nil && (u.Scheme == "http" || u.Scheme == "https")
	switch {
	case endpoint == "":
		t.addFieldErrorf(field, "is required")
	case !isHTTP || u.Hostname() == "":
		t.addFieldErrorf(field, "must be a URL such as http://hyperfleet-api:8080") // not shown, it may hold a password
	case u.User != nil:
		t.addFieldErrorf(field, "must not contain a user name or password; "+
			"put a token in a Secret and reference it in spec.hyperfleetAPI.tokenSecretRef")
	}
	return endpoint
}

// requireText rejects a reference without a name.
func (t *translation) requireText(field, name string) string {
	if name == "" {
		t.addFieldErrorf(field, "is required")
	}
	return name
}

// requireOneOf rejects values outside a closed set.
func requireOneOf[T ~string](t *translation, field string, value T, set ...T) T {
	if !slices.Contains(set, value) {
		t.addFieldErrorf(field, "%q is invalid: must be one of %s", string(value), joinNames(set))
	}
	return value
}

// joinNames joins the members of a set.
func joinNames[T ~string](set []T) string {
	texts := make([]string, len(set))
	for i, s := range set {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

func (t *translation) translateDecision(d *v1alpha1.Decision) sentinel.Decision {
	if d == nil {
		d = &v1alpha1.Decision{}
	}
	out := sentinel.Decision{
		Profile: requireOneOf(t, "spec.decision.profile", cmp.Or(d.Profile, sentinel.ProfileTransitionAge),
			sentinel.ProfileTransitionAge, sentinel.ProfileGenerationThenAge, sentinel.ProfileExpression),
		Result: d.Result,
	}
	for i, p := range d.Params {
		t.requireText(fmt.Sprintf("spec.decision.params[%d].name", i), p.Name)
		t.requireText(fmt.Sprintf("spec.decision.params[%d].expr", i), p.Expr)
		out.Params = append(out.Params, decision.ExpressionParam{Name: p.Name, Expr: p.Expr})
	}
	return out
}

// setDefaultsAndValidate sets the defaults of a configuration file, and finds the errors that only
// compiling shows.
func (t *translation) setDefaultsAndValidate(cfg *sentinel.Config) {
	if len(t.errs) > 0 {
		return // New would report it again in the file's terms
	}
	if _, err := settings.Load(cfg, settings.Source{}); err != nil {
		t.errs = append(t.errs, err)
		return
	}
	mode := cfg.Source.Mode
	readsAll := mode == sentinel.ModeAuto || mode == sentinel.ModeSweep
	if cfg.Decision.Profile == sentinel.ProfileExpression && !readsAll {
		t.addFieldErrorf("spec.source.mode",
			"%q is invalid with the profile %q, which must evaluate every resource in every poll; use %q",
			mode, sentinel.ProfileExpression, sentinel.ModeAuto)
	}
	_, errSelector := cfg.BuildLabelSelector()
	_, errDecider := cfg.NewDecider()
	_, errPayload := payload.New(cfg.MessageData, payload.Keys(cfg.PayloadKeys))
	for _, err := range []error{errSelector, errDecider, errPayload} {
		if err := TranslateKeyErrors(err); err != nil {
			t.errs = append(t.errs, err)
		}
	}
}
