package changeevent

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newEvent returns an event as the client completes it.
func newEvent() *ChangeEvent {
	return &ChangeEvent{
		Action: ActionCordon, NodeName: "gpu-node-01", CheckName: "xid-check", ErrorCode: "XID-79", ErrorCodes: []string{"XID-79"},
		Agent: "syslog-health-monitor", IsFatal: true, Message: "GPU error detected",
		Timestamp: time.Date(2025, time.August, 26, 14, 42, 58, 315_900_000, time.UTC),
		ID:        "9b1c2d3e4f5061728394a5b6c7d8e9f0", Session: "k3f9c2", Source: SourceFaultQuarantine, Cluster: "my-cluster-name",
	}
}

func TestEncodeJSON(t *testing.T) {
	req, err := encodeEvents(FormatJSON, encodeSettings{cluster: true}, []*ChangeEvent{newEvent()})
	if err != nil {
		t.Fatal(err)
	}
	want := request{
		contentType: "application/json",
		header:      http.Header{"Idempotency-Key": {"9b1c2d3e4f5061728394a5b6c7d8e9f0"}},
		path:        "my-cluster-name",
		body: []byte(`{"action":"cordon","timestamp":"2025-08-26T14:42:58.315Z","source":"nvsentinel/fault-quarantine",` +
			`"cluster":"my-cluster-name","node":"gpu-node-01",` +
			`"healthEvent":{"checkName":"xid-check","errorCode":"XID-79","agent":"syslog-health-monitor","isFatal":true,` +
			`"message":"GPU error detected","errorCodes":["XID-79"]},"dryRun":false,` +
			`"id":"9b1c2d3e4f5061728394a5b6c7d8e9f0","summary":"NVSentinel cordoned node gpu-node-01 due to XID-79",` +
			`"outcome":"succeeded","session":"k3f9c2"}`),
	}
	if diff := cmp.Diff(want, req, cmp.AllowUnexported(request{}), cmp.Transformer("text", func(b []byte) string { return string(b) })); diff != "" {
		t.Errorf("encode (-want +got):\n%s", diff)
	}
}

func TestEncodeRefuses(t *testing.T) {
	key := strings.Repeat("k", keyLength)
	with := func(change func(e *ChangeEvent)) []*ChangeEvent {
		e := newEvent()
		change(e)
		return []*ChangeEvent{e}
	}
	cluster := func(name string) []*ChangeEvent { return with(func(e *ChangeEvent) { e.Cluster = name }) }
	cases := map[string]struct {
		reason string
		format Format
		cfg    encodeSettings
		batch  []*ChangeEvent
		want   string
	}{
		"Nothing":      {"there is nothing to send", FormatJSON, encodeSettings{}, nil, "no event"},
		"Several":      {"one event per request", FormatJSON, encodeSettings{}, append(with(func(*ChangeEvent) {}), newEvent()), "too many events"},
		"NoAction":     {"nothing was done", FormatSlack, encodeSettings{}, with(func(e *ChangeEvent) { e.Action = "\x00" }), "no action"},
		"NoCluster":    {"a path that ends with nothing", FormatJSON, encodeSettings{cluster: true}, cluster(""), `cluster ""`},
		"DotCluster":   {"a path that stays", FormatJSON, encodeSettings{cluster: true}, cluster("."), `cluster "."`},
		"DotsCluster":  {"a path that climbs", FormatCloudEvents, encodeSettings{cluster: true}, cluster(".."), `cluster ".."`},
		"TwoClusters":  {"two paths", FormatCloudEventsBatch, encodeSettings{cluster: true}, append(cluster("a"), cluster("b")...), "different clusters"},
		"NoKey":        {"PagerDuty would refuse it", FormatPagerDuty, encodeSettings{}, with(func(*ChangeEvent) {}), "requires a routing key"},
		"ShortKey":     {"and this", FormatPagerDuty, encodeSettings{key: key[1:]}, with(func(*ChangeEvent) {}), "32 characters"},
		"UnknownTypes": {"a format that is none", "fax", encodeSettings{}, with(func(*ChangeEvent) {}), "unknown"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := encodeEvents(tc.format, tc.cfg, tc.batch)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error %v, want one with %q", tc.reason, err, tc.want)
			}
			if err != nil && tc.cfg.key != "" && strings.Contains(err.Error(), tc.cfg.key) {
				t.Errorf("%s: the error tells the key: %v", tc.reason, err)
			}
		})
	}
}

func TestClusterIsOneSegment(t *testing.T) {
	for name, want := range map[string]string{"a": "a", "a/b": "a%2Fb", "a b": "a%20b", "x?y#z": "x%3Fy%23z", "...": "...", "é": "%C3%A9", "a%2f": "a%252f"} {
		e := newEvent()
		e.Cluster = name
		if req, err := encodeEvents(FormatJSON, encodeSettings{cluster: true}, []*ChangeEvent{e}); err != nil || req.path != want {
			t.Errorf("cluster %q: path %q, %v; want %q", name, req.path, err, want)
		}
	}
}

func TestParseFormat(t *testing.T) {
	for _, f := range Formats() {
		var got Format
		if err := got.UnmarshalText([]byte(" " + strings.ToUpper(string(f)))); err != nil || got != f {
			t.Errorf("%s: %s, %v", f, got, err)
		}
		if d := formatSpecOrJSON(f); d.batch < 1 {
			t.Errorf("%s takes %d events", f, d.batch)
		}
	}
	for _, name := range []string{"", "json", "nvsentinel"} {
		if f, err := ParseFormat(name); err != nil || f != FormatJSON {
			t.Errorf("%q: %s, %v", name, f, err)
		}
	}
	if _, err := ParseFormat("fax"); err == nil || !strings.Contains(err.Error(), "pagerduty") {
		t.Errorf("fax: %v, want an error that says what there is", err)
	}
}

// TestOnlyWhatWasDone verifies that no sink receives a change that did not happen, or an
// end before its start.
func TestOnlyWhatWasDone(t *testing.T) {
	body := func(f Format, change func(e *ChangeEvent)) string {
		e := newEvent()
		change(e)
		req, err := encodeEvents(f, encodeSettings{}, []*ChangeEvent{e})
		if err != nil {
			t.Fatal(err)
		}
		return string(req.body)
	}
	for name, change := range map[string]func(e *ChangeEvent){
		"dry run": func(e *ChangeEvent) { e.DryRun = true },
		"failed":  func(e *ChangeEvent) { e.Outcome = OutcomeFailed },
		"other":   func(e *ChangeEvent) { e.Action = ActionDrainStarted },
	} {
		if text := body(FormatDatadog, change); strings.Contains(text, "unschedulable") {
			t.Errorf("%s: %s", name, text)
		}
	}
	uncordoned := body(FormatDatadog, func(e *ChangeEvent) { e.Action = ActionUncordon })
	if !strings.Contains(uncordoned, `"prev_value":{"unschedulable":true},"new_value":{"unschedulable":false}`) {
		t.Error(uncordoned)
	}
	for began, want := range map[string]bool{"2025-08-26T14:00:00Z": true, "2025-08-26T15:00:00Z": false, "soon": false} {
		text := body(FormatGrafana, func(e *ChangeEvent) { e.Details = map[string]string{detailBegan: began} })
		if strings.Contains(text, "timeEnd") != want {
			t.Errorf("began %s: %s", began, text)
		}
	}
}
