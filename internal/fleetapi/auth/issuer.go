package auth

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"github.com/fleetloop/fleetloop/internal/httpserver"
)

const (
	fetchTimeout = 10 * time.Second
	// A token with an unknown key triggers a request for the issuer's new keys. Any client can forge such tokens.
	fetchesPerSecond = 1
	fetchBurst       = 4
)

// An issuer verifies the tokens of one OpenID Connect provider.
type issuer struct {
	cfg    Issuer
	client *http.Client
	fetch  *rateRejectingTransport

	discovering chan struct{} // holds one; its holder may set keys
	keys        atomic.Pointer[oidc.RemoteKeySet]
}

func newIssuer(cfg Issuer, client *http.Client) (*issuer, error) {
	cfg.TenantClaim = cmp.Or(cfg.TenantClaim, "tenant")
	cfg.RolesClaim = cmp.Or(cfg.RolesClaim, "roles")
	cfg.SystemRole = cmp.Or(cfg.SystemRole, string(System))
	if len(cfg.Algorithms) == 0 {
		cfg.Algorithms = []string{oidc.RS256, oidc.ES256, oidc.EdDSA}
	}
	for _, alg := range cfg.Algorithms {
		if !slices.Contains(listAsymmetricAlgorithms(), alg) {
			return nil, fmt.Errorf("unknown algorithm %q; use one of %s", alg, strings.Join(listAsymmetricAlgorithms(), ", "))
		}
	}
	if cfg.Issuer == "" || cfg.Audience == "" {
		return nil, errors.New("an issuer and an audience are required")
	}
	if client == nil {
		client = &http.Client{Timeout: fetchTimeout}
	}
	f := &rateRejectingTransport{next: client.Transport, limit: rate.NewLimiter(fetchesPerSecond, fetchBurst)}
	if f.next == nil {
		f.next = httpserver.NewTransport()
	}
	own := *client
	own.Transport = f
	return &issuer{cfg: cfg, client: &own, fetch: f, discovering: make(chan struct{}, 1)}, nil
}

// listAsymmetricAlgorithms returns the algorithms whose keys an issuer can publish. A symmetric one would use a
// public key as a secret.
func listAsymmetricAlgorithms() []string {
	return []string{
		oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512,
		oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
	}
}

func (i *issuer) verifyToken(ctx context.Context, token string) (Principal, error) {
	keys, err := i.getOrDiscoverKeys(ctx)
	if err != nil {
		return Principal{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	failures := i.fetch.failures.Load()
	t, err := oidc.NewVerifier(i.cfg.Issuer, keys, &oidc.Config{
		ClientID:             i.cfg.Audience,
		SupportedSigningAlgs: i.cfg.Algorithms,
	}).Verify(ctx, token)
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return Principal{}, ErrExpired
	case err != nil && i.fetch.failures.Load() != failures:
		return Principal{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case err != nil:
		return Principal{}, fmt.Errorf("%w: %w", ErrInvalidToken, err)
	}
	return i.newPrincipalFromToken(t)
}

// getOrDiscoverKeys returns the issuer's keys. It discovers them at the first token of the issuer.
func (i *issuer) getOrDiscoverKeys(ctx context.Context) (*oidc.RemoteKeySet, error) {
	if k := i.keys.Load(); k != nil {
		return k, nil
	}
	select {
	case i.discovering <- struct{}{}:
		defer func() { <-i.discovering }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if k := i.keys.Load(); k != nil {
		return k, nil
	}
	// The keys outlive the request that discovered them.
	ctx = oidc.ClientContext(ctx, i.client)
	url := i.cfg.KeysURL
	if url == "" {
		provider, err := oidc.NewProvider(ctx, i.cfg.Issuer)
		if err != nil {
			return nil, fmt.Errorf("discover issuer %q: %w", i.cfg.Issuer, err)
		}
		var document struct {
			Keys string `json:"jwks_uri"`
		}
		if err := provider.Claims(&document); err != nil {
			return nil, fmt.Errorf("discover issuer %q: %w", i.cfg.Issuer, err)
		}
		url = document.Keys
	}
	k := oidc.NewRemoteKeySet(oidc.ClientContext(context.WithoutCancel(ctx), i.client), url)
	i.keys.Store(k)
	return k, nil
}

func (i *issuer) newPrincipalFromToken(token *oidc.IDToken) (Principal, error) {
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return Principal{}, fmt.Errorf("%w: %w", ErrInvalidToken, err)
	}
	p := Principal{Subject: token.Subject, Expires: token.Expiry}
	if !isValidSubject(p.Subject) {
		return Principal{}, fmt.Errorf("%w: its subject is missing or invalid", ErrInvalidToken)
	}
	if tenant, ok := findClaim(claims, i.cfg.TenantClaim).(string); ok && tenant != "" {
		if !httpserver.IsValidSubjectOrTenant(tenant) {
			return Principal{}, fmt.Errorf("%w: its tenant is invalid", ErrInvalidToken)
		}
		p.Tenant = tenant
	}
	given := listClaimWords(findClaim(claims, i.cfg.RolesClaim))
	for _, r := range []struct {
		called string
		role   Role
	}{{i.cfg.SystemRole, System}, {i.cfg.ViewerRole, Viewer}, {i.cfg.OperatorRole, Operator}} {
		if r.called != "" && slices.Contains(given, r.called) {
			p.Roles = append(p.Roles, r.role)
		}
	}
	return p, nil
}

// findClaim follows a dotted path into the claims. A claim whose name contains the dots, as
// namespaced ones do, takes precedence.
func findClaim(claims map[string]any, dottedPath string) any {
	if v, ok := claims[dottedPath]; ok {
		return v
	}
	head, rest, nested := strings.Cut(dottedPath, ".")
	if inner, ok := claims[head].(map[string]any); ok && nested {
		return findClaim(inner, rest)
	}
	return nil
}

// listClaimWords parses a list of texts, or one text of words separated by spaces.
func listClaimWords(claim any) []string {
	switch v := claim.(type) {
	case string:
		return strings.Fields(v)
	case []any:
		var list []string
		for _, e := range v {
			if s, ok := e.(string); ok {
				list = append(list, s)
			}
		}
		return list
	}
	return nil
}

// readUnverifiedIssuer returns the unverified issuer of a JWT, "" if the token is no JWT. It only selects
// the issuer that verifies the token.
func readUnverifiedIssuer(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

var errTooManyFetches = errors.New("the issuer's keys were requested too often; retry later")

// A rateRejectingTransport sends rate-limited requests to an issuer and counts failures.
type rateRejectingTransport struct {
	next     http.RoundTripper
	limit    *rate.Limiter
	failures atomic.Int64
}

// RoundTrip sends one request.
func (f *rateRejectingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.limit.Allow() {
		f.failures.Add(1)
		return nil, errTooManyFetches
	}
	resp, err := f.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		f.failures.Add(1)
	}
	return resp, err
}
