package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// Defaults of the zero fields of Config.
const (
	DefaultTimeout     = 10 * time.Second
	DefaultMaxBody     = 64 << 20
	DefaultMaxAttempts = 4
	DefaultUserAgent   = "fleetloop"
)

// maxRedirects limits the redirects of one request.
const maxRedirects = 5

// Config selects the server and configures the requests. Only Endpoint is required.
type Config struct {
	// Endpoint is the server's URL. Its path precedes v1.BasePath, which the URL may include or omit.
	Endpoint string

	// Token is the source of the bearer token. Nil means that requests are anonymous.
	Token TokenSource

	// Impersonate names another principal with whose rights the requests are answered. The client first asks the
	// server whether it supports this.
	Impersonate Impersonation

	// CAFile is a file with the certificate authorities (PEM) of the server's certificate. Empty
	// means those of the system.
	CAFile string

	// ClientCertFile and ClientKeyFile are a certificate (PEM) that identifies the client, and its key. Set
	// both or none.
	ClientCertFile, ClientKeyFile string

	// InsecureSkipVerify accepts any certificate of the server. Others on the network can then read the token
	// and change requests: use it for tests only.
	InsecureSkipVerify bool

	// Header is sent with every request, for gateways that require more than a token.
	Header http.Header

	// Timeout limits one attempt of a request, including reading the response body. Zero means DefaultTimeout.
	Timeout time.Duration

	// ReadLatest makes each read find all writes, also those of other clients: a server with a standby then reads from
	// its primary. Otherwise a read finds only the writes of the client itself.
	ReadLatest bool

	// MaxBody limits a response body in bytes. Zero means DefaultMaxBody.
	MaxBody int64

	// MaxAttempts limits how often a request is sent. Zero means DefaultMaxAttempts, and 1 means no retries.
	MaxAttempts int

	// UserAgent is the User-Agent of the client. Empty means DefaultUserAgent.
	UserAgent string

	// WrapTransport wraps or replaces the HTTP transport, for example to add traces. Nil means
	// that the transport is used as it is.
	WrapTransport func(http.RoundTripper) http.RoundTripper

	// Logger receives a debug message for each retry and reconnect. Nil means none.
	Logger *slog.Logger
}

// A Client calls one fleet API. It is safe for concurrent use.
type Client struct {
	caller *caller
}

