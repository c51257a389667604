package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/httpserver"
)

const (
	mcpPath      = "/mcp"
	metadataPath = "/.well-known/oauth-protected-resource"

	// maxRequestBody is the maximum size of a request, in bytes.
	maxRequestBody = 1 << 20
	// maxCalls is the maximum number of commands that run at once.
	maxCalls = 32
	// maxCallTime ends a call before the server gives up its response.
	maxCallTime = httpserver.DefaultWriteTimeout - 10*time.Second
)

var errCallTimeout = errors.New("the call took too long")

// httpOptions are the flags of the HTTP transport.
type httpOptions struct {
	httpserver.Config

	PublicURL, Issuer, Audience string
}

func (o *httpOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Addr, "listen-address", "", "serve over HTTP at this `host:port` instead of standard input and output")
	f.StringVar(&o.TLSCertFile, "tls-cert-file", "", "PEM `file` with the certificate chain of the HTTP server")
	f.StringVar(&o.TLSKeyFile, "tls-key-file", "", "PEM `file` with the private key of the certificate")
	f.StringVar(&o.PublicURL, "public-url", "", "`URL` under which assistants reach the server (default: "+mcpPath+" at the listen address)")
	f.StringVar(&o.Issuer, "oidc-issuer", "", "`URL` of the OpenID Connect issuer of the people's tokens")
	f.StringVar(&o.Audience, "oidc-audience", "", "`audience` of the tokens: that of the fleet API")
}

// validate refuses what would let strangers in, or tokens travel in the clear.
func (o *httpOptions) validate() error {
	if o.Addr == "" && o.hasServerFlags() {
		return errors.New("the flags of the HTTP server require --listen-address")
	}
	if (o.Issuer == "") != (o.Audience == "") {
		return errors.New("--oidc-issuer and --oidc-audience are both required, but only one is set")
	}
	public, err := url.Parse(o.PublicURL)
	if err != nil || o.PublicURL != "" && !isServableURL(public) {
		return fmt.Errorf("--public-url %q is invalid: must be a URL such as https://mcp.example.com/mcp", o.PublicURL)
	}

	isReachableByOthers := o.Addr != "" && !httpserver.IsLoopback(o.Addr)
	if !isReachableByOthers {
		return nil
	}
	if o.Issuer == "" {
		return fmt.Errorf(
			"without --oidc-issuer, everyone who can reach %q would have the rights of this command; listen on a loopback address, or set the issuer",
			o.Addr,
		)
	}
	if public.Scheme != "https" {
		return errors.New("tokens would travel without TLS; set --public-url to the https:// address of the server")
	}
	return nil
}

// hasServerFlags reports whether any flag is set that is without effect unless the server listens.
func (o *httpOptions) hasServerFlags() bool {
	return o.PublicURL != "" ||
		o.Issuer != "" ||
		o.Audience != "" ||
		o.TLSCertFile != "" ||
		o.TLSKeyFile != ""
}

// isServableURL reports whether the server can be reached under a URL. Its path becomes a pattern of http.ServeMux,
// in which braces would be wildcards.
func isServableURL(u *url.URL) bool {
	isHTTP := u.Scheme == "http" || u.Scheme == "https"
	return isHTTP && u.Host != "" && !strings.ContainsAny(u.Path, "{}")
}

// defaultPublicURL returns the URL of a server without --public-url that listens on an address.
func (o *httpOptions) defaultPublicURL(listenAddress string) string {
	scheme := "http://"
	if o.TLSCertFile != "" {
		scheme = "https://"
	}
	return scheme + listenAddress + mcpPath
}

// perUserEnv holds the settings of commands that run for people. They contain no credentials. Commands do not
// inherit the credentials of the person who runs the server.
type perUserEnv map[string]string

// newPerUserEnv returns the settings of commands for people. Without an explicit kubeconfig, their token reaches no
// Kubernetes API.
func newPerUserEnv(cmd *cobra.Command, env cli.Env, kubeconfig, kubeContext string) (perUserEnv, error) {
	cfg, err := cli.LoadConfig(cmd, env)
	if err != nil {
		return nil, err
	}
	p := perUserEnv{
		"FLEETLOOP_SERVER":                   cfg.Server,
		"FLEETLOOP_CA_FILE":                  cfg.CAFile,
		"FLEETLOOP_REQUEST_TIMEOUT":          cfg.RequestTimeout.String(),
		"FLEETLOOP_INSECURE_SKIP_TLS_VERIFY": fmt.Sprint(cfg.InsecureTLS),
		"FLEETLOOP_NAMESPACE":                cfg.Namespace,
	}
	if cmd.Flags().Changed(kubeconfigFlag) {
		p["KUBECONFIG"] = kubeconfig
		p["FLEETLOOP_KUBE_CONTEXT"] = kubeContext
	}
	return p, nil
}

func (p perUserEnv) canUseKubernetes() bool { return p["KUBECONFIG"] != "" }

// limit returns the environment of commands for the person with a token.
func (p perUserEnv) limit(env cli.Env, token string) cli.Env {
	settings := withEnvOverrides(nil, p) // nothing of the environment of this process
	env.LookupEnv = withEnvOverrides(settings, map[string]string{"FLEETLOOP_TOKEN": token})
	env.HostToken = token
	return env
}

// tokenKey is the key of a person's token in the information about it.
const tokenKey = "token"

