// Package auth says who may report faults of nodes.
//
// A report can have a node taken out of service, so it is not enough to be
// somebody. A token of the cluster is good if its owner may create NodeFaults, who
// could do the same without us; other tokens are those of a file. What the API
// server said of a token is believed for a short while.
package auth

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
	"github.com/fleetloop/fleetloop/internal/bearer"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake/callers"
)

// Errors that say how a caller is refused.
var (
	// ErrNoToken means that there is no bearer token.
	ErrNoToken = errors.New("bearer token missing")
	// ErrInvalidToken means that the token is not known.
	ErrInvalidToken = errors.New("bearer token invalid")
	// ErrForbidden means that its owner may not report faults.
	ErrForbidden = errors.New("not allowed to create nodefaults.fleetloop.io")
	// ErrTooMany means that too many tokens came from where this one does that
	// nobody knows yet.
	ErrTooMany = errors.New("too many invalid tokens from this address")
	// ErrUnavailable means that nobody can say just now.
	ErrUnavailable = errors.New("bearer token cannot be checked: Kubernetes API unavailable")
)

// A Mode is how callers are told apart.
type Mode string

// The modes.
const (
	// ModeNone lets everybody in, and is for one machine alone.
	ModeNone Mode = "none"
	// ModeCluster takes tokens of the cluster, and those of a file if there is one.
	ModeCluster Mode = "cluster"
	// ModeFile takes the tokens of a file alone.
	ModeFile Mode = "file"
)

// Config says who is let in.
type Config struct {
	Mode Mode `key:"mode" env:"NODE_FAULT_INTAKE_AUTH_MODE" flag:"intake-auth-mode" default:"cluster" validate:"oneof=none cluster file" doc:"Accepted credentials: cluster (Kubernetes tokens whose owner may create nodefaults.fleetloop.io, and the tokens of the file), file (only the tokens of the file) or none (no authentication, loopback addresses only)."`

	TokenFile string `key:"token_file" env:"NODE_FAULT_INTAKE_TOKEN_FILE" flag:"intake-token-file" doc:"YAML file of static tokens: tokens, a list of {token or sha256, subject}. It is reloaded when it changes."`

	Audiences []string `key:"audiences" env:"NODE_FAULT_INTAKE_AUDIENCES" doc:"Audiences of Kubernetes tokens, of which a token must have one; empty means the audience of the API server."`

	// Believe is how long an answer of the API server counts. Zero means
	// DefaultBelieve.
	CacheTTL time.Duration `key:"cache_ttl" env:"NODE_FAULT_INTAKE_AUTH_CACHE_TTL" default:"1m" validate:"gt=0" doc:"How long the result of a Kubernetes token review is cached."`
}

// DefaultBelieve is what the zero Believe of a Config means.
const DefaultBelieve = time.Minute

// Deps are what a Guard works with.
type Deps struct {
	// ListenAddr is where callers come in, and OtherAddr where they do besides,
	// such as by gRPC: "" is nowhere. ModeNone wants both on loopback.
	ListenAddr, OtherAddr string
	// Client asks the API server. ModeCluster needs it.
	Client kubernetes.Interface
	Log    *slog.Logger
}

const (
	kept          = 1024 // answers; what one token costs is some 100 bytes
	distrust      = 10 * time.Second
	reviewTimeout = 10 * time.Second
	// Anybody can make up tokens, and each has the API server asked. Whoever does
	// so is to have a part of that, and leave the others theirs.
	reviewsPerSecond, reviewBurst   = 20, 40
	perAddressPerSecond, perAddress = 4, 20
)

var (
	errNoAnswer = errors.New("the Kubernetes API did not respond in time")
	errTooMany  = errors.New("too many invalid tokens")
)

// A Guard tells who callers are. It is safe for concurrent use.
type Guard struct {
	cfg    Config
	client kubernetes.Interface
	file   *bearer.File[string] // nil without one
	limit  *rate.Limiter
	from   *callers.Limits // by where they come from
	asking singleflight.Group
	known  *lru.LRUExpireCache // of answers, by the hash of the token
}

// An answer is what the API server said of a token.
type answer struct {
	caller string
	err    error
}

