package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"strings"
)

// retryAfterSeconds is the retry delay in seconds.
const retryAfterSeconds = "5"

var errContentType = errors.New(
	"unsupported content type: use application/json, application/cloudevents+json or application/cloudevents-batch+json")

// A problem is an error response in the format of RFC 9457.
type problem struct {
	Title    string          `json:"title"`
	Status   int             `json:"status"`
	Detail   string          `json:"detail,omitempty"`
	Stored   int             `json:"stored"`
	Rejected []rejectedEvent `json:"rejected,omitempty"`
}

// A receipt is a response to a request of which at least some events were stored.
type receipt struct {
	Stored   int             `json:"stored"`
	Rejected []rejectedEvent `json:"rejected,omitempty"`
}

// A rejectedEvent is an event that was rejected.
type rejectedEvent struct {
	Index  int    `json:"index"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// writeError writes an error response about the whole request.
func writeError(w http.ResponseWriter, status int, detail string) {
	writeProblem(w, problem{Status: status, Detail: detail})
}

func writeProblem(w http.ResponseWriter, p problem) {
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfterSeconds)
	}
	p.Title = http.StatusText(p.Status)
	writeJSONBody(w, "application/problem+json", p.Status, p)
}

func writeJSONBody(w http.ResponseWriter, contentType string, status int, body any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if the caller has disconnected
}

// logAndWriteResults writes the response for the events of a request, given the error of each, and
// logs rejected events.
func (e *endpoint) logAndWriteResults(w http.ResponseWriter, r *http.Request, caller string, errs []error) {
	var rejected []rejectedEvent
	var transient error
	for i, err := range errs {
		if err == nil {
			continue
		}
		status, detail := httpStatusOf(err)
		if status == http.StatusServiceUnavailable {
			transient = err
		}
		rejected = append(rejected, rejectedEvent{i, status, detail})
	}
	stored := len(errs) - len(rejected)
	if len(rejected) == 0 {
		writeJSONBody(w, "application/json", http.StatusAccepted, receipt{Stored: stored})
		return
	}
	log := e.deps.Log.With("source_kind", e.kind, "caller", caller, "stored", stored, "rejected", len(rejected))
	if transient != nil {
		log.WarnContext(r.Context(), "reports not stored", "err", transient)
		const detail = "some reports could not be stored: send the same request again"
		writeProblem(w, problem{Status: http.StatusServiceUnavailable, Detail: detail, Stored: stored, Rejected: rejected})
		return
	}
	log.InfoContext(r.Context(), "reports rejected", "first_rejection", rejected[0].Detail)
	if stored > 0 {
		writeJSONBody(w, "application/json", http.StatusMultiStatus, receipt{stored, rejected})
		return
	}
	writeProblem(w, problem{Status: commonStatusOr400(rejected), Detail: firstRejectionDetail(rejected), Rejected: rejected})
}

// commonStatusOr400 returns the status of all rejected events, or 400 if they differ.
func commonStatusOr400(rejected []rejectedEvent) int {
	status := rejected[0].Status
	for _, r := range rejected {
		if r.Status != status {
			return http.StatusBadRequest
		}
	}
	return status
}

func firstRejectionDetail(rejected []rejectedEvent) string {
	if len(rejected) == 1 {
		return rejected[0].Detail
	}
	return fmt.Sprintf("all %d events were rejected; event %d: %s", len(rejected), rejected[0].Index, rejected[0].Detail)
}

// httpStatusOf returns the status and the detail of an event's error, including what to do
// about it.
func httpStatusOf(err error) (status int, detail string) {
	switch {
	case errors.Is(err, ErrUnknownNode):
		return http.StatusNotFound, err.Error() + ": use the name of the Node object"
	case errors.Is(err, ErrFull):
		return http.StatusConflict, err.Error() + ": combine entities into fewer faults, or report resolved faults as healthy"
	case errors.Is(err, ErrOutdated):
		return http.StatusConflict, err.Error()
	case errors.Is(err, ErrInvalid):
		return http.StatusBadRequest, err.Error()
	case errors.Is(err, ErrBusy):
		return http.StatusServiceUnavailable, ErrBusy.Error()
	}
	return http.StatusServiceUnavailable, ErrUnavailable.Error() // the cause is not for the caller
}

// writeReadError writes the response to a body that could not be read.
func writeReadError(w http.ResponseWriter, err error) {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		detail := fmt.Sprintf("body is larger than %d bytes: split the events into several requests", large.Limit)
		writeError(w, http.StatusRequestEntityTooLarge, detail)
	case errors.Is(err, os.ErrDeadlineExceeded):
		writeError(w, http.StatusRequestTimeout, "timeout reading the body")
	default:
		writeError(w, http.StatusBadRequest, "cannot read the body")
	}
}

// writeDecodeError writes the response to a body that is not a list of events.
func writeDecodeError(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, errContentType):
		status = http.StatusUnsupportedMediaType
	case errors.Is(err, errTooManyEvents):
		status = http.StatusRequestEntityTooLarge
	}
	writeError(w, status, err.Error())
}

func isJSONOrUnset(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}
