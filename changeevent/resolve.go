package changeevent

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Limits of the requests and the queue of a client.
const (
	maxConcurrentRequests = 64
	maxQueue              = 1 << 16
)

// defaultAndCheckConfig validates an enabled configuration and sets the defaults of zero fields.
// It reads no file.
func defaultAndCheckConfig(cfg Config) (Config, error) {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if (cfg.Endpoint == "") == (cfg.EndpointFile == "") {
		refuse("exactly one of Endpoint and EndpointFile is required")
	}
	if cfg.ClusterName == "" {
		refuse("ClusterName is required")
	} else if err := validatePathSegment(cfg.ClusterName); err != nil {
		refuse("ClusterName: %w", err)
	}
	format, err := ParseFormat(string(cfg.Format))
	if err != nil {
		refuse("Format: %w", err)
	}
	cfg.Format = format
	if cfg.BaseFieldsOnly && format != FormatJSON {
		refuse("BaseFieldsOnly requires the format %[2]q, not %[1]q", format, FormatJSON)
	}
	for i, link := range cfg.Links {
		if err := link.Validate(); err != nil {
			refuse("Links[%d]: %w", i, err)
		}
	}
	cfg.Name = cmp.Or(cfg.Name, DefaultName)
	cfg.Source = cmp.Or(cfg.Source, SourceFaultQuarantine)
	cfg, err = defaultAndCheckCredential(cfg)
	errs = append(errs, err, defaultAndCheckSizes(&cfg), defaultAndCheckDurations(&cfg))
	if err := errors.Join(errs...); err != nil {
		return Config{}, fmt.Errorf("configure change events of sink %q: %w", cfg.Name, err)
	}
	cfg.Actions = slices.Clone(cfg.Actions)
	cfg.Links = slices.Clone(cfg.Links)
	return cfg, nil
}

// defaultAndCheckSizes sets the defaults for batches, requests and queues.
func defaultAndCheckSizes(cfg *Config) error {
	if cfg.BatchWait == 0 {
		cfg.BatchWait = formatSpecOrJSON(cfg.Format).wait
	}
	if cfg.BatchWait > 0 && formatSpecOrJSON(cfg.Format).batch == 1 {
		return fmt.Errorf("BatchWait is not supported: format %q has one event per request", cfg.Format)
	}
	if cfg.MaxConcurrentRequests == 0 {
		switch {
		case cfg.BatchWait > 0:
			cfg.MaxConcurrentRequests = 1
		case cfg.SenderRetries:
			cfg.MaxConcurrentRequests = DefaultSenderRetryMaxConcurrentRequests
		default:
			cfg.MaxConcurrentRequests = DefaultMaxConcurrentRequests
		}
	}
	if cfg.MaxConcurrentRequests < 1 || cfg.MaxConcurrentRequests > maxConcurrentRequests {
		return fmt.Errorf("field MaxConcurrentRequests is %d, must be 1 to %d", cfg.MaxConcurrentRequests, maxConcurrentRequests)
	}
	if cfg.QueueSize == 0 {
		cfg.QueueSize = DefaultQueueSize / cfg.MaxConcurrentRequests
	}
	if cfg.QueueSize < 1 || cfg.QueueSize > maxQueue {
		return fmt.Errorf("QueueSize is %d, must be 1 to %d", cfg.QueueSize, maxQueue)
	}
	if cfg.SenderRetries {
		cfg.Retry.MaxAttempts = 1
	}
	if cfg.Retry.MaxAttempts < 0 {
		return fmt.Errorf("Retry.MaxAttempts is %d, must not be negative", cfg.Retry.MaxAttempts)
	}
	return nil
}

// defaultAndCheckDurations sets the defaults of the durations. A negative duration is an error,
// because each request would fail at once.
func defaultAndCheckDurations(cfg *Config) error {
	var errs []error
	for _, d := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"Timeout", &cfg.Timeout, DefaultTimeout},
		{"ShutdownTimeout", &cfg.ShutdownTimeout, DefaultShutdownTimeout},
		{"MaxAge", &cfg.MaxAge, DefaultMaxAge},
		{"BatchWait", &cfg.BatchWait, 0},
		{"Retry.InitialInterval", &cfg.Retry.InitialInterval, DefaultRetryInitialInterval},
		{"Retry.MaxInterval", &cfg.Retry.MaxInterval, DefaultRetryMaxInterval},
		{"Retry.MaxElapsedTime", &cfg.Retry.MaxElapsedTime, DefaultRetryMaxElapsedTime},
	} {
		if *d.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %s, must not be negative", d.name, *d.value))
		}
		*d.value = cmp.Or(*d.value, d.zero)
	}
	return errors.Join(errs...)
}

