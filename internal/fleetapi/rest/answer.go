package rest

import (
	"encoding/json"
	"net/http"
)

// WriteJSONValue answers with a value as JSON.
func WriteJSONValue(w http.ResponseWriter, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	WriteJSON(w, status, body)
	return nil
}

// WriteJSON answers with JSON.
func WriteJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone misses nothing
}
