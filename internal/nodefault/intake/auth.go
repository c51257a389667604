package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	lru "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/httpserver"
)

// Errors of Authenticate.
var (
	// ErrNoToken means that the request has no bearer token.
	ErrNoToken = errors.New("bearer token missing")
	// ErrInvalidToken means that the token is unknown.
	ErrInvalidToken = errors.New("bearer token invalid")
	// ErrForbidden means that the owner of the token may not report faults.
	ErrForbidden = errors.New("not allowed to create nodefaults.fleetloop.io")
	// ErrTooManyInvalidTokens means that the address of the caller has sent too many unknown tokens.
	ErrTooManyInvalidTokens = errors.New("too many invalid tokens from this address")
	// ErrAuthUnavailable means that the token cannot be checked at the moment.
	ErrAuthUnavailable = errors.New("bearer token cannot be checked: Kubernetes API unavailable")
)

// An AuthMode is the way in which callers are authenticated.
type AuthMode string

// The modes of authentication.
const (
	// AuthModeNone accepts every caller. It is only for loopback addresses.
	AuthModeNone AuthMode = "none"
	// AuthModeCluster accepts Kubernetes tokens, and the tokens of a file if one is set.
	AuthModeCluster AuthMode = "cluster"
	// AuthModeFile accepts only the tokens of a file.
	AuthModeFile AuthMode = "file"
)

// AuthConfig configures which callers are accepted.
type AuthConfig struct {
	Mode AuthMode `key:"mode" env:"NODE_FAULT_INTAKE_AUTH_MODE" flag:"intake-auth-mode" default:"cluster" validate:"oneof=none cluster file" doc:"Accepted credentials: cluster (Kubernetes tokens whose owner may create nodefaults.fleetloop.io, and the tokens of the file), file (only the tokens of the file) or none (no authentication, loopback addresses only)."`

	TokenFile string `key:"token_file" env:"NODE_FAULT_INTAKE_TOKEN_FILE" flag:"intake-token-file" doc:"YAML file of static tokens: tokens, a list of {token or sha256, subject}. It is reloaded when it changes."`

	Audiences []string `key:"audiences" env:"NODE_FAULT_INTAKE_AUDIENCES" doc:"Audiences of Kubernetes tokens, of which a token must have one; empty means the audience of the API server."`

	// CacheTTL is how long an answer of the API server is cached. Zero means
	// DefaultAuthCacheTTL.
	CacheTTL time.Duration `key:"cache_ttl" env:"NODE_FAULT_INTAKE_AUTH_CACHE_TTL" default:"1m" validate:"gt=0" doc:"How long the result of a Kubernetes token review is cached."`
}

// DefaultAuthCacheTTL is the default of AuthConfig.CacheTTL.
const DefaultAuthCacheTTL = time.Minute

// AuthDeps are the dependencies of an Authenticator.
type AuthDeps struct {
	// ListenAddr and OtherAddr are the addresses of the servers, such as for HTTP and
	// gRPC. Empty means none. AuthModeNone requires loopback addresses.
	ListenAddr, OtherAddr string
	// Client accesses the API server. AuthModeCluster requires it.
	Client kubernetes.Interface
	Log    *slog.Logger
}

const (
	keptAuthResults = 1024 // cached results; each takes some 100 bytes
	refusedAuthTTL  = 10 * time.Second
	reviewTimeout   = 10 * time.Second
	// Each unknown token costs requests to the API server. The limits keep a sender of
	// invalid tokens from using up the share of others.
	reviewsPerSecond, reviewBurst            = 20, 40
	reviewsPerAddress, reviewBurstPerAddress = 4, 20
)

var (
	errReviewTimeout = errors.New("the Kubernetes API did not respond in time")
	errReviewLimit   = errors.New("too many invalid tokens")
)

// An Authenticator authenticates and authorizes the senders of reports. It is safe for
// concurrent use.
//
// A report can take a node out of service, so authentication alone is not enough. A
// Kubernetes token is accepted if its owner may create NodeFaults, and so could do the
// same without the intake. Other tokens are listed in a file. Answers of the API server
// are cached for a short time.
type Authenticator struct {
	cfg           AuthConfig
	client        kubernetes.Interface
	file          *httpserver.TokenFile[string] // nil without a token file
	reviewLimit   *rate.Limiter
	addressLimits *CallerLimits
	reviews       singleflight.Group
	results       *lru.LRUExpireCache // authResults by the hash of the token
}

// An authResult is the result of the review of a token.
type authResult struct {
	caller string
	err    error
}

// NewAuthenticator validates the configuration and reads the token file. It sends no
// request to the API server.
func NewAuthenticator(cfg AuthConfig, deps AuthDeps) (*Authenticator, error) {
	cfg.CacheTTL = cmp.Or(cfg.CacheTTL, DefaultAuthCacheTTL)
	if err := cfg.validate(deps); err != nil {
		return nil, err
	}
	a := &Authenticator{
		cfg:           cfg,
		client:        deps.Client,
		reviewLimit:   rate.NewLimiter(reviewsPerSecond, reviewBurst),
		addressLimits: NewCallerLimits(reviewsPerAddress, reviewBurstPerAddress),
		results:       lru.NewLRUExpireCache(keptAuthResults),
	}
	if cfg.TokenFile != "" {
		file, err := httpserver.OpenTokenFile(cfg.TokenFile, readTokenFile, deps.Log)
		if err != nil {
			return nil, err //nolint:wrapcheck // it says that it is about the token file
		}
		a.file = file
	}
	return a, nil
}

