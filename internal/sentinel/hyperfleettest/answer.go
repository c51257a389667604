package hyperfleettest

import (
	"encoding/json"
	"net/http"
	"time"
)

// An answer is the response to a request.
type answer struct {
	status int
	body   any // nil means no body
}

// A problem is an error in the format of RFC 9457, with the fields that the API adds.
type problem struct {
	Type      string       `json:"type"`
	Title     string       `json:"title"`
	Status    int          `json:"status"`
	Detail    string       `json:"detail"`
	Instance  string       `json:"instance"`
	Code      string       `json:"code"`
	Timestamp time.Time    `json:"timestamp"`
	TraceID   string       `json:"trace_id"`
	Errors    []fieldError `json:"errors,omitempty"`
}

type fieldError struct {
	Field      string `json:"field"`
	Constraint string `json:"constraint"`
	Message    string `json:"message"`
	Value      any    `json:"value,omitempty"`
}

// newErrorAnswer returns an error response.
func newErrorAnswer(status int, detail string, fields ...fieldError) answer {
	return answer{status, &problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
		Code: map[int]string{400: "HYPERFLEET-VAL-001", 404: "HYPERFLEET-NTF-001", 409: "HYPERFLEET-CNF-001"}[status],
		// Hexadecimal digits that could be mistaken for a number.
		TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", Errors: fields,
	}}
}

func newNotFoundAnswer(what, id string) answer {
	return newErrorAnswer(http.StatusNotFound, what+" "+id+" not found")
}

func (a answer) writeResponse(w http.ResponseWriter, r *http.Request) {
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if p, ok := a.body.(*problem); ok {
		w.Header().Set("Content-Type", "application/problem+json")
		p.Instance, p.Timestamp = r.URL.Path, time.Now().UTC()
	}
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(a.body) // a client that is gone needs no response
}

// decodeBody reads a request's body.
func decodeBody(r *http.Request, strict bool, target any) (badRequest *answer) {
	dec := json.NewDecoder(r.Body)
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(target); err != nil {
		a := newErrorAnswer(http.StatusBadRequest, "Invalid request format: "+err.Error())
		return &a
	}
	return nil
}