// New checks the configuration and reads the token file. It asks nothing of the
// API server.
func New(cfg Config, deps Deps) (*Guard, error) {
	cfg.CacheTTL = cmp.Or(cfg.CacheTTL, DefaultBelieve)
	g := &Guard{cfg: cfg, client: deps.Client, limit: rate.NewLimiter(reviewsPerSecond, reviewBurst), from: callers.New(perAddressPerSecond, perAddress), known: lru.NewLRUExpireCache(kept)}
	switch cfg.Mode {
	case ModeNone:
		if cfg.TokenFile != "" {
			return nil, errors.New("intake auth mode is \"none\" but a token file is set: set the mode to \"file\" to use it")
		}
		for _, addr := range []string{deps.ListenAddr, cmp.Or(deps.OtherAddr, deps.ListenAddr)} {
			if !bearer.Loopback(addr) {
				return nil, fmt.Errorf("intake auth mode \"none\" would accept unauthenticated reports on %q: listen on a loopback address, or set the mode to \"cluster\" or \"file\"", addr)
			}
		}
	case ModeCluster:
		if deps.Client == nil {
			return nil, errors.New("intake auth mode \"cluster\" requires a Kubernetes cluster")
		}
	case ModeFile:
		if cfg.TokenFile == "" {
			return nil, errors.New("intake auth mode \"file\" requires a token file")
		}
	default:
		return nil, fmt.Errorf("unknown intake auth mode %q: use none, cluster or file", cfg.Mode)
	}
	if cfg.TokenFile != "" {
		file, err := bearer.Open(cfg.TokenFile, readTokens, deps.Log)
		if err != nil {
			return nil, err //nolint:wrapcheck // it says that it is about the token file
		}
		g.file = file
	}
	return g, nil
}

// Authenticate tells who sends a request with an Authorization header, from an
// address as a connection has it. Its errors are, or wrap, those of this package.
func (g *Guard) Authenticate(ctx context.Context, header, address string) (caller string, err error) {
	if g.cfg.Mode == ModeNone {
		return "anonymous", nil
	}
	token := bearer.FromHeader(header)
	if token == "" {
		return "", ErrNoToken
	}
	hash := bearer.HashOf(token)
	if g.file != nil {
		if subject, ok := g.file.Lookup(ctx, hash); ok {
			return subject, nil
		}
	}
	if g.cfg.Mode == ModeFile {
		return "", ErrInvalidToken
	}
	if was, ok := g.known.Get(hash); ok {
		if a, isOne := was.(answer); isOne {
			return a.caller, a.err
		}
	}
	f := flight{token: token, hash: hash, place: callers.Place(address), key: string(hash[:])}
	caller, err = g.ofCluster(ctx, f)
	var crowd *crowdError
	if errors.As(err, &crowd) && crowd.place != f.place { // it is others' fault, who have the same token elsewhere
		f.key += f.place
		caller, err = g.ofCluster(ctx, f)
	}
	return caller, err
}

// A flight is one question about a token. Those who ask with the same key wait for
// one answer, which is no one's alone.
type flight struct {
	token string
	hash  bearer.Hash
	place string // where the caller comes from
	key   string
}

// A crowdError is that too many unknown tokens come from a place.
type crowdError struct{ place string }

func (e *crowdError) Error() string { return ErrTooMany.Error() }

// Is makes it an ErrTooMany.
func (e *crowdError) Is(target error) bool { return target == ErrTooMany }

// ofCluster asks whose a token of the cluster is.
func (g *Guard) ofCluster(ctx context.Context, f flight) (string, error) {
	asked := g.asking.DoChan(f.key, func() (any, error) {
		if !g.from.Allow(f.place, time.Now()) {
			return "", &crowdError{f.place}
		}
		if !g.limit.Allow() {
			return "", fmt.Errorf("%w: %w", ErrUnavailable, errTooMany)
		}
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), reviewTimeout, errNoAnswer)
		defer cancel()
		caller, err := g.reviewToken(ctx, f.token)
		switch {
		case err == nil:
			g.known.Add(f.hash, answer{caller: caller}, g.cfg.CacheTTL)
		case !errors.Is(err, ErrUnavailable):
			g.known.Add(f.hash, answer{err: err}, min(distrust, g.cfg.CacheTTL))
		}
		return caller, err
	})
	select {
	case r := <-asked:
		caller, _ := r.Val.(string)
		return caller, r.Err
	case <-ctx.Done():
		return "", fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
}

// reviewToken asks the API server whose a token is, and whether that one may create
// NodeFaults.
func (g *Guard) reviewToken(ctx context.Context, token string) (string, error) {
	t, err := g.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: g.cfg.Audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("%w: review token: %w", ErrUnavailable, err)
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
		return "", fmt.Errorf("%w: review access: %w", ErrUnavailable, err)
	}
	if !a.Status.Allowed || a.Status.Denied {
		return "", fmt.Errorf("%q: %w", user.Username, ErrForbidden)
	}
	return user.Username, nil
}
