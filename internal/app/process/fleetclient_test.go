package process

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

func TestFleetClientRefusesTwoTokens(t *testing.T) {
	t.Parallel()
	if _, err := NewFleetClient(FleetClientConfig{Endpoint: "http://h", Token: "a", TokenFile: "b"}); err == nil || !strings.Contains(err.Error(), "set only one") {
		t.Errorf("got %v, want a refusal: which one counts is not clear", err)
	}
}

// TestFleetClientTraces checks that the caller's trace contains the request, and that a failure is not retried.
func TestFleetClientTraces(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	c, err := NewFleetClient(FleetClientConfig{Endpoint: server.URL, Token: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	_, _ = c.WhoAmI(t.Context())
	if h := <-got; h.Get("Traceparent") != "" || h.Get("Authorization") != "Bearer s3cret" {
		t.Errorf("traceparent %q of no trace, authorization %q", h.Get("Traceparent"), h.Get("Authorization"))
	}
	state, err := trace.ParseTraceState("a=b")
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
	_, _ = c.WhoAmI(ctx)
	h := <-got
	if want := "00-01000000000000000000000000000000-0200000000000000-01"; h.Get("Traceparent") != want || h.Get("Tracestate") != "a=b" {
		t.Errorf("traceparent %q, tracestate %q, want %q", h.Get("Traceparent"), h.Get("Tracestate"), want)
	}
	if len(got) > 0 {
		t.Error("a request was sent again")
	}
}
