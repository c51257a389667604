package credentials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/console/session"
)

const (
	// renewBefore is how long before its expiry a token is renewed, for the way to the server and for
	// clocks that differ.
	renewBefore = 30 * time.Second
	// renewTimeout limits a renewal, with the wait for another process that renews the same token.
	renewTimeout = 30 * time.Second
)

// ErrExpired means that the person has to log in again.
var ErrExpired = errors.New("the login has expired")

// A RenewFunc gets new tokens of a login from its issuer.
type RenewFunc func(ctx context.Context, l Login) (session.Tokens, error)

// A Source is the client.TokenSource of one login.
type Source struct {
	store Store
	renew RenewFunc
	now   func() time.Time

	mu    sync.Mutex
	login Login
}

// NewSource returns the source of the tokens of a login in a store.
func NewSource(store Store, l Login, renew RenewFunc, now func() time.Time) *Source {
	return &Source{store: store, login: l, renew: renew, now: now}
}

// Token implements client.TokenSource.
func (s *Source) Token(ctx context.Context, rejected string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isUsable(s.login, rejected) {
		return s.login.Tokens.Bearer, nil
	}
	if s.login.Tokens.Refresh == "" {
		if rejected == "" {
			return "", fmt.Errorf("%w (%s)", ErrExpired, s.login.Tokens.Expires.Format(time.RFC3339))
		}
		return rejected, nil // the server's answer says more
	}
	// An interrupt must not lose the tokens that the issuer sends in the place of those that it has taken back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTimeout)
	defer cancel()
	err := s.store.update(ctx, func(logins []Login) ([]Login, error) {
		n := slices.IndexFunc(logins, func(l Login) bool { return l.isFor(s.login.Context, s.login.Server) })
		if n < 0 {
			return nil, ErrExpired // another process has logged out
		}
		err := s.renewUnlessUsable(ctx, &logins[n], rejected)
		s.login = logins[n]
		return logins, err
	})
	if errors.Is(err, session.ErrRefused) {
		err = fmt.Errorf("%w: %w", ErrExpired, err)
	}
	if err != nil {
		return "", err
	}
	return s.login.Tokens.Bearer, nil
}

// renewUnlessUsable renews the tokens of a login, unless another process has.
func (s *Source) renewUnlessUsable(ctx context.Context, l *Login, rejected string) error {
	if s.isUsable(*l, rejected) {
		return nil
	}
	tokens, err := s.renew(ctx, *l)
	if err != nil {
		return err
	}
	if tokens.Refresh == "" {
		tokens.Refresh = l.Tokens.Refresh // RFC 6749, section 6: it remains valid
	}
	l.Tokens = tokens
	return nil
}

// String keeps the token out of logs.
func (s *Source) String() string { return s.login.String() }

// GoString does the same for %#v.
func (s *Source) GoString() string { return s.String() }

func (s *Source) isUsable(l Login, rejected string) bool {
	t := l.Tokens
	return t.Bearer != rejected && (t.Expires.IsZero() || s.now().Add(renewBefore).Before(t.Expires))
}
