package session

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// IssuerConfig selects the issuer.
type IssuerConfig struct {
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
	cfg    IssuerConfig
	client *http.Client

	discovery singleflight.Group
	provider  atomic.Pointer[oidc.Provider] // nil until the issuer is discovered
}

var errIncomplete = errors.New("the sign-in oidc needs the URL of the issuer and a client ID (CONSOLE_OIDC_ISSUER, CONSOLE_OIDC_CLIENT_ID)")

// NewIssuer checks the configuration. It sends no request. A nil transport is the default one.
func NewIssuer(cfg IssuerConfig, transport http.RoundTripper) (*Issuer, error) {
	if cfg.URL == "" || cfg.ClientID == "" {
		return nil, errIncomplete
	}
	if transport == nil {
		transport = httpserver.NewTransport()
	}
	return &Issuer{cfg: cfg, client: &http.Client{Transport: transport, Timeout: requestTimeout}}, nil
}

// discoverProviderOnce returns the endpoints and keys of the issuer. Requests at the same time share one discovery, which
// requestTimeout limits.
func (i *Issuer) discoverProviderOnce(ctx context.Context) (*oidc.Provider, error) {
	if p := i.provider.Load(); p != nil {
		return p, nil
	}
	discovered := i.discovery.DoChan("", func() (any, error) {
		// The keys outlive the request that discovered them.
		p, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), i.client), i.cfg.URL)
		if err != nil {
			return nil, fmt.Errorf("discover issuer %q: %w", i.cfg.URL, err)
		}
		i.provider.Store(p)
		return p, nil
	})
	select {
	case result := <-discovered:
		p, _ := result.Val.(*oidc.Provider)
		return p, result.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("discover issuer %q: %w", i.cfg.URL, context.Cause(ctx))
	}
}

func (i *Issuer) oauthConfig(provider *oidc.Provider, redirectURL string) *oauth2.Config {
	return &oauth2.Config{
		ClientID:     i.cfg.ClientID,
		ClientSecret: i.cfg.ClientSecret.Reveal(),
		Endpoint:     provider.Endpoint(),
		RedirectURL:  redirectURL,
		Scopes:       i.cfg.Scopes,
	}
}

// BuildAuthURL returns the URL at which a person signs in.
func (i *Issuer) BuildAuthURL(ctx context.Context, redirectURL, state, nonce, pkceVerifier string) (authURL string, err error) {
	p, err := i.discoverProviderOnce(ctx)
	if err != nil {
		return "", err
	}
	return i.oauthConfig(p, redirectURL).AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(pkceVerifier)), nil
}

// ExchangeCode returns the tokens for a code. The nonce must be in the ID token.
func (i *Issuer) ExchangeCode(ctx context.Context, redirectURL, code, nonce, pkceVerifier string) (tokens Tokens, err error) {
	p, err := i.discoverProviderOnce(ctx)
	if err != nil {
		return Tokens{}, err
	}
	t, err := i.oauthConfig(p, redirectURL).Exchange(oidc.ClientContext(ctx, i.client), code, oauth2.VerifierOption(pkceVerifier))
	if err != nil {
		return Tokens{}, fmt.Errorf("exchange the code: %w", translateTokenError(err))
	}
	id, raw, err := i.extractAndVerifyIDToken(ctx, p, t)
	if err != nil {
		return Tokens{}, err
	}
	if id.Nonce != nonce {
		return Tokens{}, errNonce
	}
	return i.selectTokens(t, id, raw), nil
}

var errNonce = errors.New("the ID token belongs to another sign-in")

// RefreshTokens implements RefreshFunc.
func (i *Issuer) RefreshTokens(ctx context.Context, refreshToken string) (tokens Tokens, err error) {
	p, err := i.discoverProviderOnce(ctx)
	if err != nil {
		return Tokens{}, err
	}
	t, err := i.oauthConfig(p, "").TokenSource(oidc.ClientContext(ctx, i.client), &oauth2.Token{RefreshToken: refreshToken}).Token()
	if err != nil {
		return Tokens{}, fmt.Errorf("renew tokens: %w", translateTokenError(err))
	}
	if i.cfg.Token == accessToken {
		return i.selectTokens(t, &oidc.IDToken{}, ""), nil
	}
	id, raw, err := i.extractAndVerifyIDToken(ctx, p, t)
	if err != nil {
		return Tokens{Refresh: t.RefreshToken}, err
	}
	return i.selectTokens(t, id, raw), nil
}

func (i *Issuer) extractAndVerifyIDToken(
	ctx context.Context, provider *oidc.Provider, token *oauth2.Token,
) (idToken *oidc.IDToken, rawIDToken string, err error) {
	rawIDToken, ok := token.Extra("id_token").(string)
	if !ok {
		return nil, "", ErrNoIDToken
	}
	idToken, err = provider.Verifier(&oidc.Config{ClientID: i.cfg.ClientID}).Verify(oidc.ClientContext(ctx, i.client), rawIDToken)
	if err != nil {
		isKeyFetchError := ctx.Err() != nil || strings.Contains(err.Error(), "fetching keys") // as go-oidc says it
		if !isKeyFetchError {
			err = errors.Join(ErrIDTokenUnverified, err)
		}
		return nil, "", fmt.Errorf("verify the ID token: %w", err)
	}
	return idToken, rawIDToken, nil
}

func (i *Issuer) selectTokens(token *oauth2.Token, idToken *oidc.IDToken, rawIDToken string) Tokens {
	if i.cfg.Token == accessToken {
		return Tokens{Bearer: token.AccessToken, Refresh: token.RefreshToken, Expires: token.Expiry}
	}
	return Tokens{Bearer: rawIDToken, Refresh: token.RefreshToken, Expires: idToken.Expiry}
}

// translateTokenError returns ErrRefused if a retry is useless. It drops the body of the answer,
// which may have a token.
func translateTokenError(err error) error {
	e, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return err
	}
	isClientError := e.Response != nil && e.Response.StatusCode >= http.StatusBadRequest &&
		e.Response.StatusCode < http.StatusInternalServerError
	if isClientError {
		return fmt.Errorf("%w: %s", ErrRefused, e.ErrorCode)
	}
	return errors.New("the issuer failed")
}
