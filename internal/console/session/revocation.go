package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// ErrNoRevocation means that the issuer does not offer to revoke tokens.
var ErrNoRevocation = errors.New("the issuer offers no revocation of tokens")

// RevokeRefreshToken ends the validity of a refresh token, and of the tokens that come from it, as RFC 7009 says.
func (i *Issuer) RevokeRefreshToken(ctx context.Context, refreshToken string) error {
	p, err := i.discoverProviderOnce(ctx)
	if err != nil {
		return err
	}
	var document struct {
		Revocation string `json:"revocation_endpoint"`
	}
	if err := p.Claims(&document); err != nil {
		return fmt.Errorf("discover issuer %q: %w", i.cfg.URL, err)
	}
	switch {
	case document.Revocation == "":
		return ErrNoRevocation
	case strings.HasPrefix(i.cfg.URL, "https://") && !strings.HasPrefix(document.Revocation, "https://"):
		return errors.New("revoke the refresh token: the issuer offers it without TLS")
	}
	form := url.Values{"token": {refreshToken}, "token_type_hint": {"refresh_token"}}
	secret := i.cfg.ClientSecret.Reveal()
	if secret == "" {
		form.Set("client_id", i.cfg.ClientID)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, document.Revocation, strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("revoke the refresh token: %w", err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if secret != "" {
		r.SetBasicAuth(url.QueryEscape(i.cfg.ClientID), url.QueryEscape(secret))
	}
	client := *i.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token goes nowhere else
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("revoke the refresh token: %w", err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK { // also for a token that is not valid any more
		return fmt.Errorf("revoke the refresh token: the issuer answered %s", resp.Status)
	}
	return nil
}
