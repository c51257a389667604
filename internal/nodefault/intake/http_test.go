package intake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

// A memoryStore is a store that rejects some nodes.
type memoryStore struct {
	mu      sync.Mutex
	reports []nodefault.Report
	all     error
}

func (m *memoryStore) Apply(_ context.Context, reports []nodefault.Report) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all != nil {
		return m.all
	}
	errs := make([]error, len(reports))
	for i, r := range reports {
		switch r.Node {
		case "unknown":
			errs[i] = fmt.Errorf("node %q: %w", r.Node, intake.ErrUnknownNode)
		case "full":
			errs[i] = intake.ErrFull
		case "late":
			errs[i] = fmt.Errorf("%w: generated at 14:42", intake.ErrOutdated)
		case "away":
			errs[i] = fmt.Errorf("%w: dial tcp 10.0.0.1:443: refused", intake.ErrUnavailable)
		default:
			m.reports = append(m.reports, r)
		}
	}
	return intake.JoinReportErrors(errs)
}

// A fakeAuthenticator accepts one token.
type fakeAuthenticator struct{ err error }

func (d fakeAuthenticator) Authenticate(_ context.Context, header, _ string) (string, error) {
	if d.err != nil {
		return "", d.err
	}
	return header, nil
}

func newHTTPHandler(t *testing.T, store intake.Store, change ...func(*intake.HTTPConfig, *intake.HTTPDeps)) http.Handler {
	t.Helper()
	var cfg intake.HTTPConfig
	deps := intake.HTTPDeps{Store: store, Auth: fakeAuthenticator{}, Metrics: intake.NewMetrics(nil), Log: slog.New(slog.DiscardHandler)}
	for _, do := range change {
		do(&cfg, &deps)
	}
	h, err := intake.NewHTTPHandler(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func postReport(t *testing.T, h http.Handler, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const eventJSON = `{"version":1,"agent":"syslog-health-monitor","componentClass":"GPU","checkName":"xid-check","isFatal":true,` +
	`"isHealthy":false,"message":"GPU has fallen off the bus","recommendedAction":"RESTART_VM","errorCode":["79"],` +
	`"entitiesImpacted":[{"entityType":"GPU","entityValue":"3"}],"metadata":{"a":"b"},"generatedTimestamp":"2025-08-26T14:42:58.315Z","nodeName":"gpu-node-01"}`

func newReport(change ...func(*nodefault.Report)) nodefault.Report {
	at := time.Date(2025, 8, 26, 14, 42, 58, 315_000_000, time.UTC)
	generated := metav1.NewMicroTime(at)
	r := nodefault.Report{Node: "gpu-node-01", Fault: v1alpha1.Fault{
		Source: "syslog-health-monitor", Check: "xid-check", Entity: "GPU/3", ComponentClass: "GPU", ErrorCodes: []string{"79"}, Fatal: true,
		Message: "GPU has fallen off the bus", RecommendedAction: "RESTART_VM",
		DetectedAt: metav1.NewMicroTime(at), GeneratedAt: &generated,
	}}
	for _, do := range change {
		do(&r)
	}
	return r
}

func wantReports(t *testing.T, got []nodefault.Report, want ...nodefault.Report) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

func TestHealthEventForms(t *testing.T) {
	envelope := `{"specversion":"1.0","id":"1","source":"nvsentinel://c/healthevents","type":"com.nvidia.nvsentinel.health.v1","data":%s}`
	exported := fmt.Sprintf(envelope, `{"metadata":{"cluster":"c"},"healthEvent":`+strings.Replace(eventJSON, `"RESTART_VM"`, "15", 1)+`}`)
	untimed := strings.Replace(eventJSON, `"generatedTimestamp":"2025-08-26T14:42:58.315Z",`, "", 1)
	binary := []string{"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/s", "Ce-Type", "t", "Ce-Time", "2025-08-26T14:42:58.315Z"}
	cases := map[string]struct {
		reason  string
		body    string
		headers []string
		want    []nodefault.Report
	}{
		"One":         {"one event", eventJSON, nil, []nodefault.Report{newReport()}},
		"NoType":      {"without a content type it is JSON", eventJSON, []string{"Content-Type", ""}, []nodefault.Report{newReport()}},
		"List":        {"several", "[" + eventJSON + "," + eventJSON + "]", nil, []nodefault.Report{newReport(), newReport()}},
		"Structured":  {"as the exporter sends them, with the number of the action", exported, []string{"Content-Type", "application/cloudevents+json; charset=utf-8"}, []nodefault.Report{newReport()}},
		"Batch":       {"several of those", "[" + exported + "," + fmt.Sprintf(envelope, eventJSON) + "]", []string{"Content-Type", "application/cloudevents-batch+json"}, []nodefault.Report{newReport(), newReport()}},
		"Binary":      {"attributes in headers, and the time from there", untimed, binary, []nodefault.Report{newReport(func(r *nodefault.Report) { r.Fault.GeneratedAt = nil })}},
		"OneCode":     {"a code may be a text", strings.Replace(eventJSON, `["79"]`, `"79"`, 1), nil, []nodefault.Report{newReport()}},
		"OtherCase":   {"a fatal fault is fatal in any spelling", strings.NewReplacer("isFatal", "is_fatal", "nodeName", "NodeName").Replace(eventJSON), nil, []nodefault.Report{newReport()}},
		"ProtoTime":   {"a time as the library of protobuf prints it", strings.Replace(eventJSON, `"2025-08-26T14:42:58.315Z"`, `{"seconds":1756219378,"nanos":315000000}`, 1), nil, []nodefault.Report{newReport()}},
		"NoColon":     {"an offset without a colon, as in the record of change events", strings.Replace(eventJSON, "42:58.315Z", "42:58.315+0000", 1), nil, []nodefault.Report{newReport()}},
		"Healthy":     {"it is over", strings.Replace(eventJSON, `"isHealthy":false`, `"isHealthy":true`, 1), nil, []nodefault.Report{newReport(func(r *nodefault.Report) { r.Healthy = true })}},
		"StoreOnly":   {"to be known of", strings.Replace(eventJSON, `{"version":1,`, `{"processingStrategy":"STORE_ONLY",`, 1), nil, []nodefault.Report{newReport(func(r *nodefault.Report) { r.Fault.ObserveOnly = true })}},
		"StoreNumber": {"as a number, and one that we do not know", strings.Replace(eventJSON, `{"version":1,`, `{"processingStrategy":3,`, 1), nil, []nodefault.Report{newReport(func(r *nodefault.Report) { r.Fault.ObserveOnly = true })}},
		"Custom": {
			"an action of the monitor's own", strings.Replace(eventJSON, `"RESTART_VM"`, `"CUSTOM","customRecommendedAction":"RESET_NIC"`, 1), nil,
			[]nodefault.Report{newReport(func(r *nodefault.Report) { r.Fault.RecommendedAction = "RESET_NIC" })},
		},
		"Overrides": {
			"whatever the rules say", strings.Replace(eventJSON, `{"version":1,`, `{"quarantineOverrides":{"force":true},"drainOverrides":{"skip":true},`, 1), nil,
			[]nodefault.Report{newReport(func(r *nodefault.Report) { r.Fault.QuarantineOverride, r.Fault.DrainOverride = "force", "skip" })},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var m memoryStore
			w := postReport(t, newHTTPHandler(t, &m), intake.PathHealthEvents, tc.body, tc.headers...)
			if w.Code != http.StatusAccepted || strings.TrimSpace(w.Body.String()) != fmt.Sprintf(`{"stored":%d}`, len(tc.want)) {
				t.Errorf("%s: %d %s", tc.reason, w.Code, w.Body)
			}
			wantReports(t, m.reports, tc.want...)
		})
	}
}

func TestHTTPRefusals(t *testing.T) {
	at := func(node string) string { return strings.Replace(eventJSON, "gpu-node-01", node, 1) }
	cases := map[string]struct {
		reason  string
		body    string
		headers []string
		code    int
		says    string
		stored  int
	}{
		"NotJSON":       {"what is wrong with it is said", `{"agent":`, nil, 400, "not JSON", 0},
		"Nothing":       {"a mistake of the sender's", ``, nil, 400, "no events", 0},
		"EmptyList":     {"as above", `[]`, nil, 400, "no events", 0},
		"Number":        {"as above", `7`, nil, 400, "not a health event", 0},
		"WrongType":     {"which field is said", strings.Replace(eventJSON, `"isFatal":true`, `"isFatal":"yes"`, 1), nil, 400, "isFatal", 0},
		"BadTime":       {"which field is said", strings.Replace(eventJSON, "2025-08-26T", "yesterday", 1), nil, 400, "generatedTimestamp", 0},
		"BadStrategy":   {"which there are is said", strings.Replace(eventJSON, `{"version":1,`, `{"processingStrategy":"EXECUTE",`, 1), nil, 400, "STORE_ONLY", 0},
		"NoNode":        {"what to do is said", strings.Replace(eventJSON, "nodeName", "node", 1), nil, 400, "set it to the name of the Node", 0},
		"UnknownNode":   {"unknown node", at("unknown"), nil, 404, `node \"unknown\"`, 0},
		"Full":          {"it has no room", at("full"), nil, 409, "maximum number of faults", 0},
		"Late":          {"a later report is stored", at("late"), nil, 409, "outdated report: generated at 14:42", 0},
		"Away":          {"what is between us and the API server is ours", at("away"), nil, 503, "send the same request again", 0},
		"SomeAway":      {"all of it is to be sent again", "[" + eventJSON + "," + at("away") + "," + at("unknown") + "]", nil, 503, `"index":1`, 1},
		"Some":          {"which of them is said", "[" + eventJSON + "," + at("unknown") + ",{}]", nil, 207, `"rejected":[{"index":1,"status":404,`, 1},
		"AllButDiffer":  {"each has its own reason", "[" + at("full") + "," + at("unknown") + "]", nil, 400, "all 2 events were rejected", 0},
		"AllTheSame":    {"one reason for all", "[" + at("unknown") + "," + at("unknown") + "]", nil, 404, "all 2 events were rejected", 0},
		"TooMany":       {"in one request", "[" + strings.Repeat("{},", 1000) + "{}]", nil, 413, "more than 1000", 0},
		"TooLong":       {"in one request", `"` + strings.Repeat("x", 1<<20) + `"`, nil, 413, "larger than 1048576", 0},
		"Text":          {"another content type", eventJSON, []string{"Content-Type", "text/plain"}, 415, "application/cloudevents+json", 0},
		"Avro":          {"another format of CloudEvents", eventJSON, []string{"Content-Type", "application/cloudevents+avro"}, 415, "application/json", 0},
		"BrokenType":    {"no content type", eventJSON, []string{"Content-Type", "//"}, 415, "content type", 0},
		"BadEnvelope":   {"no CloudEvent", `{}`, []string{"Content-Type", "application/cloudevents+json"}, 400, "specversion", 0},
		"BadBatch":      {"the others count", `[{},{"specversion":"1.0","id":"1","source":"s","type":"t","data":` + eventJSON + `}]`, []string{"Content-Type", "application/cloudevents-batch+json"}, 207, `"index":0,"status":400`, 1},
		"BadBinary":     {"no CloudEvent", eventJSON, []string{"Ce-Specversion", "0.3"}, 400, "specversion", 0},
		"EmptyEnvelope": {"no data", `{"specversion":"1.0","id":"1","source":"s","type":"t"}`, []string{"Content-Type", "application/cloudevents+json"}, 400, "no events", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var m memoryStore
			w := postReport(t, newHTTPHandler(t, &m), intake.PathHealthEvents, tc.body, tc.headers...)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("%s: got %d %s, want %d and %q", tc.reason, w.Code, w.Body, tc.code, tc.says)
			}
			if len(m.reports) != tc.stored {
				t.Errorf("%s: %d stored, want %d", tc.reason, len(m.reports), tc.stored)
			}
			if strings.Contains(w.Body.String(), "10.0.0.1") {
				t.Errorf("the answer tells of the API server: %s", w.Body)
			}
			if (w.Code == 503) != (w.Header().Get("Retry-After") != "") {
				t.Errorf("%d with Retry-After %q", w.Code, w.Header().Get("Retry-After"))
			}
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("the answer is no JSON: %s", w.Body)
			}
		})
	}
}

