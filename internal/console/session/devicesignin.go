package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// A Device is a sign-in of a program that has no browser (RFC 8628).
type Device struct {
	// UserCode is entered at URL. FullURL has the code in it; it may be empty.
	UserCode, URL, FullURL string

	asked *oauth2.DeviceAuthResponse
}

var (
	errCodeExpired = errors.New("the code has expired")
	errDenied      = errors.New("the sign-in was denied")
)

// RequestDeviceCode begins a sign-in with the device code flow.
func (i *Issuer) RequestDeviceCode(ctx context.Context) (device Device, err error) {
	p, err := i.discoverProviderOnce(ctx)
	if err != nil {
		return Device{}, err
	}
	if p.Endpoint().DeviceAuthURL == "" {
		return Device{}, fmt.Errorf("the issuer %q does not support the device code flow", i.cfg.URL)
	}
	asked, err := i.oauthConfig(p, "").DeviceAuth(oidc.ClientContext(ctx, i.client))
	if err != nil {
		return Device{}, fmt.Errorf("request a device code: %w", translateDeviceError(ctx, err))
	}
	return Device{UserCode: asked.UserCode, URL: asked.VerificationURI, FullURL: asked.VerificationURIComplete, asked: asked}, nil
}

// WaitForDeviceSignIn waits until the person has signed in, and returns the tokens.
func (i *Issuer) WaitForDeviceSignIn(ctx context.Context, device Device) (tokens Tokens, err error) {
	p, err := i.discoverProviderOnce(ctx)
	if err != nil {
		return Tokens{}, err
	}
	t, err := i.oauthConfig(p, "").DeviceAccessToken(oidc.ClientContext(ctx, i.client), device.asked)
	if err != nil {
		return Tokens{}, fmt.Errorf("exchange the device code: %w", translateDeviceError(ctx, err))
	}
	id, raw, err := i.extractAndVerifyIDToken(ctx, p, t)
	if err != nil {
		return Tokens{}, err
	}
	return i.selectTokens(t, id, raw), nil
}

// translateDeviceError explains why no tokens came for a device code. It drops the body of the answer, which may have a
// token.
func translateDeviceError(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return errCodeExpired
	}
	e, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case ok && e.ErrorCode == "expired_token":
		return errCodeExpired
	case ok && e.ErrorCode == "access_denied":
		return errDenied
	case ok:
		return fmt.Errorf("the issuer refused: %q", e.ErrorCode)
	}
	return err
}
