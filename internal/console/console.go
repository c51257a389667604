// Package console is the server side of the web console.
//
// It serves the page, signs people in, and forwards their requests to the fleet API. It holds no
// rights of its own there: each request carries the token of the signed-in person, which stays on
// the server. The browser has only an opaque cookie.
//
// Every path lies below a base path, so that a proxy can publish the console beside other pages.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/version"
)

// The modes of sign-in.
const (
	ModeNone  = "none"  // no sign-in, on loopback only
	ModeToken = "token" // a person enters a token of the fleet API
	ModeOIDC  = "oidc"  // OpenID Connect
	ModeDemo  = "demo"  // a choice of fixed persons, on loopback only
)

// Config is the configuration of the console.
type Config struct {
	PublicURL string `key:"public_url" env:"CONSOLE_PUBLIC_URL" flag:"public-url" validate:"omitempty,url" doc:"URL under which browsers reach the console. Its path is the base path of all pages. Required unless the console listens on loopback."`

	Mode string `key:"auth_mode" env:"CONSOLE_AUTH_MODE" flag:"auth-mode" default:"none" validate:"oneof=none token oidc" doc:"Sign-in: none (only on a loopback address), token (a token of the fleet API) or oidc (OpenID Connect)."`

	FleetAPI string `key:"fleet_api_url" env:"FLEET_API_URL" flag:"fleet-api-url" default:"http://127.0.0.1:8080" validate:"url" doc:"URL of the fleet API."`

	Session session.Config `key:"session"`

	SignInsPerMinute int `key:"sign_ins_per_minute" env:"CONSOLE_SIGN_INS_PER_MINUTE" default:"60" validate:"min=1" doc:"Maximum number of sign-in requests per minute from one address. Behind a proxy, all people have its address."`

	DocsURL string `key:"docs_url" env:"CONSOLE_DOCS_URL" validate:"omitempty,url" doc:"URL of the documentation, to which the page links."`
}

// A DemoPerson can be chosen in ModeDemo instead of a sign-in.
type DemoPerson struct {
	Name, Role string
	// Token authenticates the person at host clusters, and names the person to the fleet API.
	Token string
}

// Deps holds the dependencies of a Console.
type Deps struct {
	// ListenAddr is the listen address of the server, which decides on ModeNone. TLS is whether the
	// server itself has a certificate.
	ListenAddr string
	TLS        bool

	Sessions *session.Sessions
	// Identify returns the person to whom the fleet API attributes a token. It returns ErrToken for
	// an invalid one.
	Identify func(ctx context.Context, token string) (session.User, error)
	// Transport sends requests to the fleet API.
	Transport http.RoundTripper
	// Fleet lists the streams of the fleet API. It calls Follow with the token for the fleet API.
	Fleet []Source
	// Hosts are the host clusters. It may be nil.
	Hosts HostClusters
	// RecordAction records what a person did. It does not block. Nil means that nothing is recorded.
	RecordAction func(ctx context.Context, act Action)
	// Issuer signs people in. It is set in ModeOIDC alone.
	Issuer Issuer
	// Demo lists the persons of ModeDemo.
	Demo []DemoPerson

	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// ErrToken means that the fleet API does not accept a token.
var ErrToken = errors.New("the fleet API does not accept the token")

// Console serves the web console.
type Console struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	base    string   // base path, with a slash at both ends
	public  *url.URL // nil: as the browser calls it
	cookies cookies
	signIns *signInLimiter
	streams *streams
	sources []*Source
	// openStreams counts the streams of pages.
	openStreams atomic.Int64
	page        page
	handler     http.Handler
}

// New checks the configuration. It sends no request.
func New(cfg Config, deps Deps) (*Console, error) {
	c := &Console{cfg: cfg, deps: deps, log: deps.Log, base: "/", signIns: newSignInLimiter(cfg.SignInsPerMinute), streams: newStreams()}
	if err := c.setPublicURL(); err != nil {
		return nil, err
	}
	c.cookies = cookies{base: c.base, secure: deps.TLS || c.public != nil && c.public.Scheme == "https"}
	if err := c.validateMode(httpserver.IsLoopback(deps.ListenAddr)); err != nil {
		return nil, err
	}
	fleetAPIURL, err := url.Parse(strings.TrimRight(cfg.FleetAPI, "/"))
	if err != nil || fleetAPIURL.Host == "" {
		return nil, errors.New("the URL of the fleet API must be http://host:port or https://host:port")
	}
	if c.page, err = loadEmbeddedPage(c.base); err != nil {
		return nil, err
	}
	if c.metrics, err = registerMetrics(deps.Metrics); err != nil {
		return nil, err
	}
	if c.deps.RecordAction == nil {
		c.deps.RecordAction = func(context.Context, Action) {}
	}
	c.addStreamSources()
	guard := requestGuard{cookies: c.cookies, public: c.public, mode: cfg.Mode, sessions: deps.Sessions, metrics: c.metrics}
	c.handler = guard.guardAndCountRequests(c.newRouter(fleetAPIURL))
	return c, nil
}

func (c *Console) setPublicURL() error {
	if c.cfg.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(c.cfg.PublicURL)
	if err != nil {
		return errPublicURL
	}
	hasAddress := u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
	if !hasAddress || u.RawQuery != "" || u.User != nil {
		return errPublicURL
	}
	c.public = u
	if path := strings.Trim(u.Path, "/"); path != "" {
		c.base = "/" + path + "/"
	}
	return nil
}