// New checks cfg and returns a client. It sends nothing, but files must be readable.
func New(cfg Config) (*Client, error) {
	base, err := apiBaseURL(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout < 0 || cfg.MaxBody < 0 || cfg.MaxAttempts < 0 {
		return nil, fmt.Errorf("timeout %s, body limit %d and attempts %d must not be negative", cfg.Timeout, cfg.MaxBody, cfg.MaxAttempts)
	}
	transport, err := newTransport(cfg)
	if err != nil {
		return nil, err
	}
	var roundTripper http.RoundTripper = transport
	if cfg.WrapTransport != nil {
		roundTripper = cfg.WrapTransport(transport)
	}
	header, err := newHeader(cfg)
	if err != nil {
		return nil, err
	}
	c := &Client{&caller{
		base:        base,
		http:        &http.Client{Transport: roundTripper, CheckRedirect: followOnlySameHostGET},
		transport:   transport,
		header:      header,
		reads:       &readTokens{all: cfg.ReadLatest},
		timeout:     cmp.Or(cfg.Timeout, DefaultTimeout),
		maxBody:     cmp.Or(cfg.MaxBody, DefaultMaxBody),
		maxAttempts: cmp.Or(cfg.MaxAttempts, DefaultMaxAttempts),
		log:         cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
	}}
	if !cfg.Impersonate.isZero() {
		c.caller.impersonator = &impersonator{who: cfg.Impersonate}
	}
	return c.WithToken(cfg.Token)
}

// newHeader returns the header of all requests.
func newHeader(cfg Config) (http.Header, error) {
	header, err := validateAndCloneHeader(cfg.Header)
	if err != nil {
		return nil, err
	}
	for name := range header {
		if v1.IsImpersonationHeader(name) {
			return nil, fmt.Errorf("the header %q is set; use Config.Impersonate, which checks that the server knows it", name)
		}
	}
	if err := cfg.Impersonate.addTo(header); err != nil {
		return nil, err
	}
	header.Set("Accept", "application/json, application/problem+json")
	header.Set("User-Agent", cmp.Or(cfg.UserAgent, DefaultUserAgent))
	return header, nil
}

// WithToken returns a client with another token, for programs that act for several people. It
// shares the connections of c.
func (c *Client) WithToken(token TokenSource) (*Client, error) {
	if token != nil && c.caller.header.Get("Authorization") != "" {
		return nil, errors.New("both a token and a header \"Authorization\" are set; set only one")
	}
	if checked, ok := token.(interface{ check() error }); ok {
		if err := checked.check(); err != nil {
			return nil, err
		}
	}
	with := *c.caller
	with.token = token
	if c.caller.impersonator != nil {
		with.impersonator = &impersonator{who: c.caller.impersonator.who}
	}
	return &Client{&with}, nil
}

// Endpoint is the URL under which the client finds the collections.
func (c *Client) Endpoint() string { return c.caller.base }

// CloseIdle closes the connections that no request uses just now. The client remains usable.
func (c *Client) CloseIdle() { c.caller.transport.CloseIdleConnections() }

// Collection returns the client of a collection, such as v1.CollectionWorkloads or one that Nested returns.
func (c *Client) Collection(name string) *Collection {
	return &Collection{caller: c.caller, path: name}
}

// Clusters returns the client of clusters.
func (c *Client) Clusters() *Collection { return c.Collection(v1.CollectionClusters) }

// NodePools returns the client of the node pools of all clusters. To create a node pool, use the
// collection of its cluster, which Nested returns.
func (c *Client) NodePools() *Collection { return c.Collection(v1.CollectionNodePools) }

// Reporter returns the client of an adapter.
func (c *Client) Reporter() *Reporter { return &Reporter{c} }

// Syncs returns the client of cluster syncs to Gardener.
func (c *Client) Syncs() *Syncs { return &Syncs{c.caller} }

// ChangeEvents returns the client of the timeline.
func (c *Client) ChangeEvents() *ChangeEvents { return &ChangeEvents{c.caller} }

// Schemas returns the client of the schemas of specs.
func (c *Client) Schemas() *Schemas { return &Schemas{c.caller} }

// Raw returns the client for callers that decode responses themselves.
func (c *Client) Raw() *Raw { return &Raw{c.caller} }

// WhoAmI returns the identity of the caller in the API. An error for which IsNotFound is true means
// that the server does not support this.
func (c *Client) WhoAmI(ctx context.Context) (identity v1.Identity, err error) {
	identity, err = call[v1.Identity](ctx, c.caller, request{method: http.MethodGet, root: v1.WhoAmIPath}, nil)
	if err == nil {
		err = c.caller.impersonator.confirmAndRememberIdentity(identity)
	}
	return identity, err
}

// CanI asks whether the caller may use a verb on resources of a collection, or on one resource by its name or id.
func (c *Client) CanI(ctx context.Context, verb v1.Verb, collection, name string) (v1.Permission, error) {
	q := url.Values{"verb": {string(verb)}, "resource": {collection}}
	if name != "" {
		q.Set("name", name)
	}
	return call[v1.Permission](ctx, c.caller, request{method: http.MethodGet, root: v1.CanIPath, query: q}, nil)
}

// Nested names the children of one kind under one parent. It stands where a collection is asked for.
func Nested(parents, parentID, children string) string {
	return parents + "/" + url.PathEscape(parentID) + "/" + children
}

// validateAndCloneHeader returns a copy of h. It rejects fields that net/http would reject in each request,
// without showing a value.
func validateAndCloneHeader(h http.Header) (http.Header, error) {
	for name, values := range h {
		if name == "" || strings.ContainsFunc(name, notInName) {
			return nil, fmt.Errorf("%q is not a header name; use letters, digits and hyphens", name)
		}
		for _, value := range values {
			if strings.ContainsFunc(value, notInValue) {
				return nil, fmt.Errorf("the value of header %q contains a control character; use one line of text", name)
			}
		}
	}
	if h == nil {
		return http.Header{}, nil
	}
	return h.Clone(), nil
}

func notInName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

func notInValue(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// isHostPort reports whether an endpoint is host:port, with or without a path.
func isHostPort(endpoint string) bool {
	authority, _, _ := strings.Cut(endpoint, "/")
	authority = authority[strings.LastIndex(authority, "@")+1:] // a password is refused later, without showing it
	host, port, err := net.SplitHostPort(authority)
	if err != nil || host == "" {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// apiBaseURL returns the URL of the collections. An endpoint host:port means http,
// as it does to curl.
func apiBaseURL(endpoint string) (string, error) {
	if endpoint == "" {
		return "", errors.New("the URL of the fleet API is not set; set it to a URL such as http://127.0.0.1:8080")
	}
	if isHostPort(endpoint) {
		endpoint = "http://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		if parseErr, ok := errors.AsType[*url.Error](err); ok {
			err = parseErr.Err // the text around it repeats a URL that may hold a password
		}
		return "", fmt.Errorf("parse the URL of the fleet API: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "", fmt.Errorf("%q is not a URL of the fleet API; use http://host:port or https://host:port", u.Redacted())
	case u.User != nil:
		return "", fmt.Errorf("the URL of the fleet API %q contains a user name or password; use a token instead", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("the URL of the fleet API %q contains a query or fragment; remove it", u.Redacted())
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	path = strings.TrimSuffix(path, v1.BasePath)
	return u.Scheme + "://" + u.Host + path + v1.BasePath, nil
}

const (
	// pingAfter is the time without an answer from the server after which a connection is checked.
	pingAfter = 5 * time.Second
	// pingTimeout is the time after which a checked connection is closed.
	pingTimeout = 5 * time.Second
)

func newTransport(cfg Config) (*http.Transport, error) {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		// Requests share a connection. Without pings, they would wait on a dead one
		// until TCP gives it up, which takes minutes.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		// The default of two idle connections makes concurrent callers dial
		// anew for every request but two.
		MaxIdleConns:        128,
		MaxIdleConnsPerHost: 128,
		IdleConnTimeout:     90 * time.Second,
		// How long a load waits to be asked for its lines.
		ExpectContinueTimeout: time.Second,
		// A page is decoded as it comes; unpacking would cost more than the
		// bytes it saves inside one network.
		DisableCompression: true,
	}
	var err error
	t.TLSClientConfig, err = newTLSConfig(cfg)
	return t, err
}

func newTLSConfig(cfg Config) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: cfg.InsecureSkipVerify} //nolint:gosec // the user chose it
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA file %q: it contains no PEM certificate", cfg.CAFile)
		}
		c.RootCAs = pool
	}
	if (cfg.ClientCertFile == "") != (cfg.ClientKeyFile == "") {
		return nil, errors.New("a client certificate needs its key, and the key needs its certificate: set both files or none")
	}
	if cfg.ClientCertFile != "" {
		pair, err := tls.LoadX509KeyPair(cfg.ClientCertFile, cfg.ClientKeyFile)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// followOnlySameHostGET follows a redirect only where the token may go and only for
// a request without effects; otherwise the redirect itself is the answer.
func followOnlySameHostGET(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > maxRedirects || first.Method != http.MethodGet ||
		req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}