func TestHTTPCallers(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		code   int
		header string
	}{
		"None":        {"who is it?", intake.ErrNoToken, 401, "Www-Authenticate"},
		"Invalid":     {"who is it?", intake.ErrInvalidToken, 401, "Www-Authenticate"},
		"Forbidden":   {"it may not", fmt.Errorf("%q: %w", "alice", intake.ErrForbidden), 403, ""},
		"Unavailable": {"nobody knows", intake.ErrAuthUnavailable, 503, "Retry-After"},
		"TooMany":     {"it may be somebody next to it", intake.ErrTooManyInvalidTokens, 429, "Retry-After"},
		"Other":       {"nobody knows", errors.New("x"), 503, "Retry-After"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var m memoryStore
			h := newHTTPHandler(t, &m, func(_ *intake.HTTPConfig, d *intake.HTTPDeps) { d.Auth = fakeAuthenticator{tc.err} })
			for _, path := range []string{intake.PathHealthEvents, intake.PathAlertmanager} {
				w := postReport(t, h, path, eventJSON)
				if w.Code != tc.code || len(m.reports) > 0 || tc.header != "" && w.Header().Get(tc.header) == "" {
					t.Errorf("%s: %s: got %d, %v, want %d with %q", tc.reason, path, w.Code, w.Header(), tc.code, tc.header)
				}
			}
		})
	}
}

