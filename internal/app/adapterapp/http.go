package adapterapp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fleetloop/fleetloop/adapter"
)

const (
	defaultRequestTimeout = 30 * time.Second
	maxOutput             = 1 << 20 // bytes of a response, or of the standard output of a command
)

var errRequestTimeout = errors.New("the timeout of the request expired")

// An httpAction sends one request.
type httpAction struct {
	method, userAgent  string
	client             *http.Client
	timeout            time.Duration
	success, permanent []string
	url                func(*scope) (string, error)
	headers            func(*scope) (map[string]string, error)
	body               value
	hasBody            bool
}

func (c *compiler) compileHTTPAction(key string, f HTTP, adapterName string) action {
	a := &httpAction{
		method:    textOrFallback(f.Method, http.MethodPost),
		userAgent: "fleetloop-adapter/" + adapterName,
		timeout:   f.Timeout,
		success:   f.Success,
		permanent: f.Permanent,
		url:       c.compileURL(key+".url", f.URL),
		headers:   c.compileTexts(key+".headers", f.Headers, c.secret),
		body:      c.compileTree(key+".body", f.Body.Value, c.secret),
		hasBody:   f.Body.Value != nil,
	}
	if a.timeout == 0 {
		a.timeout = defaultRequestTimeout
	}
	if len(a.success) == 0 {
		a.success = []string{"2xx"}
	}
	for field, list := range map[string][]string{"success": a.success, "permanent": a.permanent} {
		for i, pattern := range list {
			if !regexp.MustCompile(`^[1-5](xx|[0-9]{2})$`).MatchString(pattern) {
				c.recordError(fmt.Sprintf("%s.%s[%d]", key, field, i), fmt.Errorf("%q is no status such as 204 or 2xx", pattern))
			}
		}
	}
	if !regexp.MustCompile(`^[A-Z]+$`).MatchString(a.method) {
		c.recordError(key+".method", fmt.Errorf("%q is no method", a.method))
	}
	transport, err := newTransportTrustingOnly(f.CAFile)
	if err != nil {
		c.recordError(key+".ca_file", err)
	}
	a.client = &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the server that a redirect names must not receive the secrets
		},
	}
	return a
}

// pingAfter is the time without an answer after which an HTTP/2 connection is checked, and the time that the server has to
// answer that. Otherwise requests would wait on a dead connection for minutes.
const pingAfter = 5 * time.Second

func newTransportTrustingOnly(caFile string) (*http.Transport, error) {
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
		TLSHandshakeTimeout:    10 * time.Second,
	}
	if caFile == "" {
		return transport, nil
	}
	pem, err := os.ReadFile(caFile) //nolint:gosec // the file is the operator's
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", caFile)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return transport, nil
}

// compileURL compiles a URL with expressions in braces. An expression cannot change the host, add a segment
// or a parameter, or leave the path.
func (c *compiler) compileURL(key, text string) func(*scope) (string, error) {
	first, rest, templated := strings.Cut(text, "{")
	u, err := url.Parse(first)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		c.recordError(key, errors.New("must begin with http://HOST or https://HOST"))
	case u.User != nil || strings.Contains(text, "#"):
		c.recordError(key, errors.New("must have no user and no fragment"))
	case templated && u.Path == "":
		c.recordError(key, errors.New("an expression may only follow http://HOST/"))
	}
	parts := []func(*scope) (string, error){constantText(first)}
	query := strings.Contains(first, "?")
	for templated {
		expr, after, closed := strings.Cut(rest, "}")
		if !closed {
			c.recordError(key, errors.New("a { has no }"))
			break
		}
		parts = append(parts, c.compileURLValue(key, expr, query))
		var literal string
		literal, rest, templated = strings.Cut(after, "{")
		parts = append(parts, constantText(literal))
		query = query || strings.Contains(literal, "?")
	}
	return concatURLParts(key, parts)
}

// concatURLParts returns the parts of a URL as one. A part must not leave the path.
func concatURLParts(key string, escapedParts []func(*scope) (string, error)) func(*scope) (string, error) {
	return func(s *scope) (string, error) {
		var b strings.Builder
		for _, part := range escapedParts {
			v, err := part(s)
			if err != nil {
				return "", err
			}
			b.WriteString(v)
		}
		path, _, _ := strings.Cut(b.String(), "?")
		for segment := range strings.SplitSeq(path, "/") {
			if segment == "." || segment == ".." {
				return "", fmt.Errorf("evaluate %s: a segment of the path is %q", key, segment)
			}
		}
		return b.String(), nil
	}
}

