package changeevent

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// maxAnswer limits how many bytes of a response are read.
	maxAnswer = 64 << 10
	// maxQuoted limits how many characters of a response are logged.
	maxQuoted = 200
	// sinceEpoch separates durations from Unix times in X-RateLimit-Reset. It is longer
	// than any delay a sink asks for and shorter than the time since 1970.
	sinceEpoch = 1e8 * time.Second
)

// An attemptResult is the result of one request.
type attemptResult struct {
	class     Class // empty if the sink accepted the request
	retry     bool  // a retry may succeed
	permanent bool  // no retry can succeed
	status    int
	after     time.Duration // delay that the sink asks for, 0 if none
	text      string        // response body or error text
}

// mayHaveStaleKeys reports whether a retry with another credential or endpoint may succeed.
func (attempt attemptResult) mayHaveStaleKeys() bool {
	switch attempt.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// readResponse reads the response of a sink.
func readResponse(resp *http.Response, now time.Time) attemptResult {
	attempt := attemptResult{status: resp.StatusCode}
	attempt.class, attempt.retry = classifyStatus(resp.StatusCode)
	attempt.permanent = attempt.class != "" && !attempt.retry
	if attempt.retry {
		attempt.after = retryAfterOrRateLimitReset(resp.Header, attempt.class, now)
	}
	body := io.LimitReader(resp.Body, maxAnswer)
	if attempt.class == "" {
		_, _ = io.Copy(io.Discard, body) // drain the body to reuse the connection; a read error does not matter, the event was accepted
		return attempt
	}
	said, _ := io.ReadAll(body) // use the part that could be read
	attempt.text = string(said)
	return attempt
}

// classifyStatus returns the error class of a status, and whether a retry may succeed.
func classifyStatus(status int) (class Class, retryable bool) {
	switch status {
	case http.StatusUnauthorized:
		return ClassUnauthorized, false
	case http.StatusForbidden:
		return ClassForbidden, false
	case http.StatusNotFound:
		return ClassNotFound, false
	case http.StatusGone:
		return ClassGone, false
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return ClassRateLimited, true
	}
	switch {
	case status >= 200 && status < 300:
		return "", false
	case status >= 300 && status < 400:
		return ClassRedirect, false
	case status >= 500:
		return ClassServerError, true
	}
	return ClassClientError, false
}

// retryAfterOrRateLimitReset returns the delay that a sink asks for. It reads Retry-After, in seconds or as
// a date, or X-RateLimit-Reset, in seconds or as a Unix time.
func retryAfterOrRateLimitReset(header http.Header, class Class, now time.Time) time.Duration {
	if wait, ok := parseNonNegativeSeconds(header.Get("Retry-After")); ok {
		return wait
	}
	if at, err := http.ParseTime(header.Get("Retry-After")); err == nil {
		return max(at.Sub(now), 0)
	}
	if class != ClassRateLimited {
		return 0
	}
	wait, _ := parseNonNegativeSeconds(header.Get("X-RateLimit-Reset"))
	if wait > sinceEpoch {
		wait = max(wait-time.Duration(now.Unix())*time.Second, 0)
	}
	return wait
}

func parseNonNegativeSeconds(text string) (d time.Duration, ok bool) {
	const longest = int64(1<<63-1) / int64(time.Second)
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return 0, false
	}
	return time.Duration(min(n, longest)) * time.Second, true
}

var (
	errTimeout = errors.New("no response in time")
	errEnded   = errors.New("the client was closed")
)

// classifyRequestError classifies the error of a request without a response.
func classifyRequestError(ctx context.Context, err error) attemptResult {
	attempt := attemptResult{class: ClassConnection, retry: true, text: err.Error()}
	refused, isRefused := errors.AsType[*addressDeniedError](err)
	unverified, isUnverified := errors.AsType[*tls.CertificateVerificationError](err)
	timeout, isNet := errors.AsType[net.Error](err)
	switch {
	case isRefused:
		attempt.class, attempt.retry, attempt.permanent, attempt.text = ClassAddressDenied, false, true, refused.Error()
	case errors.Is(context.Cause(ctx), errEnded):
		attempt.class, attempt.retry, attempt.text = ClassShutdown, false, errEnded.Error()
	case isUnverified: // needs a new certificate, which takes longer than all retries
		attempt.class, attempt.retry, attempt.text = ClassTLS, false, unverified.Error()
	case hasErrorType[*net.DNSError](err):
		attempt.class = ClassDNS
	case hasErrorType[tls.RecordHeaderError](err), errors.Is(err, http.ErrSchemeMismatch):
		attempt.class, attempt.retry = ClassTLS, false
	case hasErrorType[tls.AlertError](err), strings.Contains(attempt.text, "tls: "):
		attempt.class = ClassTLS
	case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded), isNet && timeout.Timeout():
		attempt.class, attempt.text = ClassTimeout, errTimeout.Error()
	}
	return attempt
}

func hasErrorType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// sanitizeAndShortenLine makes one short line for the log from untrusted text.
func sanitizeAndShortenLine(text string) string {
	text = sanitizeLine(text)
	if utf8.RuneCountInString(text) <= maxQuoted {
		return text
	}
	return truncateText(text, maxQuoted)
}