func TestHTTPCallerLimit(t *testing.T) {
	var m memoryStore
	h := newHTTPHandler(t, &m, func(c *intake.HTTPConfig, _ *intake.HTTPDeps) { c.Rate, c.Burst = 0.001, 2 })
	for i, want := range []int{202, 202, 429} {
		if w := postReport(t, h, intake.PathHealthEvents, eventJSON, "Authorization", "a"); w.Code != want || (want == 429) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("request %d of one caller: %d, want %d", i, w.Code, want)
		}
	}
	if w := postReport(t, h, intake.PathHealthEvents, eventJSON, "Authorization", "b"); w.Code != 202 {
		t.Errorf("another caller: %d, want 202", w.Code)
	}
}

func TestHTTPUnknownPath(t *testing.T) {
	h := newHTTPHandler(t, &memoryStore{})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, intake.PathHealthEvents, nil)
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d %v, want 405", w.Code, w.Header())
	}
	if w := postReport(t, h, "/v1/events", eventJSON); w.Code != 404 || !strings.Contains(w.Body.String(), intake.PathHealthEvents) {
		t.Errorf("another path: %d %s, want 404 that says where to", w.Code, w.Body)
	}
}

const alertJSON = `{"status":"firing","labels":{"alertname":"NodeXID","severity":"critical","instance":"gpu-node-01:9100","xid":"79,48","component":"GPU"},` +
	`"annotations":{"summary":"XID 79","description":"fell off the bus","recommended_action":"RESTART_BM"},` +
	`"startsAt":"2025-08-26T14:42:58.315Z","endsAt":"0001-01-01T00:00:00Z","fingerprint":"c0ffee"}`