var errPublicURL = errors.New("the public URL must be http://host/path/ or https://host/path/, without a query and a password")

// addStreamSources adds the streams of the fleet API and of the host clusters.
func (c *Console) addStreamSources() {
	sources := slices.Clone(c.deps.Fleet)
	if c.deps.Hosts != nil {
		sources = append(sources, c.deps.Hosts.ListSources()...)
	}
	for i := range sources {
		c.sources = append(c.sources, &sources[i])
	}
}

// validateMode refuses modes that would let strangers in, or tokens travel in the clear.
func (c *Console) validateMode(listensOnLoopback bool) error {
	switch c.cfg.Mode {
	case ModeNone, ModeDemo:
		if !listensOnLoopback {
			return fmt.Errorf(
				"mode %q lets in everyone who can reach %q; listen on a loopback address, or set the mode to oidc or token",
				c.cfg.Mode,
				c.deps.ListenAddr,
			)
		}
	case ModeToken, ModeOIDC:
		if !listensOnLoopback && !c.cookies.secure {
			return errors.New("people would sign in without TLS; set the public URL to the https:// address of the console, or set a certificate")
		}
		if !listensOnLoopback && c.public == nil {
			return errors.New("the public URL is not set; set it to the https:// address under which browsers reach the console")
		}
	default:
		return fmt.Errorf("unknown mode %q; use none, token or oidc", c.cfg.Mode)
	}
	return nil
}

// Handler returns the handler of all paths.
func (c *Console) Handler() http.Handler { return c.handler }

// BasePath returns the path of the first page.
func (c *Console) BasePath() string { return c.base }

func (c *Console) newRouter(fleetAPIURL *url.URL) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /console/session", c.serveSignInState)
	mux.HandleFunc("POST /console/token", c.limitSignInAttempts(c.signInByToken))
	mux.HandleFunc("POST /console/demo", c.limitSignInAttempts(c.signInAsDemoPerson))
	atIssuer := oidcLogin{c}
	mux.HandleFunc("GET /console/login", c.limitSignInAttempts(atIssuer.redirectToIssuer))
	mux.HandleFunc("GET /console/callback", c.limitSignInAttempts(atIssuer.handleCallback))
	mux.HandleFunc("POST /console/logout", c.endSessionAndRemoveCookie)
	mux.HandleFunc("/console/", func(w http.ResponseWriter, _ *http.Request) {
		WriteProblemJSON(w, http.StatusNotFound, "The console has no such path.", "")
	})
	mux.Handle("GET /console/stream", c.requireSession(http.HandlerFunc(c.serveEventStream)))
	if c.deps.Hosts != nil {
		hosts := c.requireSession(c.cancelFollowRequestsOnStreamsEnd(c.deps.Hosts))
		mux.Handle("/console/hosts/", hosts)
		mux.Handle("GET "+CoveragePath, hosts)
	}
	mux.Handle("/api/", c.requireSession(c.newFleetAPIProxy(fleetAPIURL)))
	mux.Handle("/assets/", c.page.assets)
	mux.HandleFunc("/", c.page.serveIndexPage)
	if c.base == "/" {
		return mux
	}
	root := http.NewServeMux()
	root.Handle(c.base, http.StripPrefix(strings.TrimSuffix(c.base, "/"), mux)) // the mux itself redirects from the base without its slash
	return root
}

// sessionAnswer is the body of GET console/session.
type sessionAnswer struct {
	SignedIn  bool          `json:"signed_in"`
	Mode      string        `json:"mode"`
	User      *session.User `json:"user,omitempty"`
	CSRF      string        `json:"csrf"`
	Expires   string        `json:"expires,omitempty"`
	Version   string        `json:"version"`
	Hosts     []HostState   `json:"hosts"`
	DemoUsers []demoAnswer  `json:"demo_users,omitempty"`
	Links     linksAnswer   `json:"links"`
}

type demoAnswer struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

type linksAnswer struct {
	Docs string `json:"docs"`
}

const defaultDocs = "https://github.com/fleetloop/fleetloop/tree/main/docs"

// serveSignInState tells the page who is signed in. It never fails for a missing session.
func (c *Console) serveSignInState(w http.ResponseWriter, r *http.Request) {
	answer := sessionAnswer{
		Mode: c.cfg.Mode, Version: version.Get().Version, Hosts: []HostState{},
		Links: linksAnswer{Docs: cmp.Or(c.cfg.DocsURL, defaultDocs)},
	}
	for _, p := range c.deps.Demo {
		answer.DemoUsers = append(answer.DemoUsers, demoAnswer{p.Name, p.Role})
	}
	p, err := c.getSessionAndRecordUse(r)
	switch {
	case err == nil:
		answer.SignedIn, answer.User = true, &p.User
		if c.deps.Hosts != nil {
			answer.Hosts = c.deps.Hosts.ListHostStates(r.Context(), personOfSession(p))
		}
		if !p.Expires.IsZero() {
			answer.Expires = p.Expires.UTC().Format(timeFormat)
		}
	case !errors.Is(err, session.ErrNone):
		c.writeErrorProblem(w, r, err)
		return
	}
	answer.CSRF = c.deps.Sessions.DeriveCSRFToken(c.cookies.readOrSetCSRFCookie(w, r), c.cookies.readSessionID(r))
	WriteJSON(w, http.StatusOK, answer)
}
