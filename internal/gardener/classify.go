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

// A refusal is an answer that is not a yes.
type refusal struct {
	code   int
	status metav1.Status // empty if it was not the API server that answered
	text   string        // what was said
	after  time.Duration // how long to wait
}

// Error is what was said.
func (r *refusal) Error() string { return r.text }

// fromAPI is whether an API server said it, and nothing on the way there.
func (r *refusal) fromAPI() bool { return r.status.Kind == "Status" }

func newRefusal(resp *http.Response, body []byte) *refusal {
	r := &refusal{code: resp.StatusCode}
	if err := json.Unmarshal(body, &r.status); err != nil || !r.fromAPI() {
		r.status = metav1.Status{}
		r.text = strings.TrimSpace(fmt.Sprintf("response %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	} else {
		r.text = statusText(r.status)
	}
	if d := r.status.Details; d != nil {
		r.after = time.Duration(d.RetryAfterSeconds) * time.Second
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.after = time.Duration(seconds) * time.Second
	}
	return r
}

// isAbsent is whether the API server knows the resource and has no such object.
// That the resource is not served, or the path not known, is another matter.
func isAbsent(err error, resource string) bool {
	var r *refusal
	return errors.As(err, &r) && r.code == http.StatusNotFound && r.fromAPI() &&
		r.status.Reason == metav1.StatusReasonNotFound && r.status.Details != nil && r.status.Details.Kind == resource && r.status.Details.Name != ""
}

func hasCode(err error, code int) bool {
	var r *refusal
	return errors.As(err, &r) && r.code == code
}

// wrapRefusal makes an error of a request one that says what was to be done, and
// what is wrong. Nil stays nil.
func wrapRefusal(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	did := fmt.Sprintf(format, args...)
	if known, ok := errors.AsType[*shoot.Error](err); ok {
		return &shoot.Error{Class: known.Class, RetryAfter: known.RetryAfter, Err: fmt.Errorf("%s: %w", did, known.Err)}
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return &shoot.Error{Class: classifyRefusal(r), RetryAfter: r.after, Err: fmt.Errorf("%s: %w", did, err)}
	}
	return &shoot.Error{Class: shoot.ClassUnavailable, Err: fmt.Errorf("%s: %w", did, undressed(err))}
}

// classifyRefusal says what an answer means.
func classifyRefusal(r *refusal) shoot.Class {
	switch said := containsPattern(r.text); {
	case r.code == http.StatusTooManyRequests:
		return shoot.ClassThrottled
	case r.code == http.StatusUnauthorized:
		return shoot.ClassUnavailable // to us; no Shoot is to be blamed for it
	case r.code == http.StatusConflict:
		return shoot.ClassConflict
	case said(`admission webhook "[^"]*" denied the request`):
		return shoot.ClassInvalid // whichever code it chose
	case r.code == http.StatusForbidden:
		return classifyForbidden(r, said)
	case r.code == http.StatusInternalServerError && said(`could not find referenced|failed to create typed patch object`) && !said(broken):
		return shoot.ClassInvalid
	case r.code >= http.StatusInternalServerError, r.code == http.StatusRequestTimeout, r.code == http.StatusNotFound, r.code == http.StatusGone:
		// 404 is no missing Shoot here, which is told apart before: it is a
		// missing namespace, or an API that is not served.
		return shoot.ClassUnavailable
	case r.code == http.StatusBadRequest, r.code == http.StatusUnprocessableEntity, r.code == http.StatusRequestEntityTooLarge:
		return shoot.ClassInvalid
	default:
		return shoot.ClassUnknown
	}
}

// broken is how an admission says that it could not ask somebody else.
const broken = `dial tcp|connection refused|connection reset|i/o timeout|context deadline exceeded|no such host|etcdserver:|TLS handshake|request timed out`

// classifyForbidden says what 403 means, which Gardener's admissions answer to
// whatever they do not like.
func classifyForbidden(r *refusal, said func(string) bool) shoot.Class {
	switch {
	case !r.fromAPI(), said(`User "[^"]*" cannot `), said(`user "[^"]*" is not allowed to`), said(`not allowed to read`):
		return shoot.ClassForbidden
	case said(`not yet ready to handle request`), said(broken):
		return shoot.ClassUnavailable
	case said(`not allowed to both confirm the deletion`):
		return shoot.ClassApproval
	case said(`must have a "` + shoot.AnnotationConfirmDeletion + `" annotation`):
		return shoot.ClassConflict // somebody took it away again
	case said(`because it is being terminated`), said(`already marked for deletion`):
		return shoot.ClassForbidden // the whole project goes
	default:
		return shoot.ClassInvalid
	}
}

func containsPattern(text string) func(pattern string) bool {
	return func(pattern string) bool {
		found, err := regexp.MatchString("(?i)"+pattern, text)
		return err == nil && found
	}
}

// statusText is what a status says, without what is known: which Shoot it is about.
func statusText(s metav1.Status) string {
	const most = 2000
	m := s.Message
	for _, lead := range []string{" is forbidden: ", " is invalid: ", "Internal error occurred: "} {
		about, rest, found := strings.Cut(m, lead)
		if found && !strings.Contains(about, ": ") {
			m = rest
		}
	}
	m = printable(m)
	m = strings.TrimPrefix(m, "1 error occurred: * ")
	if m == "" {
		m = string(s.Reason)
	}
	if len(m) > most {
		m = strings.ToValidUTF8(m[:most], "") + "…"
	}
	return m
}

// printable is a text as one line of what can be shown, and stored: a database
// takes no zero bytes.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return strings.Join(strings.Fields(s), " ")
}

// undressed is an error of the network without the addresses in it, which are
// nobody's business who only owns a cluster.
func undressed(err error) error {
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