func notificationJSON(alerts ...string) string {
	return `{"version":"4","groupKey":"{}","truncatedAlerts":0,"status":"firing","receiver":"fleetloop","alerts":[` + strings.Join(alerts, ",") + `]}`
}

func TestAlerts(t *testing.T) {
	fires := func(change ...func(*nodefault.Report)) nodefault.Report {
		r := newReport(func(r *nodefault.Report) {
			r.Fault.Source, r.Fault.Check, r.Fault.Entity, r.Fault.ErrorCodes = "alertmanager", "NodeXID", "alert/c0ffee", []string{"79", "48"}
			r.Fault.Message, r.Fault.RecommendedAction = "XID 79: fell off the bus", "RESTART_BM"
			r.Fault.GeneratedAt = nil // the times of an alert are not those of its notifications
		})
		for _, do := range change {
			do(&r)
		}
		return r
	}
	cases := map[string]struct {
		reason string
		change *strings.Replacer
		cfg    func(*intake.AlertConfig)
		code   int
		want   []nodefault.Report
		says   string
	}{
		"Firing":     {"a fault", strings.NewReplacer(), nil, 202, []nodefault.Report{fires()}, ""},
		"NodeLabel":  {"the name of the node comes first", strings.NewReplacer(`"alertname"`, `"node":"gpu-node-02","alertname"`), nil, 202, []nodefault.Report{fires(func(r *nodefault.Report) { r.Node = "gpu-node-02" })}, ""},
		"Address":    {"an address is looked for", strings.NewReplacer("gpu-node-01:9100", "[fd00::7]:9100"), nil, 202, []nodefault.Report{fires(func(r *nodefault.Report) { r.Node = "seven" })}, ""},
		"NoSuch":     {"and may be unknown", strings.NewReplacer("gpu-node-01:9100", "10.0.0.9:9100"), nil, 404, nil, "unknown node"},
		"Warning":    {"not all alerts are fatal", strings.NewReplacer("critical", "warning"), nil, 202, []nodefault.Report{fires(func(r *nodefault.Report) { r.Fault.Fatal = false })}, ""},
		"NoCode":     {"its name is the code", strings.NewReplacer(`"xid"`, `"other"`), nil, 202, []nodefault.Report{fires(func(r *nodefault.Report) { r.Fault.ErrorCodes = []string{"NodeXID"} })}, ""},
		"Entity":     {"labels of one's choice", strings.NewReplacer(`"alertname"`, `"gpu":"3","alertname"`), func(c *intake.AlertConfig) { c.EntityLabels = []string{"gpu", "nic"} }, 202, []nodefault.Report{fires(func(r *nodefault.Report) { r.Fault.Entity = "gpu/3" })}, ""},
		"NoNode":     {"which labels would do is said", strings.NewReplacer("instance", "host"), nil, 400, nil, "kubernetes_node"},
		"NoName":     {"what alert is it?", strings.NewReplacer("alertname", "name"), nil, 400, nil, "alertname"},
		"BadStatus":  {"firing or resolved", strings.NewReplacer("firing", "pending"), nil, 400, nil, "pending"},
		"OldVersion": {"another format", strings.NewReplacer(`"version":"4"`, `"version":"3"`), nil, 400, nil, `want \"4\"`},
		"NotIt":      {"something else", strings.NewReplacer(`"alerts":[`, `"alerts":{}}`), nil, 400, nil, "not an Alertmanager notification"},
		"Empty":      {"no alerts", strings.NewReplacer(alertJSON, ``), nil, 400, nil, "no events"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var m memoryStore
			h := newHTTPHandler(t, &m, func(c *intake.HTTPConfig, d *intake.HTTPDeps) {
				c.Alerts = intake.DefaultAlertConfig()
				if tc.cfg != nil {
					tc.cfg(&c.Alerts)
				}
				d.NodeAt = func(_ context.Context, address string) (string, error) {
					if address == "fd00::7" {
						return "seven", nil
					}
					return "", intake.ErrUnknownNode
				}
			})
			w := postReport(t, h, intake.PathAlertmanager, tc.change.Replace(notificationJSON(alertJSON)))
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("%s: got %d %s, want %d and %q", tc.reason, w.Code, w.Body, tc.code, tc.says)
			}
			wantReports(t, m.reports, tc.want...)
		})
	}
}

