package changeevent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"sync/atomic"
	"time"
)

// A transport connects to the sink.
type transport struct {
	*http.Transport
	guard, local addressGuard // local also allows loopback
	private      addressGuard // for allowHosts
	allowHosts   []string
	proxy        atomic.Pointer[string]
	timeout      time.Duration
	caFile       string
}

// newTransport creates the transport to the sink. It opens no connection.
func newTransport(cfg Config) (*transport, error) {
	allow, err := parseAllowedAddresses(cfg.AllowAddresses)
	if err != nil {
		return nil, fmt.Errorf("AllowAddresses: %w", err)
	}
	if err := validateHostPorts(cfg.AllowHosts); err != nil {
		return nil, fmt.Errorf("AllowHosts: %w", err)
	}
	proxy, err := proxySelector(cfg.ProxyURL)
	if err != nil {
		return nil, fmt.Errorf("ProxyURL: %w", err)
	}
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	t := &transport{
		guard: addressGuard{allow: allow}, local: addressGuard{allow: append(loopback, allow...)},
		private: addressGuard{allow: append(privateNetworksToAllow(), allow...)}, allowHosts: cfg.AllowHosts,
		timeout: cfg.Timeout, caFile: cfg.CAFile,
	}
	// Only HTTP/1: a request that times out closes its connection, whereas HTTP/2 would
	// reuse a dead connection for the next request.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	t.Transport = &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) {
			u, err := proxy(r)
			if u != nil {
				addr := net.JoinHostPort(u.Hostname(), portOrSchemeDefault(u))
				t.proxy.Store(&addr)
			}
			return u, err
		},
		DialContext:            t.dialProxyOrAllowed,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    cfg.Timeout,
		DisableCompression:     true,
		MaxConnsPerHost:        cfg.MaxConcurrentRequests,
		MaxIdleConnsPerHost:    cfg.MaxConcurrentRequests,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxAnswer,
		Protocols:              &protocols,
	}
	return t, nil
}

// loadRootsOnce reads the CA certificates of the sink, unless they are loaded. It must be
// called before the first request, and not concurrently.
func (t *transport) loadRootsOnce() error {
	if t.TLSClientConfig.RootCAs != nil {
		return nil
	}
	roots, err := readCACertificates(t.caFile)
	if err != nil {
		return fmt.Errorf("CAFile: %w", err)
	}
	t.TLSClientConfig.RootCAs = roots
	return nil
}

// checkLiteralIPAllowed returns an error if the address of an endpoint is denied, so that
// NewClient fails rather than each event.
func (t *transport) checkLiteralIPAllowed(endpoint *url.URL) error {
	addr, err := netip.ParseAddr(endpoint.Hostname())
	if err != nil {
		return nil //nolint:nilerr // it is a name, which may lead elsewhere each time
	}
	if u, err := t.Proxy(&http.Request{URL: endpoint}); err != nil || u != nil {
		return err
	}
	return t.guardForHost(endpoint.Hostname(), portOrSchemeDefault(endpoint)).check(addr)
}

// guardForHost returns the guard for an endpoint's host and port.
func (t *transport) guardForHost(host, port string) addressGuard {
	switch {
	case isLoopback(host):
		return t.local
	case containsHostPort(net.JoinHostPort(host, port), t.allowHosts):
		return t.private
	}
	return t.guard
}

// dialProxyOrAllowed connects to the proxy, or to an address that the guard allows.
func (t *transport) dialProxyOrAllowed(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: t.timeout, KeepAlive: 15 * time.Second}
	if proxy := t.proxy.Load(); proxy == nil || *proxy != addr {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		d.Control = t.guardForHost(host, port).control
	}
	return d.DialContext(ctx, network, addr)
}

func readCACertificates(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file) //nolint:gosec // which file it is, is for the configuration to say
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%q contains no PEM certificate", file)
	}
	return roots, nil
}

// proxySelector returns the function that selects the proxy of a request.
func proxySelector(text string) (func(*http.Request) (*url.URL, error), error) {
	if text == "" {
		return http.ProxyFromEnvironment, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || portOrSchemeDefault(u) == "" {
		return nil, errors.New("must be a URL with the scheme http, https, socks5 or socks5h") // without the URL, which may contain a password
	}
	return http.ProxyURL(u), nil
}

// portOrSchemeDefault returns the port of a sink or a proxy, or "" if its scheme is not supported.
func portOrSchemeDefault(u *url.URL) string {
	var port string
	switch u.Scheme {
	case "http":
		port = "80"
	case "https":
		port = "443"
	case "socks5", "socks5h":
		port = "1080"
	default:
		return ""
	}
	if own := u.Port(); own != "" {
		return own
	}
	return port
}
