package fleetapi

import (
	"io"
	"net/http"
)

// Paths of the OpenAPI document in its two forms.
const (
	documentPath     = "/openapi.yaml"
	documentPathJSON = "/openapi.json"
)

// newStaticHandler returns a handler that serves a form of the OpenAPI document. It is the same for all clients and needs no
// token.
func newStaticHandler(contentType, content string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, content) // a client that is gone misses nothing
	})
}
