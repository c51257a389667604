package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	consolesession "github.com/fleetloop/fleetloop/internal/console/session"
)

const (
	// renewBefore is how long before its expiry a token is renewed, for the way to the server and for
	// clocks that differ.
	renewBefore = 30 * time.Second
	// renewTimeout limits a renewal, with the wait for another process that renews the same token.
	renewTimeout = 30 * time.Second
)

// errLoginExpired means that the person has to log in again.
var errLoginExpired = errors.New("the login has expired")

// A renewFunc gets new tokens of a login from its issuer.
type renewFunc func(ctx context.Context, l storedLogin) (consolesession.Tokens, error)

// A loginTokenSource is the client.TokenSource of one login.
//
// It renews a token that expires. Only one process renews it at a time, because issuers accept a refresh token
// once; the others use the result.
type loginTokenSource struct {
	store loginStore
	renew renewFunc
	now   func() time.Time

	mu    sync.Mutex
	login storedLogin
}

func newLoginTokenSource(store loginStore, l storedLogin, renew renewFunc, now func() time.Time) *loginTokenSource {
	return &loginTokenSource{store: store, login: l, renew: renew, now: now}
}

func (s *loginTokenSource) Token(ctx context.Context, rejected string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isUsable(s.login, rejected) {
		return s.login.Tokens.Bearer, nil
	}
	if s.login.Tokens.Refresh == "" {
		if rejected == "" {
			return "", fmt.Errorf("%w (%s)", errLoginExpired, s.login.Tokens.Expires.Format(time.RFC3339))
		}
		return rejected, nil // the server's answer says more
	}
	// An interrupt must not lose the tokens that the issuer sends in the place of those that it has taken back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTimeout)
	defer cancel()
	var renewErr error
	err := s.store.updateLogins(ctx, func(logins []storedLogin) ([]storedLogin, error) {
		n := slices.IndexFunc(logins, func(l storedLogin) bool { return l.isFor(s.login.Context, s.login.Server) })
		if n < 0 {
			return nil, errLoginExpired // another process has logged out
		}
		renewErr = s.renewUnlessUsable(ctx, &logins[n], rejected)
		s.login = logins[n]
		return logins, nil // also after an error, which may leave a new refresh token
	})
	if errors.Is(renewErr, consolesession.ErrRefused) || errors.Is(renewErr, consolesession.ErrNoIDToken) {
		renewErr = fmt.Errorf("%w: %w", errLoginExpired, renewErr)
	}
	if err = errors.Join(renewErr, err); err != nil {
		return "", err
	}
	return s.login.Tokens.Bearer, nil
}

// renewUnlessUsable renews the tokens of a login, unless another process has. An error may leave the login with the old
// bearer and a new refresh token.
func (s *loginTokenSource) renewUnlessUsable(ctx context.Context, l *storedLogin, rejected string) error {
	if s.isUsable(*l, rejected) {
		return nil
	}
	tokens, err := s.renew(ctx, *l)
	tokens.Refresh = cmp.Or(tokens.Refresh, l.Tokens.Refresh) // RFC 6749, section 6: without a new one, it remains valid
	if err != nil {
		l.Tokens.Refresh = tokens.Refresh
		return err
	}
	l.Tokens = tokens
	return nil
}

// String keeps the token out of logs.
func (s *loginTokenSource) String() string { return s.login.String() }

// GoString does the same for %#v.
func (s *loginTokenSource) GoString() string { return s.String() }

func (s *loginTokenSource) isUsable(l storedLogin, rejected string) bool {
	t := l.Tokens
	return t.Bearer != rejected && (t.Expires.IsZero() || s.now().Add(renewBefore).Before(t.Expires))
}
