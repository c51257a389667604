// Package fleetclient calls the fleet API over HTTP.
//
// Every request has a timeout, which includes reading the response body, and bodies have a maximum
// size. For streams only the silence of the server is limited. After a 401 the client sends the
// request once more if the token file contains another token by then. The package retries nothing
// else: an unsuccessful response is an *Error, which states whether and when a retry makes sense,
// and a missing response is ErrUnreachable.
package fleetclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Defaults of the zero fields of Config.
const (
	DefaultTimeout   = 10 * time.Second
	DefaultMaxBody   = 64 << 20
	DefaultUserAgent = "fleetloop"
)

// maxRedirects limits the redirects of one request.
const maxRedirects = 5

// Config selects the server and configures the requests.
type Config struct {
	// Endpoint is the server's URL. Its path precedes v1.BasePath, which the URL may include or
	// omit.
	Endpoint string

	// Token is the bearer token. At most one of Token and TokenFile is set;
	// neither means that requests are anonymous.
	Token settings.Secret

	// TokenFile is a file with the bearer token. It is read again when it changes, so a token that
	// is rotated in place needs no restart.
	TokenFile string

	// CAFile is a file with the certificate authorities (PEM) of the server's certificate. Empty
	// means those of the system.
	CAFile string

	// Header is sent with every request, for gateways that require more than a token.
	Header http.Header

	// Timeout limits one request, including reading the response body. Zero means DefaultTimeout.
	Timeout time.Duration

	// MaxBody limits a response body in bytes. Zero means DefaultMaxBody.
	MaxBody int64

	// UserAgent is the User-Agent of the client. Empty means DefaultUserAgent.
	UserAgent string
}

// Deps holds the optional dependencies of a client. The zero value works.
type Deps struct {
	// Wrap wraps or replaces the client's transport.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// A Client calls one fleet API. It is safe for concurrent use.
type Client struct {
	base      string // scheme, host and path up to and including v1.BasePath
	http      *http.Client
	transport *http.Transport
	token     *tokenSource
	header    http.Header
	timeout   time.Duration
	maxBody   int64
}

// New checks cfg and returns a client. It sends nothing, but a token file must be readable.
func New(cfg Config, deps Deps) (*Client, error) {
	base, err := baseURL(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout < 0 || cfg.MaxBody < 0 {
		return nil, fmt.Errorf("timeout %s and body limit %d must not be negative", cfg.Timeout, cfg.MaxBody)
	}
	token, err := newTokenSource(cfg.Token, cfg.TokenFile)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	var rt http.RoundTripper = transport
	if deps.Wrap != nil {
		rt = deps.Wrap(rt)
	}

	header, err := checkHeader(cfg.Header)
	if err != nil {
		return nil, err
	}
	if header.Get("Authorization") != "" && (cfg.Token != "" || cfg.TokenFile != "") {
		return nil, errors.New("both a token and a header \"Authorization\" are set; set only one")
	}
	header.Set("Accept", "application/json, application/problem+json")
	header.Set("User-Agent", orDefault(cfg.UserAgent, DefaultUserAgent))
	return &Client{
		base:      base,
		http:      &http.Client{Transport: rt, CheckRedirect: checkRedirect},
		transport: transport,
		token:     token,
		header:    header,
		timeout:   orDefault(cfg.Timeout, DefaultTimeout),
		maxBody:   orDefault(cfg.MaxBody, DefaultMaxBody),
	}, nil
}

// checkHeader returns a copy of h. It rejects fields that net/http would reject in each request,
// without showing a value.
func checkHeader(h http.Header) (http.Header, error) {
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

// Endpoint is the URL under which the client finds the collections.
func (c *Client) Endpoint() string { return c.base }

// CloseIdle closes the connections that no request uses just now.
func (c *Client) CloseIdle() { c.transport.CloseIdleConnections() }

// Nested names the children of one kind under one parent. It stands where a
// collection is asked for.
func Nested(parents, parentID, children string) string {
	return parents + "/" + url.PathEscape(parentID) + "/" + children
}

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

// baseURL returns the URL of the collections. An endpoint host:port means http,
// as it does to curl.
func baseURL(endpoint string) (string, error) {
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

func newTransport(caFile string) (*http.Transport, error) {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
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
	if caFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caFile) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("read CA file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read CA file %q: it contains no PEM certificate", caFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

// checkRedirect follows a redirect only where the token may go and only for
// a request without effects; otherwise the redirect itself is the answer.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > maxRedirects || first.Method != http.MethodGet ||
		req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