func constantText(text string) func(*scope) (string, error) {
	return func(*scope) (string, error) { return text, nil }
}

// compileURLValue compiles an expression in a URL.
func (c *compiler) compileURLValue(key, expr string, inQuery bool) func(*scope) (string, error) {
	v := c.compileText(key, expressionPrefix+expr, c.resource)
	return func(s *scope) (string, error) {
		text, err := v(s)
		switch {
		case err != nil:
			return "", err
		case inQuery:
			return url.QueryEscape(text), nil
		case text == "":
			return "", fmt.Errorf("evaluate %s: the value of {%s} is empty", key, expr)
		}
		return url.PathEscape(text), nil
	}
}

// prepareStep implements action.
func (a *httpAction) prepareStep(s *scope) (step, error) {
	out := httpStep{action: a}
	var err error
	if out.url, err = a.url(s); err != nil {
		return nil, err
	}
	if out.headers, err = a.headers(s); err != nil {
		return nil, err
	}
	for name, v := range out.headers {
		if strings.ContainsFunc(v, unicode.IsControl) {
			return nil, fmt.Errorf("the header %s has a control character", name)
		}
	}
	if a.hasBody {
		if out.body, err = a.body(s); err == nil {
			out.encoded, err = encodeLimitedJSON(out.body)
		}
	}
	return out, err
}

// encodeLimitedJSON returns a value as JSON of limited size.
func encodeLimitedJSON(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err == nil && len(text) > maxValue {
		err = errValueTooLong
	}
	return text, err
}

type httpStep struct {
	action  *httpAction
	url     string
	headers map[string]string
	body    any
	encoded []byte
}

// describeForDryRun implements step.
func (h httpStep) describeForDryRun() map[string]any {
	out := map[string]any{"method": h.action.method, "url": h.url, "headers": h.headers}
	if h.action.hasBody {
		out["body"] = h.body
	}
	return map[string]any{"http": out}
}

// runStep implements step.
func (h httpStep) runStep(ctx context.Context) (map[string]any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.action.timeout, errRequestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, h.action.method, h.url, bytes.NewReader(h.encoded))
	if err != nil {
		return nil, adapter.Permanent(err)
	}
	req.Header.Set("User-Agent", h.action.userAgent)
	if h.action.hasBody {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, v := range h.headers {
		req.Header.Set(name, v)
	}
	resp, err := h.action.client.Do(req)
	if err != nil {
		return nil, addContextCause(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or the error is known
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput+1))
	if err != nil {
		return nil, addContextCause(ctx, fmt.Errorf("read response of %s %s: %w", h.action.method, h.url, err))
	}
	if err := h.action.checkResponseStatus(resp); err != nil {
		return nil, fmt.Errorf("%s %s: %w", h.action.method, h.url, err)
	}
	if len(body) > maxOutput {
		return nil, adapter.Permanent(fmt.Errorf("%s %s: the response exceeds %d bytes", h.action.method, h.url, maxOutput))
	}
	headers := map[string]any{}
	for name := range resp.Header {
		headers[strings.ToLower(name)] = resp.Header.Get(name)
	}
	return map[string]any{
		"status":  int64(resp.StatusCode),
		"headers": headers,
		"text":    string(body),
		"json":    decodeJSONOrNil(body),
	}, nil
}

// addContextCause adds the cause of a context that has ended.
func addContextCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// checkResponseStatus returns the error of an unsuccessful status.
func (a *httpAction) checkResponseStatus(resp *http.Response) error {
	code := strconv.Itoa(resp.StatusCode)
	matches := func(list []string) bool { return slices.Contains(list, code) || slices.Contains(list, code[:1]+"xx") }
	if matches(a.success) {
		return nil
	}
	var err error = statusError{resp.StatusCode, parseRetryAfter(resp.Header.Get("Retry-After"))}
	if matches(a.permanent) || len(a.permanent) == 0 && isPermanentStatus(resp.StatusCode) {
		err = adapter.Permanent(err)
	}
	return err
}

// isPermanentStatus reports whether the same request would fail again. Permissions, conflicts and
// rate limits may change.
func isPermanentStatus(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return code >= 300 && code < 500
}

// A statusError is an unsuccessful response.
type statusError struct {
	code  int
	after time.Duration
}

// Error implements error.
func (e statusError) Error() string { return fmt.Sprintf("status %d", e.code) }

// RetryAfter returns the delay that the server asked for.
func (e statusError) RetryAfter() time.Duration { return e.after }

func parseRetryAfter(header string) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return time.Until(at)
	}
	return 0
}
