package gardener

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	// maxStart is how long refusals of a server that is not ready count as its start.
	maxStart = 5 * time.Minute
	// quietTime is how long there is no refusal before the next start. It is longer than the longest delay after which
	// a refused request is repeated.
	quietTime = 30 * time.Minute
)

// A readiness is what this client knows about the readiness of the API server.
//
// An API server that has just started has not read its roles yet. It refuses callers that have
// all permissions, and is not ready, or refuses to say so. A server therefore refuses for good
// only if it is ready. One that never let this client read its readiness counts as ready.
type readiness struct {
	readable atomic.Bool // the server once answered, in whatever state
	allowed  atomic.Bool // the server allowed a request after the last refusal

	mu           sync.Mutex
	firstRefusal time.Time // of this start; zero if the server was ready since. Guarded by mu
	lastRefusal  time.Time // guarded by mu
}

// recordReady records that the server is ready.
func (r *readiness) recordReady() {
	r.readable.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.firstRefusal = time.Time{}
}

// recordAllowed records that the server allowed a request that needs a role. It is called for every such request.
func (r *readiness) recordAllowed() {
	if !r.allowed.Load() {
		r.allowed.Store(true)
	}
}

// recordRefusal records a refusal, and returns the time since the first one of this start. The wall clock has no
// effect on it. A server that allows some requests and keeps refusing others does not start again.
func (r *readiness) recordRefusal() (sinceFirst time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	startsAgain := r.allowed.Swap(false) && now.Sub(r.lastRefusal) > quietTime
	if r.firstRefusal.IsZero() || startsAgain {
		r.firstRefusal = now
	}
	r.lastRefusal = now
	return now.Sub(r.firstRefusal)
}

// learnReadiness finds out whether the readiness can be read. Only the answers of an API server
// count, and not those of a proxy.
func (t *transport) learnReadiness(ctx context.Context) {
	if err := t.readReadiness(ctx); err == nil || hasHTTPStatus(err, http.StatusInternalServerError) {
		t.ready.readable.Store(true)
	}
}

// checkReadyAfterRefusal returns nil if the server is ready and the refused request can be repeated.
// Otherwise it returns the error of the request.
func (t *transport) checkReadyAfterRefusal(ctx context.Context, refusal error) error {
	err := t.readReadiness(ctx)
	if err == nil {
		t.ready.recordReady()
		return nil
	}
	starting := t.ready.recordRefusal()
	notReady := hasHTTPStatus(err, http.StatusInternalServerError) || t.ready.readable.Load()
	if !notReady || starting > maxStart {
		return refusal
	}
	if _, answered := errors.AsType[*apiError](err); !answered {
		err = removeNetworkAddresses(err)
	}
	// Neither error is wrapped, because callers would find a missing permission in the chain.
	return &shoot.Error{
		Class: shoot.ClassUnavailable,
		Err: fmt.Errorf("%s; the API server is not ready, or does not say so: %s",
			refusal.Error(), err.Error()),
	}
}

func (t *transport) readReadiness(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, t.timeout, t.timeoutCause)
	defer cancel()
	resp, err := t.sendOnce(ctx, apiRequest{method: http.MethodGet, path: "/readyz"})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