// validate returns an error if the mode does not fit the other settings.
func (c AuthConfig) validate(deps AuthDeps) error {
	switch c.Mode {
	case AuthModeNone:
		if c.TokenFile != "" {
			return errors.New("intake auth mode is \"none\" but a token file is set: set the mode to \"file\" to use it")
		}
		for _, addr := range []string{deps.ListenAddr, cmp.Or(deps.OtherAddr, deps.ListenAddr)} {
			if !httpserver.IsLoopback(addr) {
				return fmt.Errorf("intake auth mode \"none\" would accept unauthenticated reports on %q: "+
					"listen on a loopback address, or set the mode to \"cluster\" or \"file\"", addr)
			}
		}
	case AuthModeCluster:
		if deps.Client == nil {
			return errors.New("intake auth mode \"cluster\" requires a Kubernetes cluster")
		}
	case AuthModeFile:
		if c.TokenFile == "" {
			return errors.New("intake auth mode \"file\" requires a token file")
		}
	default:
		return fmt.Errorf("unknown intake auth mode %q: use none, cluster or file", c.Mode)
	}
	return nil
}

// Authenticate returns the caller of a request with an Authorization header, from the
// remote address of a connection. Its errors are, or wrap, the errors of
// Authenticate above.
func (a *Authenticator) Authenticate(ctx context.Context, header, address string) (caller string, err error) {
	if a.cfg.Mode == AuthModeNone {
		return "anonymous", nil
	}
	token := httpserver.TokenFromHeader(header)
	if token == "" {
		return "", ErrNoToken
	}
	hash := httpserver.HashToken(token)
	if a.file != nil {
		if subject, ok := a.file.Lookup(ctx, hash); ok {
			return subject, nil
		}
	}
	if a.cfg.Mode == AuthModeFile {
		return "", ErrInvalidToken
	}
	if cached, ok := a.results.Get(hash); ok {
		if result, isResult := cached.(authResult); isResult {
			return result.caller, result.err
		}
	}
	review := tokenReview{token: token, hash: hash, origin: CallerIPOrIPv6Prefix(address), key: string(hash[:])}
	caller, err = a.reviewTokenAndCacheResult(ctx, review)
	var limited *originLimitError
	if errors.As(err, &limited) && limited.origin != review.origin {
		// This request shared the review of another address that has reached its limit.
		review.key += review.origin
		return a.reviewTokenAndCacheResult(ctx, review)
	}
	return caller, err
}

// A tokenReview is one review of a token. Concurrent requests with the same key share its
// result.
type tokenReview struct {
	token  string
	hash   httpserver.TokenHash
	origin string // of the caller
	key    string
}

// An originLimitError means that an origin has sent too many unknown tokens.
type originLimitError struct{ origin string }

func (e *originLimitError) Error() string { return ErrTooManyInvalidTokens.Error() }

// Unwrap makes the error match ErrTooManyInvalidTokens.
func (e *originLimitError) Unwrap() error { return ErrTooManyInvalidTokens }

// reviewTokenAndCacheResult returns the owner of a Kubernetes token.
func (a *Authenticator) reviewTokenAndCacheResult(ctx context.Context, review tokenReview) (caller string, err error) {
	answer := a.reviews.DoChan(review.key, func() (any, error) {
		// Other requests may share this review, so the end of this one does not cancel it.
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), reviewTimeout, errReviewTimeout)
		defer cancel()
		return a.reviewWithinLimitsAndCache(ctx, review)
	})
	select {
	case result := <-answer:
		caller, _ := result.Val.(string)
		return caller, result.Err
	case <-ctx.Done():
		return "", fmt.Errorf("%w: %w", ErrAuthUnavailable, context.Cause(ctx))
	}
}

func (a *Authenticator) reviewWithinLimitsAndCache(ctx context.Context, review tokenReview) (caller string, err error) {
	if !a.addressLimits.Allow(review.origin, time.Now()) {
		return "", &originLimitError{review.origin}
	}
	if !a.reviewLimit.Allow() {
		return "", fmt.Errorf("%w: %w", ErrAuthUnavailable, errReviewLimit)
	}
	caller, err = a.reviewTokenAndAccess(ctx, review.token)
	switch {
	case err == nil:
		a.results.Add(review.hash, authResult{caller: caller}, a.cfg.CacheTTL)
	case !errors.Is(err, ErrAuthUnavailable):
		a.results.Add(review.hash, authResult{err: err}, min(refusedAuthTTL, a.cfg.CacheTTL))
	}
	return caller, err
}

// reviewTokenAndAccess asks the API server for the owner of a token, and whether the owner may
// create NodeFaults.
func (a *Authenticator) reviewTokenAndAccess(ctx context.Context, token string) (username string, err error) {
	authentication, err := a.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: a.cfg.Audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("%w: review token: %w", ErrAuthUnavailable, err)
	}
	if !authentication.Status.Authenticated {
		return "", ErrInvalidToken
	}
	user := authentication.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	authorization, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "create", Group: v1alpha1.GroupVersion.Group, Version: "*", Resource: v1alpha1.Resource,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("%w: review access: %w", ErrAuthUnavailable, err)
	}
	if !authorization.Status.Allowed || authorization.Status.Denied {
		return "", fmt.Errorf("%q: %w", user.Username, ErrForbidden)
	}
	return user.Username, nil
}
