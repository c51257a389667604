package gardener

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A readiness knows whether an API server lets this client read its readiness.
//
// An API server that has just started has not read its roles yet. It refuses callers that have all permissions,
// and is not ready, or refuses to say so. A server whose readiness this client could read before therefore
// refuses for good only if it is ready.
type readiness struct{ readable atomic.Bool }

// learnReadiness finds out whether the readiness can be read. The server has just accepted another request.
func (t *transport) learnReadiness(ctx context.Context) {
	err := t.readReadiness(ctx)
	r, ok := errors.AsType[*apiError](err)
	t.ready.readable.Store(err == nil || ok && r.code >= http.StatusInternalServerError)
}

// checkReady returns an error if the server is not ready, or does not say so.
func (t *transport) checkReady(ctx context.Context) error {
	if err := t.readReadiness(ctx); err != nil {
		return &shoot.Error{Class: shoot.ClassUnavailable, Err: fmt.Errorf("the API server is not ready: %w", err)}
	}
	return nil
}

func (t *transport) readReadiness(ctx context.Context) error {
	resp, err := t.sendOnce(ctx, apiRequest{method: http.MethodGet, path: "/readyz"})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
