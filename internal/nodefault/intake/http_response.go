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

var errContentType = errors.New("unsupported content type: use application/json, application/cloudevents+json or application/cloudevents-batch+json")

// A problem is an error response in the format of RFC 9457.
type problem struct {
	Title   string          `json:"title"`
	Status  int             `json:"status"`
	Detail  string          `json:"detail,omitempty"`
	Stored  int             `json:"stored"`
	Refused []rejectedEvent `json:"rejected,omitempty"`
}

// A receipt is a response to a request of which at least some events were stored.
type receipt struct {
	Stored  int             `json:"stored"`
	Refused []rejectedEvent `json:"rejected,omitempty"`
}

// A rejectedEvent is an event that was rejected.
type rejectedEvent struct {
	Index  int    `json:"index"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func writeProblem(w http.ResponseWriter, p problem) {
	p.Title = http.StatusText(p.Status)
	writeJSONBody(w, "application/problem+json", p.Status, p)
}

func writeJSONBody(w http.ResponseWriter, contentType string, status int, body any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if the caller has disconnected
}

// countRejectedAndWriteResponse writes the response for the events of a request.
func (h *httpHandler) countRejectedAndWriteResponse(
	w http.ResponseWriter, r *http.Request, kind Kind, verdicts []eventResult, caller string,
) {
	var refused []rejectedEvent
	var transient error
	for i, v := range verdicts {
		if v.err == nil {
			continue
		}
		if v.early {
			h.deps.Metrics.CountRejected(kind, v.err)
		}
		status, detail := httpStatusOf(v.err)
		if status == http.StatusServiceUnavailable {
			transient = v.err
		}
		refused = append(refused, rejectedEvent{i, status, detail})
	}
	stored := len(verdicts) - len(refused)
	switch {
	case len(refused) == 0:
		writeJSONBody(w, "application/json", http.StatusAccepted, receipt{Stored: stored})
	case transient != nil:
		h.deps.Log.WarnContext(r.Context(), "reports not stored", "source_kind", kind, "caller", caller, "stored", stored, "rejected", len(refused), "err", transient)
		w.Header().Set("Retry-After", retryAfterSeconds)
		writeProblem(w, problem{Status: http.StatusServiceUnavailable, Detail: "some reports could not be stored: send the same request again", Stored: stored, Refused: refused})
	case stored > 0:
		h.deps.Log.InfoContext(r.Context(), "reports rejected", "source_kind", kind, "caller", caller, "stored", stored, "rejected", len(refused), "first_rejection", refused[0].Detail)
		writeJSONBody(w, "application/json", http.StatusMultiStatus, receipt{stored, refused})
	default:
		h.deps.Log.InfoContext(r.Context(), "reports rejected", "source_kind", kind, "caller", caller, "stored", stored, "rejected", len(refused), "first_rejection", refused[0].Detail)
		writeProblem(w, problem{Status: commonStatusOr400(refused), Detail: firstRejectionDetail(refused), Refused: refused})
	}
}

// commonStatusOr400 returns the status of all rejected events, or 400 if they differ.
func commonStatusOr400(refused []rejectedEvent) int {
	status := refused[0].Status
	for _, r := range refused {
		if r.Status != status {
			return http.StatusBadRequest
		}
	}
	return status
}

func firstRejectionDetail(refused []rejectedEvent) string {
	if len(refused) == 1 {
		return refused[0].Detail
	}
	return fmt.Sprintf("all %d events were rejected; event %d: %s", len(refused), refused[0].Index, refused[0].Detail)
}

// httpStatusOf returns the status and the detail of an event's error, including what to do
// about it.
func httpStatusOf(err error) (status int, detail string) {
	switch {
	case errors.Is(err, ErrUnknownNode):
		return http.StatusNotFound, err.Error() + ": use the name of the Node object"
	case errors.Is(err, ErrFull):
		return http.StatusConflict, err.Error() + ": combine entities into fewer faults, or report resolved faults as healthy"
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
		writeProblem(w, problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("body is larger than %d bytes: split the events into several requests", large.Limit)})
	case errors.Is(err, os.ErrDeadlineExceeded):
		writeProblem(w, problem{Status: http.StatusRequestTimeout, Detail: "timeout reading the body"})
	default:
		writeProblem(w, problem{Status: http.StatusBadRequest, Detail: "cannot read the body"})
	}
}

// writeDecodeError writes the response to a body that is not a list of events.
func writeDecodeError(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errContentType):
		writeProblem(w, problem{Status: http.StatusUnsupportedMediaType, Detail: err.Error()})
	case errors.Is(err, errTooManyEvents):
		writeProblem(w, problem{Status: http.StatusRequestEntityTooLarge, Detail: err.Error()})
	default:
		writeProblem(w, problem{Status: http.StatusBadRequest, Detail: err.Error()})
	}
}

func isJSONOrUnset(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}