// TestResolvedAlerts verifies that a resolved alert ends the fault of its firing alert, and not
// that of another alert of the same name on the same node.
func TestResolvedAlerts(t *testing.T) {
	var m memoryStore
	h := newHTTPHandler(t, &m)
	unmarked := strings.Replace(alertJSON, `,"fingerprint":"c0ffee"`, "", 1)
	other := strings.Replace(unmarked, `"component":"GPU"`, `"component":"GPU","gpu":"4"`, 1)
	resolved := strings.NewReplacer("firing", "resolved", "0001-01-01T00:00:00Z", "2025-08-26T15:00:00Z").Replace(unmarked)
	if w := postReport(t, h, intake.PathAlertmanager, notificationJSON(unmarked, other, resolved)); w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	a, b, end := m.reports[0], m.reports[1], m.reports[2]
	if !end.Healthy || nodefault.KeyOf(end.Fault) != nodefault.KeyOf(a.Fault) || nodefault.KeyOf(b.Fault) == nodefault.KeyOf(a.Fault) {
		t.Errorf("got %+v, %+v and the end of %+v", a, b, end)
	}
	if want := time.Date(2025, 8, 26, 15, 0, 0, 0, time.UTC); !end.Fault.DetectedAt.Time.Equal(want) {
		t.Errorf("it ended at %v, want %v", end.Fault.DetectedAt, want)
	}
	if a.Fault.GeneratedAt != nil || end.Fault.GeneratedAt != nil {
		t.Error("alerts are ordered by their times, which are those of the alert and not of the notification")
	}
}