// tokenOf returns the verified token of a request.
func tokenOf(r mcp.Request) string {
	if extra := r.GetExtra(); extra != nil && extra.TokenInfo != nil {
		token, _ := extra.TokenInfo.Extra[tokenKey].(string)
		return token
	}
	return ""
}

// A lateHandler is a handler that is built only after the server has begun to listen.
type lateHandler struct{ http.Handler }

// serveHTTP serves over HTTP until ctx ends, and then until running calls have ended.
func (s *server) serveHTTP(ctx context.Context, o *httpOptions) error {
	s.calls = make(chan struct{}, maxCalls)
	log := slog.New(slog.NewTextHandler(s.env.Stderr, nil))

	// The handler depends on the public URL, and that on the port, which is known only when the server listens.
	// Requests wait until Run, so none of them meets the handler before it is built.
	handler := &lateHandler{}
	listener, err := httpserver.NewListeningServer(ctx, o.Config, handler, log)
	if err != nil {
		return err
	}
	if o.PublicURL == "" {
		o.PublicURL = o.defaultPublicURL(listener.Addr())
	}
	if handler.Handler, err = s.newHTTPHandler(o, log); err != nil {
		return errors.Join(err, listener.Close())
	}

	log.InfoContext(ctx, "serving", "url", o.PublicURL, "addr", listener.Addr())
	return listener.Run(ctx)
}

// newHTTPHandler returns the handler of all requests. There are no sessions: each request has its own token, and
// nothing of an earlier request can be reached by another person.
func (s *server) newHTTPHandler(o *httpOptions, log *slog.Logger) (http.Handler, error) {
	public, err := url.Parse(o.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("parse --public-url: %w", err)
	}
	mcpServer := s.newMCPServer()
	serverOf := func(*http.Request) *mcp.Server { return mcpServer }
	var endpoint http.Handler = mcp.NewStreamableHTTPHandler(serverOf, &mcp.StreamableHTTPOptions{
		Stateless:                    true,
		JSONResponse:                 true,
		PropagateRequestCancellation: true,
		MaxRequestBodyBytes:          maxRequestBody,
		DisableLocalhostProtection:   true, // checkHost also protects other addresses
	})
	mux := http.NewServeMux()
	if s.people != nil {
		metadataURL := *public
		metadataURL.Path = metadataPath + strings.TrimSuffix(public.Path, "/") // as RFC 9728 inserts it
		metadata := newMetadataHandler(o)
		mux.Handle(metadataPath, metadata)
		if metadataURL.Path != metadataPath {
			mux.Handle(metadataURL.Path, metadata)
		}
		if endpoint, err = requireToken(endpoint, o, metadataURL.String(), log); err != nil {
			return nil, err
		}
	}
	path := public.Path
	if strings.HasSuffix(path, "/") || path == "" {
		path = strings.TrimSuffix(path, "/") + "/{$}"
	}
	mux.Handle(path, endpoint)
	return checkHost(public.Host, http.NewCrossOriginProtection().Handler(mux)), nil
}

// newMetadataHandler tells clients which issuer they get tokens from.
func newMetadataHandler(o *httpOptions) http.Handler {
	return sdkauth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource:               o.PublicURL,
		AuthorizationServers:   []string{o.Issuer},
		BearerMethodsSupported: []string{"header"},
		ResourceName:           "Fleetloop",
	})
}

// requireToken returns a handler that refuses requests without a valid token and names the metadata to their senders.
func requireToken(next http.Handler, o *httpOptions, metadataURL string, log *slog.Logger) (http.Handler, error) {
	issuers := []auth.Issuer{{Issuer: o.Issuer, Audience: o.Audience}}
	authenticator, err := auth.New(auth.Config{Mode: auth.ModeBearer, Issuers: issuers}, auth.Deps{Log: log})
	if err != nil {
		return nil, err
	}
	options := &sdkauth.RequireBearerTokenOptions{ResourceMetadataURL: metadataURL}
	return sdkauth.RequireBearerToken(newVerifier(authenticator), options)(next), nil
}

// newVerifier returns the verification of tokens. It is that of the fleet API.
func newVerifier(who *auth.Authenticator) sdkauth.TokenVerifier {
	return func(ctx context.Context, token string, _ *http.Request) (*sdkauth.TokenInfo, error) {
		p, err := who.Authenticate(ctx, "Bearer "+token)
		if errors.Is(err, auth.ErrInvalidToken) {
			return nil, fmt.Errorf("%w: %w", sdkauth.ErrInvalidToken, err)
		}
		if err != nil {
			return nil, err
		}
		return &sdkauth.TokenInfo{UserID: p.Subject, Expiration: p.Expires, Extra: map[string]any{tokenKey: token}}, nil
	}
}

// checkHost refuses requests to other hosts. A web page whose host name resolves to this server sends such.
func checkHost(publicHost string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Host, publicHost) && !httpserver.IsLoopback(r.Host) {
			http.Error(w, "this server is not "+r.Host+"; its address is in --public-url", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// tryAcquireCallSlot limits the time of a call, whose request may have ended, and the number of calls at once.
func (s *server) tryAcquireCallSlot(ctx context.Context) (limited context.Context, end func(), err error) {
	if s.calls == nil {
		return ctx, func() {}, nil
	}
	select {
	case s.calls <- struct{}{}:
	default:
		return nil, nil, errors.New("too many calls at once; retry later")
	}
	limited, cancel := context.WithTimeoutCause(ctx, maxCallTime, errCallTimeout)
	return limited, func() { cancel(); <-s.calls }, nil
}