// defaultAndCheckCredential puts the credential into a header or into the body, as the format requires.
func defaultAndCheckCredential(cfg Config) (Config, error) {
	d := formatSpecOrJSON(cfg.Format)
	if cfg.AuthToken != "" && cfg.AuthTokenFile != "" {
		return cfg, errors.New("AuthToken and AuthTokenFile are both set: remove one of them")
	}
	if cfg.RoutingKey != "" && cfg.RoutingKeyFile != "" {
		return cfg, errors.New("RoutingKey and RoutingKeyFile are both set: remove one of them")
	}
	if d.key && cfg.RoutingKey == "" && cfg.RoutingKeyFile == "" {
		cfg.RoutingKey, cfg.RoutingKeyFile = Secret(cfg.AuthToken), cfg.AuthTokenFile
		cfg.AuthToken, cfg.AuthTokenFile = "", ""
	}
	if d.key && cfg.RoutingKey == "" && cfg.RoutingKeyFile == "" {
		return cfg, fmt.Errorf("format %q requires RoutingKey or RoutingKeyFile", cfg.Format)
	}
	if cfg.AuthToken == "" && cfg.AuthTokenFile == "" {
		return cfg, nil
	}
	if cfg.AuthHeader == "" {
		cfg.AuthHeader = d.authHeader
	}
	if cfg.AuthHeader == "" {
		return cfg, fmt.Errorf("AuthHeader is required with a token: format %q has no default header", cfg.Format)
	}
	cfg.AuthHeader = http.CanonicalHeaderKey(cfg.AuthHeader)
	if cfg.AuthScheme == "" && strings.EqualFold(cfg.AuthHeader, d.authHeader) {
		cfg.AuthScheme = d.authScheme
	}
	return cfg, errors.Join(validateAuthHeader(cfg.AuthHeader), rejectControlCharacters("AuthScheme", cfg.AuthScheme))
}

// validateAuthHeader rejects invalid header names, and headers that control how a request is
// parsed.
func validateAuthHeader(name string) error {
	if strings.ContainsFunc(name, isInvalidHeaderNameRune) {
		return fmt.Errorf("AuthHeader %q is not a valid header name: use letters, digits and hyphens", name)
	}
	switch name {
	case "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return fmt.Errorf("AuthHeader %q must not carry a credential", name)
	}
	return nil
}

func isInvalidHeaderNameRune(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// rejectControlCharacters rejects control characters, which would end a header. The error does not
// contain the value.
func rejectControlCharacters(what, value string) error {
	if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7F }) {
		return fmt.Errorf("%s must be one line without control characters", what)
	}
	return nil
}

// parseAndCheckEndpoint parses the URL of a sink. Plain http is allowed for a loopback host, for
// one of allowHosts, or with allowHTTP. The error does not contain the URL, which is
// secret for some sinks.
func parseAndCheckEndpoint(text string, allowHTTP bool, allowHTTPHostPorts ...string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the Endpoint is not a valid URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("the Endpoint must begin with https://")
	case u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("the Endpoint has no host")
	case u.User != nil:
		return nil, errors.New("the Endpoint must not contain a user or password: use AuthToken")
	case u.Fragment != "":
		return nil, errors.New("the Endpoint must not contain a fragment")
	case u.Scheme == "http" && !allowHTTP && !isLoopback(u.Hostname()) && !containsHostPort(net.JoinHostPort(u.Hostname(), portOrSchemeDefault(u)), allowHTTPHostPorts):
		return nil, errors.New("the Endpoint uses plain http: use https or set AllowHTTP")
	}
	return u, nil
}

// containsHostPort reports whether hosts, as host:port, contain addr.
func containsHostPort(addr string, hosts []string) bool {
	return slices.ContainsFunc(hosts, func(host string) bool { return strings.EqualFold(host, addr) })
}

// validateHostPorts rejects hosts that are not host:port, as they would never match.
func validateHostPorts(hosts []string) error {
	for _, h := range hosts {
		if host, port, err := net.SplitHostPort(h); err != nil || host == "" || port == "" {
			return fmt.Errorf("%q must be host:port, such as fleet-api.example:8080", h)
		}
	}
	return nil
}

// isLoopback reports whether a host is localhost or a loopback address.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// appendPathSegment appends an escaped segment to the path of the endpoint. An empty segment
// leaves the endpoint unchanged.
func appendPathSegment(endpoint *url.URL, escapedSegment string) (*url.URL, error) {
	if escapedSegment == "" {
		return endpoint, nil
	}
	u := *endpoint
	u.RawPath = strings.TrimRight(endpoint.EscapedPath(), "/") + "/" + escapedSegment
	path, err := url.PathUnescape(u.RawPath)
	if err != nil {
		return nil, fmt.Errorf("append cluster to endpoint: %w", err)
	}
	u.Path = path
	return &u, nil
}
