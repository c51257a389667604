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

	"github.com/fleetloop/fleetloop/changeevent/egress"
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

// An answer is the result of one request.
type answer struct {
	class     Class // empty if the sink accepted the request
	retry     bool  // a retry may succeed
	permanent bool  // no retry can succeed
	status    int
	after     time.Duration // delay that the sink asks for, 0 if none
	text      string        // response body or error text
}

// mayHaveStaleKeys reports whether a retry with another credential or endpoint may succeed.
func (a answer) mayHaveStaleKeys() bool {
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// answerOf reads the response of a sink.
func answerOf(resp *http.Response, now time.Time) answer {
	a := answer{status: resp.StatusCode}
	a.class, a.retry = classOf(resp.StatusCode)
	a.permanent = a.class != "" && !a.retry
	if a.retry {
		a.after = requestedDelay(resp.Header, a.class, now)
	}
	body := io.LimitReader(resp.Body, maxAnswer)
	if a.class == "" {
		_, _ = io.Copy(io.Discard, body) // drain the body to reuse the connection; a read error does not matter, the event was accepted
		return a
	}
	said, _ := io.ReadAll(body) // use the part that could be read
	a.text = string(said)
	return a
}

// classOf returns the error class of a status, and whether a retry may succeed.
func classOf(status int) (class Class, retry bool) {
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

// requestedDelay returns the delay that a sink asks for. It reads Retry-After, in seconds or as
// a date, or X-RateLimit-Reset, in seconds or as a Unix time.
func requestedDelay(header http.Header, class Class, now time.Time) time.Duration {
	if wait, ok := parseSeconds(header.Get("Retry-After")); ok {
		return wait
	}
	if at, err := http.ParseTime(header.Get("Retry-After")); err == nil {
		return max(at.Sub(now), 0)
	}
	if class != ClassRateLimited {
		return 0
	}
	wait, _ := parseSeconds(header.Get("X-RateLimit-Reset"))
	if wait > sinceEpoch {
		wait = max(wait-time.Duration(now.Unix())*time.Second, 0)
	}
	return wait
}

func parseSeconds(text string) (d time.Duration, ok bool) {
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

// failureOf classifies the error of a request without a response.
func failureOf(ctx context.Context, err error) answer {
	a := answer{class: ClassConnection, retry: true, text: err.Error()}
	refused, isRefused := errors.AsType[*egress.DeniedError](err)
	unverified, isUnverified := errors.AsType[*tls.CertificateVerificationError](err)
	timeout, isNet := errors.AsType[net.Error](err)
	switch {
	case isRefused:
		a.class, a.retry, a.permanent, a.text = ClassAddressDenied, false, true, refused.Error()
	case errors.Is(context.Cause(ctx), errEnded):
		a.class, a.retry, a.text = ClassShutdown, false, errEnded.Error()
	case isUnverified: // needs a new certificate, which takes longer than all retries
		a.class, a.retry, a.text = ClassTLS, false, unverified.Error()
	case isOf[*net.DNSError](err):
		a.class = ClassDNS
	case isOf[tls.RecordHeaderError](err), errors.Is(err, http.ErrSchemeMismatch):
		a.class, a.retry = ClassTLS, false
	case isOf[tls.AlertError](err), strings.Contains(a.text, "tls: "):
		a.class = ClassTLS
	case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded), isNet && timeout.Timeout():
		a.class, a.text = ClassTimeout, errTimeout.Error()
	}
	return a
}

func isOf[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// shortenLine makes one short line for the log from untrusted text.
func shortenLine(text string) string {
	text = sanitizeLine(text)
	if utf8.RuneCountInString(text) <= maxQuoted {
		return text
	}
	return truncateText(text, maxQuoted)
}
