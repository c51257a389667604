package timeline

import (
	"context"
	"net/http"
	"testing"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
)

// TestStreamsRecheckAllHeaders covers that an open stream of an impersonated principal is checked as one.
func TestStreamsRecheckAllHeaders(t *testing.T) {
	t.Parallel()
	tl := &Timeline{authenticate: func(_ context.Context, h http.Header) (auth.Principal, error) {
		return auth.Principal{Subject: "alice", Tenant: h.Get("Impersonate-Tenant")}, nil
	}}
	h := http.Header{"Impersonate-Tenant": {"blue"}}
	if err := tl.newAccessRecheck(h, Scope{Tenant: "blue"})(t.Context()); err != nil {
		t.Error(err)
	}
	if err := tl.newAccessRecheck(h, Scope{Tenant: "red"})(t.Context()); err == nil {
		t.Error("another tenant: allowed")
	}
}
