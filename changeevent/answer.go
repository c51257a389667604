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
	// maxAnswer bounds how much of an answer is read, in bytes.
	maxAnswer = 64 << 10
	// maxQuoted bounds how much of an answer is logged, in characters.
	maxQuoted = 200
	// sinceEpoch is more than any sink asks to wait, and less than any time has
	// passed since 1970.
	sinceEpoch = 1e8 * time.Second
)

// An answer is what came of a request.
type answer struct {
	class     Class // "" if a sink has taken it
	retry     bool  // another try, now or soon, may do better
	permanent bool  // none will
	status    int
	after     time.Duration // how long the sink asks to wait, 0 if it does not
	text      string        // what it said, or what went wrong
}

// renewable says that another credential, or another endpoint, may do better.
func (a answer) renewable() bool {
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// answerOf reads what a sink answered.
func answerOf(resp *http.Response, now time.Time) answer {
	a := answer{status: resp.StatusCode}
	a.class, a.retry = classOf(resp.StatusCode)
	a.permanent = a.class != "" && !a.retry
	if a.retry {
		a.after = askedFor(resp.Header, a.class, now)
	}
	body := io.LimitReader(resp.Body, maxAnswer)
	if a.class == "" {
		_, _ = io.Copy(io.Discard, body) // for the sake of the connection; the event was taken, whatever comes now
		return a
	}
	said, _ := io.ReadAll(body) // half of an explanation is better than none
	a.text = string(said)
	return a
}

// classOf is the class of a status, and whether another try may do better.
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

// askedFor is how long a sink asks to be left alone: by Retry-After, in seconds
// or as a date, or by X-RateLimit-Reset, in seconds or as a time since 1970.
func askedFor(h http.Header, class Class, now time.Time) time.Duration {
	if wait, ok := inSeconds(h.Get("Retry-After")); ok {
		return wait
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return max(at.Sub(now), 0)
	}
	if class != ClassRateLimited {
		return 0
	}
	wait, _ := inSeconds(h.Get("X-RateLimit-Reset"))
	if wait > sinceEpoch {
		wait = max(wait-time.Duration(now.Unix())*time.Second, 0)
	}
	return wait
}

func inSeconds(text string) (time.Duration, bool) {
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

// failureOf says what kept an answer away.
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
	case isUnverified: // until somebody changes a certificate, which takes longer than the waits
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

// quoteLine makes a line for the log of what others have written.
func quoteLine(text string) string {
	text = mendLine(text)
	if utf8.RuneCountInString(text) <= maxQuoted {
		return text
	}
	return truncateText(text, maxQuoted)
}
