package gardener

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// An apiError is a response with an error status.
type apiError struct {
	code   int
	status metav1.Status // empty unless the API server answered
	text   string        // message of the response
	after  time.Duration // from Retry-After
}

// Error returns the message of the response.
func (r *apiError) Error() string { return r.text }

// isFromAPIServer reports whether the response comes from an API server, and not from a proxy
// in between.
func (r *apiError) isFromAPIServer() bool { return r.status.Kind == "Status" }

func newAPIError(resp *http.Response, body []byte) *apiError {
	r := &apiError{code: resp.StatusCode}
	if err := json.Unmarshal(body, &r.status); err != nil || !r.isFromAPIServer() {
		r.status = metav1.Status{}
		r.text = strings.TrimSpace(fmt.Sprintf("response %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	} else {
		r.text = extractStatusMessage(r.status)
	}
	if d := r.status.Details; d != nil {
		r.after = time.Duration(d.RetryAfterSeconds) * time.Second
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.after = time.Duration(seconds) * time.Second
	}
	return r
}

// isObjectNotFound reports whether the API server knows the resource and has no such object. A
// resource that is not served and an unknown path do not count.
func isObjectNotFound(err error, resource string) bool {
	var r *apiError
	if !errors.As(err, &r) || r.code != http.StatusNotFound || !r.isFromAPIServer() {
		return false
	}
	details := r.status.Details
	return r.status.Reason == metav1.StatusReasonNotFound &&
		details != nil && details.Kind == resource && details.Name != ""
}

// isMissingRight reports whether a caller was refused for good, and not by an API server that is
// starting.
func isMissingRight(err error) bool {
	r, ok := errors.AsType[*apiError](err)
	return ok && r.code == http.StatusForbidden && classifyAPIError(r) != shoot.ClassUnavailable
}

// isPermissionDenied reports whether the roles of the caller do not allow a request.
func isPermissionDenied(err error) bool {
	r, ok := errors.AsType[*apiError](err)
	return ok && isMissingRight(err) && r.isFromAPIServer() && r.matches(permissionDenied)
}

func hasHTTPStatus(err error, status int) bool {
	var r *apiError
	return errors.As(err, &r) && r.code == status
}

// wrapWithErrorClass adds the attempted action and the class to an error of a request. Nil
// stays nil.
func wrapWithErrorClass(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	attempted := fmt.Sprintf(format, args...)
	if classified, ok := errors.AsType[*shoot.Error](err); ok {
		return &shoot.Error{
			Class:      classified.Class,
			RetryAfter: classified.RetryAfter,
			Err:        fmt.Errorf("%s: %w", attempted, classified.Err),
		}
	}
	if response, ok := errors.AsType[*apiError](err); ok {
		return &shoot.Error{
			Class:      classifyAPIError(response),
			RetryAfter: response.after,
			Err:        fmt.Errorf("%s: %w", attempted, err),
		}
	}
	return &shoot.Error{
		Class: shoot.ClassUnavailable,
		Err:   fmt.Errorf("%s: %w", attempted, removeNetworkAddresses(err)),
	}
}

// classifyAPIError returns the class of a refusal.
func classifyAPIError(r *apiError) shoot.Class {
	switch {
	case r.matches(`admission webhook "[^"]*" denied the request`):
		return shoot.ClassInvalid // with any status code
	case r.code == http.StatusTooManyRequests:
		return shoot.ClassThrottled
	case r.code == http.StatusUnauthorized:
		return shoot.ClassUnavailable // for this client only, not due to a Shoot
	case r.code == http.StatusConflict:
		return shoot.ClassConflict
	case r.code == http.StatusForbidden:
		return classifyForbidden(r)
	case r.code == http.StatusInternalServerError && r.matches(invalidReference) && !r.matches(serverUnreachable):
		return shoot.ClassInvalid
	case r.code >= http.StatusInternalServerError,
		r.code == http.StatusRequestTimeout,
		r.code == http.StatusNotFound,
		r.code == http.StatusGone:
		// A missing Shoot is handled before. This 404 is a missing namespace, or an API
		// that is not served.
		return shoot.ClassUnavailable
	case r.code == http.StatusBadRequest,
		r.code == http.StatusUnprocessableEntity,
		r.code == http.StatusRequestEntityTooLarge:
		return shoot.ClassInvalid
	default:
		return shoot.ClassUnknown
	}
}

// invalidReference matches an error with status 500 that the Shoot causes.
const invalidReference = `could not find referenced|failed to create typed patch object`

// serverUnreachable matches errors of an admission plugin that could not reach another server.
const serverUnreachable = `dial tcp|connection refused|connection reset|i/o timeout|context deadline exceeded|` +
	`no such host|etcdserver:|TLS handshake|request timed out`

// permissionDenied matches the refusal of a caller whose roles do not allow a request.
const permissionDenied = `User "[^"]*" cannot `

// classifyForbidden returns the class of a 403, with which Gardener's admission plugins
// reject all kinds of requests.
func classifyForbidden(r *apiError) shoot.Class {
	switch {
	case r.matches(`User "system:anonymous" cannot `):
		// Like 401. An API server that has just started does not know its callers yet. A missing
		// right, in contrast, is tried again only after minutes.
		return shoot.ClassUnavailable
	case !r.isFromAPIServer(),
		r.matches(permissionDenied),
		r.matches(`user "[^"]*" is not allowed to`),
		r.matches(`not allowed to read`):
		return shoot.ClassForbidden
	case r.matches(`not yet ready to handle request`), r.matches(serverUnreachable):
		return shoot.ClassUnavailable
	case r.matches(`not allowed to both confirm the deletion`):
		return shoot.ClassApproval
	case r.matches(`must have a "` + shoot.AnnotationConfirmDeletion + `" annotation`):
		return shoot.ClassConflict // the annotation was removed again
	case r.matches(`because it is being terminated`), r.matches(`already marked for deletion`):
		return shoot.ClassForbidden // the whole project is being deleted
	default:
		return shoot.ClassInvalid
	}
}

// matches reports whether the message of the response matches a pattern, in any case.
func (r *apiError) matches(pattern string) bool {
	found, err := regexp.MatchString("(?i)"+pattern, r.text)
	return err == nil && found
}

// extractStatusMessage returns the message of a status without the name of its Shoot, which is
// known.
func extractStatusMessage(s metav1.Status) string {
	const maxLength = 2000
	message := s.Message
	for _, separator := range []string{" is forbidden: ", " is invalid: ", "Internal error occurred: "} {
		object, cause, found := strings.Cut(message, separator)
		if found && !strings.Contains(object, ": ") {
			message = cause
		}
	}
	message = toPrintableLine(message)
	message = strings.TrimPrefix(message, "1 error occurred: * ")
	if message == "" {
		message = string(s.Reason)
	}
	if len(message) > maxLength {
		message = strings.ToValidUTF8(message[:maxLength], "") + "…"
	}
	return message
}

// toPrintableLine returns a text on one line without control characters. It can be shown and
// stored: a database accepts no zero bytes.
func toPrintableLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return strings.Join(strings.Fields(s), " ")
}

// removeNetworkAddresses returns a network error without the addresses in it, which owners of
// clusters should not see.
func removeNetworkAddresses(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New("host name cannot be resolved")
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("no response: %w", err)
}