func FuzzHealthEvents(f *testing.F) {
	f.Add("application/json", "", []byte(eventJSON))
	f.Add("", "1.0", []byte("["+eventJSON+"]"))
	f.Add("application/cloudevents-batch+json", "", []byte(`[{"specversion":"1.0","id":"1","source":"s","type":"t","data":[`+eventJSON+`]}]`))
	f.Add("application/cloudevents+json", "", []byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"healthEvent":{"healthEvent":{"errorCode":null,"recommendedAction":-1}}}}`))
	f.Fuzz(func(t *testing.T, contentType, version string, body []byte) {
		header := http.Header{}
		header.Set("Content-Type", contentType)
		for name, v := range map[string]string{"Ce-Specversion": version, "Ce-Id": version, "Ce-Source": "s", "Ce-Type": "t"} {
			header.Set(name, v)
		}
		checkDecoded(t, func() ([]intake.Element, error) { return intake.DecodeEvents(header, body) })
	})
}

func FuzzAlerts(f *testing.F) {
	f.Add([]byte(notificationJSON(alertJSON)))
	f.Add([]byte(notificationJSON(`{"status":"resolved","labels":{"alertname":"a","node":"n"}}`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		checkDecoded(t, func() ([]intake.Element, error) { return intake.DecodeAlerts(t.Context(), body) })
	})
}

// checkDecoded verifies that each decoded element can be stored or is rejected.
func checkDecoded(t *testing.T, decode func() ([]intake.Element, error)) {
	t.Helper()
	elements, err := decode()
	if err == nil && len(elements) == 0 {
		t.Fatal("neither events nor an error")
	}
	for _, e := range elements {
		if e.Err != nil {
			if intake.Transient(e.Err) {
				t.Fatalf("what cannot be read would be sent again: %v", e.Err)
			}
			continue
		}
		r, err := e.Event.ToReport(time.Now())
		if err != nil {
			if !errors.Is(err, intake.ErrInvalid) {
				t.Fatal(err)
			}
			continue
		}
		f := r.Fault
		if f.Source == "" || f.Check == "" || len([]rune(f.Entity)) > 256 || len([]rune(f.Message)) > 1024 || len(f.ErrorCodes) > 16 || f.DetectedAt.IsZero() {
			t.Fatalf("cannot be stored: %+v", f)
		}
	}
}
