// Package session signs people in with an OpenID Connect issuer, and keeps the sessions of those who
// are signed in to the console.
//
// An Issuer uses the authorization code flow with PKCE, or the device code flow for a program without
// a browser. An issuer that is not reachable does not keep the console from starting: it is discovered
// at the first sign-in.
//
// The browser holds an opaque random id, and the store holds its hash. The tokens of a person are
// stored encrypted with a key that the store does not have. A session ends at sign-out, after a time
// without requests, and after a fixed time. Every sign-in gets a new id.
package session

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// A User is a signed-in person.
type User struct {
	Name   string   `json:"name"`
	Tenant string   `json:"tenant,omitempty"`
	Roles  []string `json:"roles"`
}

// Tokens are the credentials of a person.
type Tokens struct {
	// Bearer authenticates the person at the fleet API and at host clusters. Empty means that
	// requests are anonymous.
	Bearer string `json:"bearer,omitempty"`
	// Refresh gets new tokens from the issuer. Empty means that the tokens cannot be renewed.
	Refresh string `json:"refresh,omitempty"`
	// Expires is the expiry of Bearer. Zero means that it is unknown.
	Expires time.Time `json:"expires,omitzero"`
}

// A Session is the state of one signed-in person.
type Session struct {
	User   User
	Tokens Tokens
	// Expires is when the person must sign in again.
	Expires time.Time
}

// A Hash identifies a session in a store: the SHA-256 of its id.
type Hash [sha256.Size]byte

// A Record is a session in a store.
type Record struct {
	Hash   Hash
	Sealed []byte // the Session, encrypted
	// Seen is the time of a recent request, and Expires the fixed end.
	Seen, Expires time.Time
}

// A Store stores sessions. Replicas share it.
type Store interface {
	CreateSession(ctx context.Context, record Record) error
	// Get returns ErrNone for an unknown session.
	Get(ctx context.Context, idHash Hash) (Record, error)
	// UpdateLocked replaces the contents and the time of a session by the result of change. Changes of
	// one session exclude each other. An error of change leaves the session as it is.
	UpdateLocked(ctx context.Context, idHash Hash, change func(context.Context, Record) (Record, error)) error
	DeleteSession(ctx context.Context, idHash Hash) error
	// DeleteExpiredAndIdle deletes the sessions that expired, or that were last seen before a time.
	DeleteExpiredAndIdle(ctx context.Context, now, idleBefore time.Time) error
}

// Errors of Get.
var (
	// ErrNone means that there is no such session, or no longer.
	ErrNone = errors.New("not signed in")
	// ErrRefused means that the issuer refused to renew the tokens.
	ErrRefused = errors.New("the issuer refused to renew the tokens")
	// ErrNoIDToken means that the issuer sent no ID token. OpenID Connect requires none in answers to a refresh token.
	ErrNoIDToken = errors.New("the issuer sent no ID token")
	// ErrIDTokenUnverified means that an ID token is not valid, for example because it is for another client.
	ErrIDTokenUnverified = errors.New("the ID token is not valid")
)

// A RefreshFunc gets new tokens from the issuer. It returns ErrRefused if a retry is useless.
//
// Beside another error it may return tokens with only a refresh token: the issuer has renewed the tokens, but there is
// no usable bearer. The next call needs this refresh token, because the issuer may not accept the old one again.
type RefreshFunc func(ctx context.Context, refresh string) (Tokens, error)

const (
	cleanupEvery = 10 * time.Minute
	touchEvery   = time.Minute
)

// Config configures sessions.
type Config struct {
	Idle     time.Duration `key:"idle_timeout" env:"CONSOLE_SESSION_IDLE_TIMEOUT" default:"1h" validate:"gt=0" doc:"A session ends after this time without requests."`
	Lifetime time.Duration `key:"lifetime" env:"CONSOLE_SESSION_LIFETIME" default:"12h" validate:"gt=0" doc:"A session ends after this time, and the person must sign in again."`

	// MaxRenewals limits the renewals of tokens at the same time. Each holds a connection of the store while the issuer
	// responds. The program sets it, not its users. Zero means DefaultMaxRenewals.
	MaxRenewals int
}

// Sessions creates, finds and ends sessions.
type Sessions struct {
	cfg      Config
	store    Store
	sealer   sessionCipher
	refresh  RefreshFunc // nil where tokens cannot be renewed
	renewals *renewals
	log      *slog.Logger
}

// New returns the sessions in a store. key encrypts them; a random key fits a store in memory.
func New(cfg Config, key Key, store Store, refresh RefreshFunc, log *slog.Logger) *Sessions {
	return &Sessions{
		cfg: cfg, store: store, sealer: newSessionCipher(key), refresh: refresh, renewals: newRenewals(cfg.MaxRenewals), log: log,
	}
}

