package console

import (
	"encoding/json"
	"net/http"
	"time"
)

const timeFormat = time.RFC3339

// A problem is an error answer, application/problem+json as RFC 9457 has it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Hint is what the person can do next.
	Hint string `json:"hint,omitempty"`
}

// WriteProblemJSON answers with a problem. hint is what the person can do next.
func WriteProblemJSON(w http.ResponseWriter, status int, detail, hint string) {
	w.Header().Set("Content-Type", "application/problem+json")
	writeJSONBody(w, status, problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Hint: hint})
}

// WriteJSON answers with a JSON body.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	writeJSONBody(w, status, body)
}

func writeJSONBody(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// maxBody limits the body of a request to the console itself.
const maxBody = 64 << 10

// DecodeJSONOrWriteProblem reads the body of a request. It answers a bad one itself, and reports whether to go on.
func DecodeJSONOrWriteProblem(w http.ResponseWriter, r *http.Request, dest any) (decoded bool) {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(dest); err != nil {
		WriteProblemJSON(w, http.StatusBadRequest, "The body of the request is not the JSON that this path takes.", "")
		return false
	}
	return true
}
