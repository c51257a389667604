package changeevent

import (
	"bytes"
	"flag"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the requests in testdata and in the documentation anew")

// Update reports whether golden files must be written.
func Update() bool { return *update }

// A received is a request that a sink received.
type received struct {
	*http.Request

	body []byte
}

// newSink returns a server that accepts only requests that the vendor of a format
// documents.
func newSink(t *testing.T, rule sinkRule) (endpoint string, requests chan received) {
	t.Helper()
	requests = make(chan received, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = rule.check(r, body)
		}
		if err != nil || r.Method != http.MethodPost {
			t.Errorf("the sink refuses %s: %v\n%s", r.Method, err, body)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		requests <- received{r, body}
		w.WriteHeader(rule.status)
		_, _ = io.WriteString(w, rule.answer) // the client has its status
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(rule.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return server.URL + u.Path, requests
}

// send sends events with a client and returns the requests.
func send(t *testing.T, f Format, events ...*ChangeEvent) []received {
	t.Helper()
	rule := sinkRules()[f]
	endpoint, requests := newSink(t, rule)
	cfg := Config{
		Enabled: true, Endpoint: endpoint, ClusterName: "my-cluster-name", Format: f, MaxAge: 100 * 365 * 24 * time.Hour, Logger: slog.New(slog.DiscardHandler),
		Links: []LinkTemplate{{Href: "https://runbooks.example.com/{checkName}#{errorCode}", Text: "Runbook"}},
	}
	if formatSpecOrJSON(f).batch > 1 {
		cfg.BatchWait = time.Hour // Close ends the wait
	}
	rule.config(&cfg)
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		sent := *e
		sent.OnDelivery = func(d Delivery) {
			if d.Class != "" {
				t.Errorf("event %s was not taken: %+v", d.ID, d)
			}
		}
		c.SendChangeEvent(t.Context(), sent)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	close(requests)
	var all []received
	for r := range requests {
		all = append(all, r)
	}
	return all
}

// golden returns the events of the requests in the documentation.
func golden() map[string][]*ChangeEvent {
	cordon := newEvent()
	uncordon := newEvent()
	uncordon.Action, uncordon.ID = ActionUncordon, "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
	uncordon.Timestamp, uncordon.Reason = uncordon.Timestamp.Add(40*time.Minute), "all health checks passed"
	dry := newEvent()
	dry.DryRun, dry.ID = true, "77e0c41d2b3a4958677685940a3b2c1d"
	drained := newEvent()
	drained.Action, drained.Source, drained.ID = ActionDrainCompleted, SourceNodeDrainer, "5d3c2b1a0f9e8d7c6b5a493827160f5e"
	drained.Timestamp = drained.Timestamp.Add(5 * time.Minute)
	drained.Details = map[string]string{"began": "2025-08-26T14:43:02.120Z"}
	all := map[string][]*ChangeEvent{"dry-run": {dry}, "several": {cordon, drained, uncordon}, "drained": {drained}, "uncordon": {uncordon}}
	for _, f := range Formats() {
		all[string(f)] = []*ChangeEvent{cordon}
	}
	all[string(FormatCloudEventsBatch)] = []*ChangeEvent{cordon, uncordon}
	return all
}

// goldenFormat returns the format of a golden request: the one of its name, or the one
// that shows its purpose best.
func goldenFormat(name string) Format {
	switch name {
	case "dry-run", "uncordon":
		return FormatJSON
	case "several":
		return FormatSlack
	case "drained":
		return FormatGrafana
	}
	return Format(name)
}

// TestRequests compares received requests, byte by byte, with the requests in testdata,
// which the documentation shows.
func TestRequests(t *testing.T) {
	for name, events := range golden() {
		t.Run(name, func(t *testing.T) {
			f := goldenFormat(name)
			requests := send(t, f, events...)
			if len(requests) != 1 {
				t.Fatalf("%d requests, want 1", len(requests))
			}
			endpoint, err := url.Parse(sinkRules()[f].endpoint)
			if err != nil {
				t.Fatal(err)
			}
			endpoint.Path = requests[0].URL.Path
			got := strings.Join(append([]string{"POST " + endpoint.String()}, headerLines(requests[0].Header)...), "\n") + "\n\n" + pretty(requests[0].body) + "\n"
			file := filepath.Join("testdata", "requests", name+".http")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSinksTakeAnything verifies that no vendor would reject an event with unusual
// content.
func TestSinksTakeAnything(t *testing.T) {
	for f, rule := range sinkRules() {
		t.Run(string(f), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				batch := rapid.SliceOfN(rapid.Custom(anEvent), 1, formatSpecOrJSON(f).batch).Draw(t, "batch")
				for _, e := range batch {
					if e.Cluster = batch[0].Cluster; sanitizeLabel(e.Action) == "" {
						e.Action = ActionCordon
					}
				}
				cfg := encodeSettings{cluster: formatSpecOrJSON(f).cluster, key: "0123456789abcdef0123456789abcdef"}
				if cfg.cluster {
					for _, e := range batch {
						e.Cluster = sanitizeLabel(e.Cluster)
					}
					if validatePathSegment(batch[0].Cluster) != nil {
						t.Skip("not a name of a cluster")
					}
				}
				req, err := encodeEvents(f, cfg, batch)
				if err != nil {
					t.Fatal(err)
				}
				if len(req.body) > 2*batchText {
					t.Fatalf("%d bytes", len(req.body))
				}
				if err := rule.check(asReceived(t, rule, req), req.body); err != nil {
					t.Fatalf("the sink refuses it: %v\n%s", err, req.body)
				}
			})
		})
	}
}

// asReceived returns a request as a sink receives it, with the credential that the client
// adds.
func asReceived(t *rapid.T, rule sinkRule, req request) *http.Request {
	target := rule.endpoint
	if req.path != "" {
		target += "/" + req.path
	}
	r, err := http.NewRequest(http.MethodPost, target, bytes.NewReader(req.body)) //nolint:noctx // it is not sent
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, req.header)
	r.Header.Set("Content-Type", req.contentType)
	switch {
	case strings.Contains(rule.endpoint, "datadog"):
		r.Header.Set("DD-API-KEY", "0123456789abcdef")
	case strings.Contains(rule.endpoint, "grafana"):
		r.Header.Set("Authorization", "Bearer glsa_5bc0")
	}
	return r
}

// TestSinkRulesRefuse verifies that the rules above can reject requests.
func TestSinkRulesRefuse(t *testing.T) {
	change := func(old, with string) func(*request) {
		return func(r *request) { r.body = []byte(strings.Replace(string(r.body), old, with, 1)) }
	}
	cases := map[string]struct {
		reason string
		format Format
		spoil  func(r *request)
	}{
		"JSONField":      {"a field that the schema lacks", FormatJSON, change(`"action"`, `"event":"x","action"`)},
		"JSONType":       {"a flag that is text", FormatJSON, change(`"isFatal":true`, `"isFatal":"true"`)},
		"JSONPath":       {"a path without the cluster", FormatJSON, func(r *request) { r.path = "" }},
		"EventID":        {"an event without an id", FormatCloudEvents, change(`"id"`, `"id0"`)},
		"BatchObject":    {"a batch that is none", FormatCloudEventsBatch, func(r *request) { r.body = r.body[1 : len(r.body)-1] }},
		"BinaryHeader":   {"an attribute that is missing", FormatCloudEventsBinary, func(r *request) { r.header.Del("Ce-Source") }},
		"PagerDutyKey":   {"a key of another length", FormatPagerDuty, change(`"routing_key":"0`, `"routing_key":"`)},
		"PagerDutyLong":  {"a summary that is too long", FormatPagerDuty, change(`"summary":"`, `"summary":"`+strings.Repeat("a", 1024))},
		"PagerDutyTime":  {"a time that is none", FormatPagerDuty, change(`"timestamp":"2025-08-26T14:42:58.315Z"`, `"timestamp":"2025-08-26T14:42:58.315+0000"`)},
		"DatadogType":    {"a resource of an unknown type", FormatDatadog, change(`"type":"configuration"`, `"type":"node"`)},
		"DatadogTitle":   {"a title that is too long", FormatDatadog, change(`"title":"`, `"title":"`+strings.Repeat("a", 500))},
		"GrafanaSeconds": {"text for a number", FormatGrafana, change(`"time":1756219378315`, `"time":"1756219378315"`)},
		"GrafanaHTML":    {"a script", FormatGrafana, change(`"text":"`, `"text":"<script>`)},
		"SlackMention":   {"all the channel woken up", FormatSlack, change(`"text":"*`, `"text":"<!channel>*`)},
		"SlackEmpty":     {"no text", FormatSlack, change(`"text":"NVSentinel cordoned node gpu-node-01 due to XID-79"`, `"text":""`)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				rule := sinkRules()[tc.format]
				req, err := encodeEvents(tc.format, encodeSettings{cluster: formatSpecOrJSON(tc.format).cluster, key: "0123456789abcdef0123456789abcdef"}, []*ChangeEvent{newEvent()})
				if err != nil {
					t.Fatal(err)
				}
				if err := rule.check(asReceived(t, rule, req), req.body); err != nil {
					t.Fatalf("before it is spoiled: %v", err)
				}
				tc.spoil(&req)
				if err := rule.check(asReceived(t, rule, req), req.body); err == nil {
					t.Errorf("%s is taken: %s", tc.reason, req.body)
				}
			})
		})
	}
}

// BenchmarkFormats measures the cost of encoding an event.
func BenchmarkFormats(b *testing.B) {
	for _, f := range Formats() {
		b.Run(string(f), func(b *testing.B) {
			batch := []*ChangeEvent{newEvent()}
			cfg := encodeSettings{cluster: formatSpecOrJSON(f).cluster, key: "0123456789abcdef0123456789abcdef"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := encodeEvents(f, cfg, batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