// CreateSession creates a session with a new id.
func (s *Sessions) CreateSession(ctx context.Context, user User, tokens Tokens) (id string, expiresAt time.Time, err error) {
	id = NewRandomID()
	now := time.Now()
	state := Session{User: user, Tokens: tokens, Expires: now.Add(s.cfg.Lifetime)}
	r, err := s.newEncryptedRecord(hashID(id), state, now)
	if err != nil {
		return "", time.Time{}, err
	}
	if err := s.store.CreateSession(ctx, r); err != nil {
		return "", time.Time{}, fmt.Errorf("create session: %w", err)
	}
	return id, state.Expires, nil
}

// GetAndRecordUse returns a session whose token is valid, for a request of the person. It renews the token
// shortly before its expiry. ErrNone means that the person must sign in.
func (s *Sessions) GetAndRecordUse(ctx context.Context, id string) (session Session, err error) {
	state, seen, err := s.loadAndRenewSession(ctx, id)
	if err != nil || time.Since(seen) <= min(touchEvery, s.cfg.Idle/4) {
		return state, err
	}
	err = s.store.UpdateLocked(ctx, hashID(id), func(_ context.Context, r Record) (Record, error) {
		r.Seen = time.Now()
		return r, nil
	})
	if err != nil {
		return Session{}, fmt.Errorf("update session: %w", err)
	}
	return state, nil
}

// GetWithoutRecordingUse returns a session for a stream, which is no sign that the person is there.
func (s *Sessions) GetWithoutRecordingUse(ctx context.Context, id string) (session Session, err error) {
	state, _, err := s.loadAndRenewSession(ctx, id)
	return state, err
}

// loadAndRenewSession returns a session and the time of a recent request.
func (s *Sessions) loadAndRenewSession(ctx context.Context, id string) (session Session, lastSeen time.Time, err error) {
	h := hashID(id)
	r, err := s.store.Get(ctx, h)
	if err != nil {
		return Session{}, time.Time{}, fmt.Errorf("read session: %w", err)
	}
	now := time.Now()
	if s.isExpiredOrIdle(r, now) {
		return Session{}, time.Time{}, errors.Join(ErrNone, s.store.DeleteSession(ctx, h))
	}
	session, err = s.sealer.decryptSession(h, r.Sealed)
	if err != nil { // another key: the session cannot be used again
		s.log.WarnContext(ctx, "session not readable with this key", "err", err)
		return Session{}, time.Time{}, errors.Join(ErrNone, s.store.DeleteSession(ctx, h))
	}
	switch {
	case s.areTokensDueForRenewal(session, now):
		session, err = s.renewTokensOnce(ctx, h, session)
		return session, r.Seen, err
	case areTokensExpired(session.Tokens, now):
		return Session{}, time.Time{}, errors.Join(ErrNone, s.store.DeleteSession(ctx, h))
	}
	return session, r.Seen, nil
}

func (s *Sessions) isExpiredOrIdle(record Record, now time.Time) bool {
	return !now.Before(record.Expires) || now.Sub(record.Seen) >= s.cfg.Idle
}

func (s *Sessions) newEncryptedRecord(idHash Hash, session Session, lastSeen time.Time) (Record, error) {
	sealed, err := s.sealer.encryptSession(idHash, session)
	return Record{Hash: idHash, Sealed: sealed, Seen: lastSeen, Expires: session.Expires}, err
}

// EndSession ends a session. An unknown one has ended already.
func (s *Sessions) EndSession(ctx context.Context, id string) error {
	if err := s.store.DeleteSession(ctx, hashID(id)); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return nil
}

// RunCleanup deletes old sessions until ctx ends.
func (s *Sessions) RunCleanup(ctx context.Context) error {
	for ctx.Err() == nil {
		now := time.Now()
		if err := s.store.DeleteExpiredAndIdle(ctx, now, now.Add(-s.cfg.Idle)); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "old sessions not deleted", "err", err)
		}
		_ = backoff.Sleep(ctx, cleanupEvery) // the loop checks ctx
	}
	return nil
}

// DeriveCSRFToken returns the token that protects the writes of a browser. It belongs to a random cookie
// and to a session, which may be empty.
func (s *Sessions) DeriveCSRFToken(csrfCookie, sessionID string) string {
	mac := hmac.New(sha256.New, s.sealer.csrfKey)
	_, _ = fmt.Fprintf(mac, "%d:%s:%s", len(csrfCookie), csrfCookie, sessionID) // a hash never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// EncryptForCookie encrypts a text for a cookie with one purpose.
func (s *Sessions) EncryptForCookie(purpose string, plaintext []byte) string {
	return base64.RawURLEncoding.EncodeToString(s.sealer.aead.Seal(nil, nil, plaintext, []byte(purpose)))
}

// DecryptFromCookie returns a text that EncryptForCookie has encrypted for the same purpose.
func (s *Sessions) DecryptFromCookie(purpose, encrypted string) (plaintext []byte, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(encrypted)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	text, err := s.sealer.aead.Open(nil, nil, raw, []byte(purpose))
	if err != nil {
		return nil, fmt.Errorf("decrypt: %w", err)
	}
	return text, nil
}

// NewRandomID returns a random id.
func NewRandomID() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return base64.RawURLEncoding.EncodeToString(raw)
}

func hashID(id string) Hash { return sha256.Sum256([]byte(id)) }
