package changeevent_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/changeevent"
)

// A wire is an HTTP server that stores each request as read.
type wire struct {
	*httptest.Server
	requests chan string
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{requests: make(chan string, 16)}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the request: %v", err)
		}
		w.requests <- r.Method + " " + r.RequestURI + "\nAuthorization: " + r.Header.Get("Authorization") + "\n\n" + string(body)
		rw.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(w.Close)
	return w
}

// varying matches the values that differ with each call: the time, and the id derived
// from it.
var varying = regexp.MustCompile(`"(timestamp|id)":"[^"]+"`)

// wantRequests compares the requests with want, byte by byte except for the times and the
// ids.
func (w *wire) wantRequests(t *testing.T, want ...string) {
	t.Helper()
	close(w.requests)
	var got []string
	for request := range w.requests {
		got = append(got, varying.ReplaceAllString(request, `"$1":"…"`))
	}
	if len(got) != len(want) {
		t.Fatalf("%d requests, want %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("request %d\n got %s\nwant %s", i, got[i], want[i])
		}
	}
}

// TestCallSitesOfTheRecord compiles the configuration and the call sites of ADR-026
// unchanged. They set no source and no product, so the sink receives the default ones.
func TestCallSitesOfTheRecord(t *testing.T) {
	sink := newWire(t)
	cfg := changeevent.Config{
		Enabled:         true,
		Endpoint:        sink.URL + "/changes",
		ClusterName:     "my-cluster-name",
		AuthHeader:      "Authorization",
		AuthToken:       "Bearer secret",
		Timeout:         10 * time.Second,
		ShutdownTimeout: 10 * time.Second,
	}
	client, err := changeevent.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	event := healthEvent{NodeName: "gpu-node-01", CheckName: "xid-check", ErrorCode: "XID-79", Agent: "syslog-health-monitor"}
	r := &reconciler{changeEventClient: client}
	r.cordon(t.Context(), struct{ HealthEvent healthEvent }{event})
	r.uncordon(t.Context(), event)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	sink.wantRequests(t,
		"POST /changes/my-cluster-name\nAuthorization: Bearer secret\n\n"+
			`{"action":"cordon","timestamp":"…","source":"nvsentinel/fault-quarantine","cluster":"my-cluster-name","node":"gpu-node-01",`+
			`"healthEvent":{"checkName":"xid-check","errorCode":"XID-79","agent":"syslog-health-monitor","isFatal":false,"message":""},"dryRun":false,`+
			`"id":"…","summary":"NVSentinel cordoned node gpu-node-01 due to XID-79","outcome":"succeeded"}`,
		"POST /changes/my-cluster-name\nAuthorization: Bearer secret\n\n"+
			`{"action":"uncordon","timestamp":"…","source":"nvsentinel/fault-quarantine","cluster":"my-cluster-name","node":"gpu-node-01",`+
			`"healthEvent":{"checkName":"xid-check","errorCode":"","agent":"","isFatal":false,"message":""},"dryRun":false,`+
			`"id":"…","summary":"NVSentinel uncordoned node gpu-node-01 - all health checks passed","outcome":"succeeded",`+
			`"reason":"all health checks passed"}`)
}

// TestProductIsASetting verifies that each text of an event has the configured product,
// regardless of the source.
func TestProductIsASetting(t *testing.T) {
	for product, want := range map[string]string{"": "NVSentinel", "Acme Fleet": "Acme Fleet"} {
		sink := newWire(t)
		client, err := changeevent.NewClient(changeevent.Config{Enabled: true, Endpoint: sink.URL, ClusterName: "c", Product: product})
		if err != nil {
			t.Fatal(err)
		}
		events := []changeevent.ChangeEvent{
			{Action: changeevent.ActionDrainCompleted, NodeName: "n"},
			{Action: changeevent.ActionCordon, NodeName: "n", DryRun: true},
			{Action: changeevent.ActionShootCreated, Cluster: "c", Subject: "shoots/s"},
			{Action: changeevent.ActionExecutionStarted, Subject: "executions/e"},
		}
		for _, e := range events {
			client.SendChangeEvent(t.Context(), e)
		}
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		close(sink.requests)
		n := 0
		for request := range sink.requests {
			n++
			if !strings.Contains(request, `"summary":"`+want+" ") && !strings.Contains(request, `"summary":"[DRY-RUN] `+want+" ") {
				t.Errorf("product %q: want a summary by %s in %s", product, want, request)
			}
		}
		if n != len(events) {
			t.Errorf("%d requests, want %d", n, len(events))
		}
	}
}

// TestStrictSink verifies that a strict sink receives exactly the fields of ADR-026 for
// any event.
func TestStrictSink(t *testing.T) {
	sink := newWire(t)
	client, err := changeevent.NewClient(changeevent.Config{
		Enabled: true, Endpoint: sink.URL + "/changes", ClusterName: "my-cluster-name", AuthToken: "t", BaseFieldsOnly: true, MaxConcurrentRequests: 1,
		Links: []changeevent.LinkTemplate{{Href: "https://runbooks.example.com/{action}"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	client.SendChangeEvent(t.Context(), changeevent.ChangeEvent{
		Action: "cordon", NodeName: "gpu-node-01", CheckName: "xid-check", ErrorCodes: []string{"XID-79", "XID-48"}, Agent: "syslog-health-monitor",
		IsFatal: true, Message: "GPU error detected", Reason: "r", Session: "s", Outcome: changeevent.OutcomeFailed, DryRun: true, Subject: "u",
		Details: map[string]string{"actor": "alice"}, Changes: []changeevent.FieldChange{{Field: "spec.version"}}, ChangesOmitted: 3,
	})
	client.SendChangeEvent(t.Context(), changeevent.ChangeEvent{Action: "execution-started", Source: changeevent.SourceExecutionController, Subject: "executions/e"})
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	sink.wantRequests(t,
		"POST /changes/my-cluster-name\nAuthorization: t\n\n"+
			`{"action":"cordon","timestamp":"…","source":"nvsentinel/fault-quarantine","cluster":"my-cluster-name","node":"gpu-node-01",`+
			`"healthEvent":{"checkName":"xid-check","errorCode":"XID-79,XID-48","agent":"syslog-health-monitor","isFatal":true,"message":"GPU error detected"},"dryRun":true}`,
		"POST /changes/my-cluster-name\nAuthorization: t\n\n"+
			`{"action":"execution-started","timestamp":"…","source":"fleetloop/execution-controller","cluster":"my-cluster-name","node":"",`+
			`"healthEvent":{"checkName":"","errorCode":"","agent":"","isFatal":false,"message":""},"dryRun":false}`)
	for _, format := range changeevent.Formats() {
		err := changeevent.Check(changeevent.Config{
			Enabled: true, Endpoint: sink.URL, ClusterName: "c", BaseFieldsOnly: true, Format: format, AuthHeader: "X", AuthToken: "0123456789abcdef0123456789abcdef",
		})
		if (err == nil) != (format == changeevent.FormatJSON) {
			t.Errorf("strict with format %s: %v", format, err)
		}
	}
}
