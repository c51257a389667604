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
	cfg    AuthConfig
	client kubernetes.Interface
	file   *httpserver.TokenFile[string] // nil without a token file
	limit  *rate.Limiter
	from   *CallerLimits // by address of the caller
	asking singleflight.Group
	known  *lru.LRUExpireCache // results by the hash of the token
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
	g := &Authenticator{cfg: cfg, client: deps.Client, limit: rate.NewLimiter(reviewsPerSecond, reviewBurst), from: NewCallerLimits(reviewsPerAddress, reviewBurstPerAddress), known: lru.NewLRUExpireCache(keptAuthResults)}
	switch cfg.Mode {
	case AuthModeNone:
		if cfg.TokenFile != "" {
			return nil, errors.New("intake auth mode is \"none\" but a token file is set: set the mode to \"file\" to use it")
		}
		for _, addr := range []string{deps.ListenAddr, cmp.Or(deps.OtherAddr, deps.ListenAddr)} {
			if !httpserver.IsLoopback(addr) {
				return nil, fmt.Errorf("intake auth mode \"none\" would accept unauthenticated reports on %q: listen on a loopback address, or set the mode to \"cluster\" or \"file\"", addr)
			}
		}
	case AuthModeCluster:
		if deps.Client == nil {
			return nil, errors.New("intake auth mode \"cluster\" requires a Kubernetes cluster")
		}
	case AuthModeFile:
		if cfg.TokenFile == "" {
			return nil, errors.New("intake auth mode \"file\" requires a token file")
		}
	default:
		return nil, fmt.Errorf("unknown intake auth mode %q: use none, cluster or file", cfg.Mode)
	}
	if cfg.TokenFile != "" {
		file, err := httpserver.OpenTokenFile(cfg.TokenFile, readTokenFile, deps.Log)
		if err != nil {
			return nil, err //nolint:wrapcheck // it says that it is about the token file
		}
		g.file = file
	}
	return g, nil
}

// Authenticate returns the caller of a request with an Authorization header, from the
// remote address of a connection. Its errors are, or wrap, the errors of
// Authenticate above.
func (g *Authenticator) Authenticate(ctx context.Context, header, address string) (caller string, err error) {
	if g.cfg.Mode == AuthModeNone {
		return "anonymous", nil
	}
	token := httpserver.TokenFromHeader(header)
	if token == "" {
		return "", ErrNoToken
	}
	hash := httpserver.HashToken(token)
	if g.file != nil {
		if subject, ok := g.file.Lookup(ctx, hash); ok {
			return subject, nil
		}
	}
	if g.cfg.Mode == AuthModeFile {
		return "", ErrInvalidToken
	}
	if was, ok := g.known.Get(hash); ok {
		if a, isOne := was.(authResult); isOne {
			return a.caller, a.err
		}
	}
	f := tokenReview{token: token, hash: hash, place: CallerIPOrIPv6Prefix(address), key: string(hash[:])}
	caller, err = g.reviewTokenAndCacheResult(ctx, f)
	var crowd *originLimitError
	if errors.As(err, &crowd) && crowd.place != f.place { // the limit was reached by another address with the same token
		f.key += f.place
		caller, err = g.reviewTokenAndCacheResult(ctx, f)
	}
	return caller, err
}

// A tokenReview is one review of a token. Concurrent requests with the same key share its
// result.
type tokenReview struct {
	token string
	hash  httpserver.TokenHash
	place string // address of the caller
	key   string
}

// An originLimitError means that an address has sent too many unknown tokens.
type originLimitError struct{ place string }

func (e *originLimitError) Error() string { return ErrTooManyInvalidTokens.Error() }

// Is makes the error match ErrTooManyInvalidTokens.
func (e *originLimitError) Is(target error) bool { return target == ErrTooManyInvalidTokens }

// reviewTokenAndCacheResult returns the owner of a Kubernetes token.
func (g *Authenticator) reviewTokenAndCacheResult(
	ctx context.Context, review tokenReview,
) (caller string, err error) {
	asked := g.asking.DoChan(review.key, func() (any, error) {
		if !g.from.Allow(review.place, time.Now()) {
			return "", &originLimitError{review.place}
		}
		if !g.limit.Allow() {
			return "", fmt.Errorf("%w: %w", ErrAuthUnavailable, errReviewLimit)
		}
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), reviewTimeout, errReviewTimeout)
		defer cancel()
		caller, err := g.reviewTokenAndAccess(ctx, review.token)
		switch {
		case err == nil:
			g.known.Add(review.hash, authResult{caller: caller}, g.cfg.CacheTTL)
		case !errors.Is(err, ErrAuthUnavailable):
			g.known.Add(review.hash, authResult{err: err}, min(refusedAuthTTL, g.cfg.CacheTTL))
		}
		return caller, err
	})
	select {
	case r := <-asked:
		caller, _ := r.Val.(string)
		return caller, r.Err
	case <-ctx.Done():
		return "", fmt.Errorf("%w: %w", ErrAuthUnavailable, context.Cause(ctx))
	}
}

// reviewTokenAndAccess asks the API server for the owner of a token, and whether the owner may
// create NodeFaults.
func (g *Authenticator) reviewTokenAndAccess(ctx context.Context, token string) (username string, err error) {
	t, err := g.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: g.cfg.Audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("%w: review token: %w", ErrAuthUnavailable, err)
	}
	if !t.Status.Authenticated {
		return "", ErrInvalidToken
	}
	user := t.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	a, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
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
	if !a.Status.Allowed || a.Status.Denied {
		return "", fmt.Errorf("%q: %w", user.Username, ErrForbidden)
	}
	return user.Username, nil
}
