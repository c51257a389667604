package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// DefaultMaxRenewals is the default limit of the renewals at the same time.
const DefaultMaxRenewals = 4

const (
	refreshBefore  = time.Minute      // before the expiry of a token
	slotTimeout    = 5 * time.Second  // for other renewals
	refreshTimeout = 10 * time.Second // for the issuer; a row is locked meanwhile
	storeTimeout   = 5 * time.Second  // for the database afterwards
	renewAgain     = 15 * time.Second // after a failure
)

var (
	errTooManyRenewals = errors.New("too many sessions are renewed at the same time")
	errRefreshTimeout  = errors.New("the issuer did not respond in time")
	errStoreTimeout    = errors.New("the session was not stored in time")
)

// renewals keeps an issuer that does not respond from delaying all requests. Sessions use it to renew a session
// once at a time, few sessions at the same time, and none shortly after its renewal has failed.
type renewals struct {
	running singleflight.Group
	slots   chan struct{}

	mu       sync.Mutex
	failures map[Hash]renewalFailure
}

type renewalFailure struct {
	err   error
	until time.Time
}

func newRenewals(atTheSameTime int) *renewals {
	return &renewals{slots: make(chan struct{}, cmp.Or(atTheSameTime, DefaultMaxRenewals)), failures: map[Hash]renewalFailure{}}
}

// takeSlot waits until a renewal may begin. The caller gives the slot back.
func (r *renewals) takeSlot() error {
	timeout := time.NewTimer(slotTimeout)
	defer timeout.Stop()
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-timeout.C:
		return errTooManyRenewals
	}
}

func (r *renewals) returnSlot() { <-r.slots }

// recentFailure returns why the latest renewal of a session has failed. It is nil after renewAgain.
func (r *renewals) recentFailure(idHash Hash) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.failures[idHash]; time.Now().Before(f.until) {
		return f.err
	}
	return nil
}

func (r *renewals) rememberFailure(idHash Hash, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.failures, func(_ Hash, f renewalFailure) bool { return !now.Before(f.until) })
	r.failures[idHash] = renewalFailure{err, now.Add(renewAgain)}
}

func (s *Sessions) areTokensDueForRenewal(session Session, now time.Time) bool {
	t := session.Tokens
	return s.refresh != nil && t.Refresh != "" && !t.Expires.IsZero() && t.Expires.Sub(now) < refreshBefore
}

func areTokensExpired(tokens Tokens, now time.Time) bool {
	return !tokens.Expires.IsZero() && !now.Before(tokens.Expires)
}

// renewTokensOnce renews the tokens of a session, once for all requests at the same time. A failure matters only
// once the old token has expired.
func (s *Sessions) renewTokensOnce(ctx context.Context, idHash Hash, session Session) (Session, error) {
	result, err, _ := s.renewals.running.Do(string(idHash[:]), func() (any, error) {
		if err := s.renewals.recentFailure(idHash); err != nil {
			return session, err
		}
		renewed, err := s.renewTokensInSlot(ctx, idHash, session)
		if err != nil && !errors.Is(err, ErrNone) {
			s.log.WarnContext(ctx, "tokens not renewed, using the old one until it expires", "user", session.User.Name, "err", err)
			if !errors.Is(err, errTooManyRenewals) { // the issuer was not asked
				s.renewals.rememberFailure(idHash, err)
			}
		}
		return renewed, err
	})
	session, _ = result.(Session)
	switch {
	case err == nil || errors.Is(err, ErrNone):
		return session, err
	case !areTokensExpired(session.Tokens, time.Now()):
		return session, nil
	case errors.Is(err, ErrNoIDToken), errors.Is(err, ErrIDTokenUnverified): // only a sign-in may get a usable one
		return Session{}, errors.Join(ErrNone, s.store.DeleteSession(ctx, idHash))
	}
	return Session{}, fmt.Errorf("renew tokens: %w", err)
}

func (s *Sessions) renewTokensInSlot(ctx context.Context, idHash Hash, session Session) (Session, error) {
	if err := s.renewals.takeSlot(); err != nil {
		return session, err
	}
	defer s.renewals.returnSlot()
	return s.renewTokensAndStore(ctx, idHash, session)
}

// renewTokensAndStore renews the tokens of a session, unless another request or replica has done so
// meanwhile. After a failure it returns the session with the old bearer.
func (s *Sessions) renewTokensAndStore(ctx context.Context, idHash Hash, session Session) (Session, error) {
	// The issuer may have replaced the refresh token, so an ended request must not lose the new one.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), refreshTimeout+storeTimeout, errStoreTimeout)
	defer cancel()
	refreshUntil := time.Now().Add(refreshTimeout)
	var refreshErr error
	err := s.store.UpdateLocked(ctx, idHash, func(ctx context.Context, r Record) (Record, error) {
		current, err := s.sealer.decryptSession(idHash, r.Sealed)
		if err != nil {
			return r, err
		}
		session, refreshErr = current, nil
		if s.areTokensDueForRenewal(current, time.Now()) {
			ctx, cancel := context.WithDeadlineCause(ctx, refreshUntil, errRefreshTimeout)
			defer cancel()
			session.Tokens, refreshErr = s.refreshTokens(ctx, current.Tokens)
		}
		return s.newEncryptedRecord(idHash, session, r.Seen)
	})
	switch {
	case errors.Is(err, ErrNone):
		return Session{}, err
	case errors.Is(refreshErr, ErrRefused):
		s.log.InfoContext(ctx, "session ended: tokens not renewed", "user", session.User.Name, "err", refreshErr)
		return Session{}, errors.Join(ErrNone, s.store.DeleteSession(ctx, idHash))
	}
	return session, errors.Join(refreshErr, err)
}

// refreshTokens returns new tokens. Beside an error it returns the old ones, with the refresh token that the issuer may
// have put in the place of theirs.
func (s *Sessions) refreshTokens(ctx context.Context, old Tokens) (Tokens, error) {
	renewed, err := s.refresh(ctx, old.Refresh)
	if err == nil {
		return renewed, nil
	}
	old.Refresh = cmp.Or(renewed.Refresh, old.Refresh)
	return old, err
}
