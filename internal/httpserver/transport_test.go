package httpserver_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/httpserver"
)

// TestNewTransport holds that HTTP/2 connections are checked, and that the transport of net/http, which other packages use,
// stays as it is. TestDeadConnection of package client shows the effect.
func TestNewTransport(t *testing.T) {
	t.Parallel()
	pings := httpserver.NewTransport().HTTP2
	if pings == nil || pings.SendPingTimeout <= 0 || pings.SendPingTimeout+pings.PingTimeout > 10*time.Second {
		t.Errorf("HTTP/2 settings %+v, want that a dead connection is noticed within 10 seconds", pings)
	}
	if shared := http.DefaultTransport.(*http.Transport); shared.HTTP2 != nil { //nolint:errcheck,forcetypeassert // the standard library's own
		t.Errorf("the default transport has %+v", shared.HTTP2)
	}
}
