// Package issuer signs people in to the console with an OpenID Connect issuer.
//
// It uses the authorization code flow with PKCE. An issuer that is not reachable does not keep the
// console from starting: it is discovered at the first sign-in.
package issuer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Config selects the issuer.
type Config struct {
	URL          string          `key:"url" env:"CONSOLE_OIDC_ISSUER" flag:"oidc-issuer" validate:"omitempty,url" doc:"URL of the OpenID Connect issuer. Required for the sign-in oidc."`
	ClientID     string          `key:"client_id" env:"CONSOLE_OIDC_CLIENT_ID" flag:"oidc-client-id" doc:"Client ID of the console at the issuer. Its redirect URL is the public URL and console/callback."`
	ClientSecret settings.Secret `key:"client_secret" env:"CONSOLE_OIDC_CLIENT_SECRET" file:"client_secret_file" secret:"true" doc:"Client secret of the console. A public client has none."`
	Scopes       []string        `key:"scopes" env:"CONSOLE_OIDC_SCOPES" default:"openid,profile,email,offline_access" doc:"Scopes to request. With offline_access the tokens are renewed while the session lasts."`
	Token        string          `key:"token" env:"CONSOLE_OIDC_TOKEN" default:"id_token" validate:"oneof=id_token access_token" doc:"Token that the fleet API and the host clusters get: id_token or access_token."`
}

const accessToken = "access_token"

// requestTimeout limits a request to the issuer.
const requestTimeout = 10 * time.Second

// An Issuer signs people in.
type Issuer struct {
	cfg    Config
	client *http.Client

	mu       sync.Mutex
	provider *oidc.Provider
}

var errIncomplete = errors.New("the sign-in oidc needs the URL of the issuer and a client ID (CONSOLE_OIDC_ISSUER, CONSOLE_OIDC_CLIENT_ID)")

// New checks the configuration. It sends no request. A nil transport is the default one.
func New(cfg Config, transport http.RoundTripper) (*Issuer, error) {
	if cfg.URL == "" || cfg.ClientID == "" {
		return nil, errIncomplete
	}
	return &Issuer{cfg: cfg, client: &http.Client{Transport: transport, Timeout: requestTimeout}}, nil
}

// discover returns the endpoints and keys of the issuer.
func (i *Issuer) discover(ctx context.Context) (*oidc.Provider, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.provider != nil {
		return i.provider, nil
	}
	// The keys outlive the request that discovered them.
	p, err := oidc.NewProvider(oidc.ClientContext(ctx, i.client), i.cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("discover issuer %q: %w", i.cfg.URL, err)
	}
	i.provider = p
	return p, nil
}

func (i *Issuer) oauth(p *oidc.Provider, redirect string) *oauth2.Config {
	return &oauth2.Config{ClientID: i.cfg.ClientID, ClientSecret: i.cfg.ClientSecret.Reveal(), Endpoint: p.Endpoint(), RedirectURL: redirect, Scopes: i.cfg.Scopes}
}

// AuthURL returns the URL at which a person signs in.
func (i *Issuer) AuthURL(ctx context.Context, redirect, state, nonce, verifier string) (string, error) {
	p, err := i.discover(ctx)
	if err != nil {
		return "", err
	}
	return i.oauth(p, redirect).AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), nil
}

// Exchange returns the tokens for a code. The nonce must be in the ID token.
func (i *Issuer) Exchange(ctx context.Context, redirect, code, nonce, verifier string) (session.Tokens, error) {
	p, err := i.discover(ctx)
	if err != nil {
		return session.Tokens{}, err
	}
	t, err := i.oauth(p, redirect).Exchange(oidc.ClientContext(ctx, i.client), code, oauth2.VerifierOption(verifier))
	if err != nil {
		return session.Tokens{}, fmt.Errorf("exchange the code: %w", explainRetrieval(err))
	}
	id, raw, err := i.verifyIDToken(ctx, p, t)
	if err != nil {
		return session.Tokens{}, err
	}
	if id.Nonce != nonce {
		return session.Tokens{}, errNonce
	}
	return i.newTokens(t, id, raw), nil
}

var (
	errNoIDToken = errors.New("the issuer sent no ID token")
	errNonce     = errors.New("the ID token belongs to another sign-in")
)

// Refresh implements session.RefreshFunc.
func (i *Issuer) Refresh(ctx context.Context, refresh string) (session.Tokens, error) {
	p, err := i.discover(ctx)
	if err != nil {
		return session.Tokens{}, err
	}
	t, err := i.oauth(p, "").TokenSource(oidc.ClientContext(ctx, i.client), &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		return session.Tokens{}, fmt.Errorf("renew tokens: %w", explainRetrieval(err))
	}
	if i.cfg.Token == accessToken {
		return i.newTokens(t, &oidc.IDToken{}, ""), nil
	}
	id, raw, err := i.verifyIDToken(ctx, p, t)
	if err != nil {
		return session.Tokens{}, errors.Join(session.ErrRefused, err)
	}
	return i.newTokens(t, id, raw), nil
}

func (i *Issuer) verifyIDToken(ctx context.Context, p *oidc.Provider, t *oauth2.Token) (id *oidc.IDToken, raw string, err error) {
	raw, ok := t.Extra("id_token").(string)
	if !ok {
		return nil, "", errNoIDToken
	}
	id, err = p.Verifier(&oidc.Config{ClientID: i.cfg.ClientID}).Verify(oidc.ClientContext(ctx, i.client), raw)
	if err != nil {
		return nil, "", fmt.Errorf("verify the ID token: %w", err)
	}
	return id, raw, nil
}

func (i *Issuer) newTokens(t *oauth2.Token, id *oidc.IDToken, raw string) session.Tokens {
	if i.cfg.Token == accessToken {
		return session.Tokens{Bearer: t.AccessToken, Refresh: t.RefreshToken, Expires: t.Expiry}
	}
	return session.Tokens{Bearer: raw, Refresh: t.RefreshToken, Expires: id.Expiry}
}

// explainRetrieval returns session.ErrRefused if a retry is useless. It drops the body of the answer,
// which may have a token.
func explainRetrieval(err error) error {
	e, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return err
	}
	if e.Response != nil && e.Response.StatusCode >= http.StatusBadRequest && e.Response.StatusCode < http.StatusInternalServerError {
		return fmt.Errorf("%w: %s", session.ErrRefused, e.ErrorCode)
	}
	return errors.New("the issuer failed")
}
