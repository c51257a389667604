package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	// outageSpread is within what time rows that met an outage are tried again
	// once it is over.
	outageSpread = 10 * time.Second
	// minThrottle is how long a throttled row waits at least.
	minThrottle = time.Second
	// maxPause is for how long all wait at most because one is asked to: it may
	// be about that one alone.
	maxPause = 30 * time.Second
	// maxMessage bounds the text of an error, in bytes.
	maxMessage = 4096
)

// A rowError is an error of ours about one row.
type rowError struct {
	class ErrorClass
	err   error
}

func (e *rowError) Error() string { return e.err.Error() }
func (e *rowError) Unwrap() error { return e.err }

// classOf is the class of an error, one of a closed set whatever was thrown.
func classOf(err error) ErrorClass {
	if e, ok := errors.AsType[*rowError](err); ok {
		return e.class
	}
	if _, ok := errors.AsType[*shoot.Error](err); !ok && errors.Is(err, context.DeadlineExceeded) {
		return ClassTimeout
	}
	switch c := shoot.ClassOf(err); c {
	case shoot.ClassUnavailable:
		if errors.Is(err, context.DeadlineExceeded) {
			return ClassTimeout
		}
		return ErrorClass(c)
	case shoot.ClassInvalid, shoot.ClassForbidden, shoot.ClassApproval, shoot.ClassForeign, shoot.ClassConflict,
		shoot.ClassThrottled, shoot.ClassUnknown:
		return ErrorClass(c)
	default:
		return ErrorClass(shoot.ClassUnknown)
	}
}

// gardenerAnswers reports whether Gardener answers, going by what became of a probe. A
// refusal is an answer: otherwise a right that only the probe lacks would
// keep everything from going on.
func gardenerAnswers(err error) bool {
	if err == nil {
		return true
	}
	switch shoot.ClassOf(err) {
	case shoot.ClassInvalid, shoot.ClassForbidden, shoot.ClassApproval, shoot.ClassForeign, shoot.ClassConflict:
		return true
	case shoot.ClassThrottled, shoot.ClassUnavailable, shoot.ClassUnknown:
		return false
	}
	return false
}

func newResult(c Claim) Result {
	return Result{
		ClusterID: c.ClusterID, Token: c.Token, Generation: c.Generation, ClusterGeneration: c.ClusterGeneration,
		Deleting: c.Deleting,
	}
}

// classifyFailure makes the result of a try that failed. Whose fault it is decides
// whether it counts: neither an outage nor a server that asks to wait does.
func classifyFailure(c Claim, err error, outage bool) Result {
	r := newResult(c)
	r.Class = classOf(err)
	r.Err = &plainError{text: sanitizeText(err.Error()), err: err}
	switch {
	case r.Class == ErrorClass(shoot.ClassThrottled):
		r.Delay = throttleOf(err)
	case outage:
		r.Class = ErrorClass(shoot.ClassUnavailable) // a timeout would be held against the row
		r.Delay = rand.N(outageSpread)               //nolint:gosec // when a row is tried again is no secret
	default:
		r.Spend = true
		r.Delay = Delay(failureCount(c))
	}
	return r
}

// throttleOf is how long a server asked to wait, within reason.
func throttleOf(err error) time.Duration {
	return min(max(shoot.RetryAfter(err), minThrottle), backoff.MaxRetryAfter)
}

// failureCount is how many tries of a claim have failed if this one does.
func failureCount(c Claim) int { return min(max(c.Attempts, 0), 1<<30) + 1 }

// A timeoutError is the cause of a context that ended by a time limit of ours.
type timeoutError string

// Error says which limit it was.
func (e timeoutError) Error() string { return string(e) }

// Is reports that it is a context.DeadlineExceeded, which a cause hides.
func (e timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// A plainError is an error whose text any database takes: a text that it
// refused would keep the result from being written, and those beside it.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.err }

// sanitizeText is text in valid UTF-8 without NUL and not too long.
func sanitizeText(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= maxMessage {
		return text
	}
	end := maxMessage - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// errFault is what a user is told of a panic; the log has more.
func errFault(what string, value any) error {
	return &rowError{class: ClassPanic, err: fmt.Errorf("internal error in cluster-worker: %s: %v", what, value)}
}
