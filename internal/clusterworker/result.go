package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	// outageSpread is the time over which rows that met an outage are retried after it.
	outageSpread = 10 * time.Second
	// minThrottle is the shortest wait of a throttled row.
	minThrottle = time.Second
	// maxPause is the longest pause of all rows after one was throttled, as the
	// throttling may concern that row alone.
	maxPause = 30 * time.Second
	// maxMessage limits the text of an error, in bytes.
	maxMessage = 4096
)

// A rowError is an error of the cluster-worker about one row.
type rowError struct {
	class ErrorClass
	err   error
}

func (e *rowError) Error() string { return e.err.Error() }
func (e *rowError) Unwrap() error { return e.err }

// classifyError returns the class of an error, always one of the closed set.
func classifyError(err error) ErrorClass {
	if e, ok := errors.AsType[*rowError](err); ok {
		return e.class
	}
	class := shoot.ClassOf(err)
	_, isClassified := errors.AsType[*shoot.Error](err)
	mayBeTimeout := class == shoot.ClassUnavailable || !isClassified
	if mayBeTimeout && errors.Is(err, context.DeadlineExceeded) {
		return ClassTimeout
	}
	if !slices.Contains(shoot.ListClasses(), class) {
		return ErrorClass(shoot.ClassUnknown)
	}
	return ErrorClass(class)
}

// isAnswerFromGardener reports whether Gardener answers, given the error of a probe. A
// refusal is an answer: otherwise a right that only the probe lacks would stop
// everything.
func isAnswerFromGardener(probeErr error) bool {
	refusals := []shoot.Class{shoot.ClassInvalid, shoot.ClassForbidden, shoot.ClassApproval, shoot.ClassForeign, shoot.ClassConflict}
	return probeErr == nil || slices.Contains(refusals, shoot.ClassOf(probeErr))
}

func newSuccessResult(claim Claim) Result {
	return Result{
		ClusterID: claim.ClusterID, Token: claim.Token, Generation: claim.Generation, ClusterGeneration: claim.ClusterGeneration,
		Deleting: claim.Deleting,
	}
}

// newFailureResult builds the result of a failed try. Neither an outage nor throttling
// counts as an attempt.
func newFailureResult(claim Claim, err error, gardenerDown bool) Result {
	r := newSuccessResult(claim)
	r.Class = classifyError(err)
	r.Err = &storableError{text: sanitizeAndTruncateText(err.Error()), err: err}
	switch {
	case r.Class == ErrorClass(shoot.ClassThrottled):
		r.Delay = retryAfterWithinLimits(err)
	case gardenerDown:
		r.Class = ErrorClass(shoot.ClassUnavailable) // a timeout would count against the row
		r.Delay = rand.N(outageSpread)               //nolint:gosec // when a row is tried again is no secret
	default:
		r.CountsAttempt = true
		r.Delay = RetryDelay(countFailuresWithThis(claim))
	}
	return r
}

// retryAfterWithinLimits returns how long a server asked to wait, within limits.
func retryAfterWithinLimits(err error) time.Duration {
	return min(max(shoot.RetryAfter(err), minThrottle), backoff.MaxRetryAfter)
}

// countFailuresWithThis returns the number of failed tries of a claim if this one fails.
func countFailuresWithThis(claim Claim) int { return min(max(claim.Attempts, 0), 1<<30) + 1 }

// A timeoutError is the cause of a context that ended by a timeout of the worker.
type timeoutError string

// Error returns the description of the timeout.
func (e timeoutError) Error() string { return string(e) }

// Is reports whether target is context.DeadlineExceeded, which a cause hides.
func (e timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// A storableError is an error whose text every database accepts. A rejected text would
// keep this result and the others of its batch from being written.
type storableError struct {
	text string
	err  error
}

func (e *storableError) Error() string { return e.text }
func (e *storableError) Unwrap() error { return e.err }

// sanitizeAndTruncateText returns text as valid UTF-8 without NUL and cut to maxMessage.
func sanitizeAndTruncateText(text string) string {
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

// newPanicError returns the error that a user sees after a panic; the log has more.
func newPanicError(action string, panicValue any) error {
	return &rowError{class: ClassPanic, err: fmt.Errorf("internal error in cluster-worker: %s: %v", action, panicValue)}
}
