package changeevent

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const minimal = `{"action":"cordon","timestamp":"2025-08-26T14:42:58.315Z","cluster":"c","node":"n"}`

func TestDecode(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		change       func(p *Payload)
	}{
		"Minimal": {"what follows from the rest is filled in", minimal, func(*Payload) {}},
		"OtherTime": {
			"the form without a colon in the offset", `{"action":"cordon","timestamp":"2025-08-26T16:42:58.315+0200","cluster":"c","node":"n"}`, func(*Payload) {},
		},
		"NoDecimals": {
			"a time without decimals gets three", `{"action":"cordon","timestamp":"2025-01-12T14:30:00Z","cluster":"c","node":"n","id":"x"}`,
			func(p *Payload) { p.Timestamp, p.ID = "2025-01-12T14:30:00.000Z", "x" },
		},
		"Unknown": {
			"fields of later versions are passed over", `{"action":"cordon","timestamp":"2025-08-26T14:42:58.315Z","cluster":"c","node":"n","later":{"a":[1]}}`, func(*Payload) {},
		},
		"Full": {
			"all that there is", `{"action":"cordon","timestamp":"2025-08-26T14:42:58.315Z","source":"s","cluster":"c","node":"n","dryRun":true,"id":"x","subject":"executions/y",
			"healthEvent":{"checkName":"k","errorCode":"1","agent":"a","isFatal":true,"message":"m","errorCodes":["1"]},
			"summary":"[DRY-RUN] own words","outcome":"failed","reason":"r","session":"z","links":[{"href":"https://x.example/","text":"X"},{"href":"javascript:x"}],"details":{"k":"v"}}`,
			func(p *Payload) {
				*p = Payload{
					Action: "cordon", Timestamp: "2025-08-26T14:42:58.315Z", Source: "s", Cluster: "c", Node: "n", DryRun: true, ID: "x", Subject: "executions/y",
					HealthEvent: &HealthEvent{CheckName: "k", ErrorCode: "1", Agent: "a", IsFatal: true, Message: "m", ErrorCodes: []string{"1"}},
					Summary:     "[DRY-RUN] own words", Outcome: OutcomeFailed, Reason: "r", Session: "z", Links: []Link{{"https://x.example/", "X"}}, Details: map[string]string{"k": "v"},
				}
			},
		},
		"LongMessage": {
			"free text is cut", `{"action":"cordon","timestamp":"2025-08-26T14:42:58.315Z","cluster":"c","node":"n","id":"x","summary":"s","reason":"` + strings.Repeat("a", 2000) + `"}`,
			func(p *Payload) { p.ID, p.Summary, p.Reason = "x", "s", strings.Repeat("a", maxReason-1)+"…" },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := NewPayload(ChangeEvent{Action: "cordon", Timestamp: time.Date(2025, 8, 26, 14, 42, 58, 315_000_000, time.UTC), Cluster: "c", NodeName: "n"})
			tc.change(&want)
			got, err := Decode([]byte(tc.text))
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	with := func(field string) string { return strings.Replace(minimal, "{", "{"+field+",", 1) }
	cases := map[string]struct{ reason, text, want string }{
		"Empty":      {"nothing is no event", "", "parse JSON"},
		"NotJSON":    {"nor is text", "cordon", "parse JSON"},
		"Array":      {"nor are several", "[" + minimal + "]", "JSON"},
		"Trailing":   {"one text, one event", minimal + minimal, "parse JSON"},
		"NoAction":   {"what was done?", `{"timestamp":"2025-08-26T14:42:58.315Z"}`, "action is required"},
		"NoTime":     {"and when?", `{"action":"cordon"}`, "timestamp"},
		"BadTime":    {"a time that people write", `{"action":"cordon","timestamp":"26.8.2025"}`, "2025-08-26T14:42:58.315Z"},
		"NumberTime": {"nor seconds", `{"action":"cordon","timestamp":1756219378}`, `"timestamp" must not be a JSON number`},
		"LongNode":   {"cut it would be another node", with(`"node":"` + strings.Repeat("n", 254) + `"`), "node is longer than 253"},
		"OddID":      {"mended it would be another id", with(`"id":"a\nb"`), "id"},
		"Blank":      {"blanks around a name", with(`"cluster":" c"`), "cluster"},
		"Outcome":    {"there are two", with(`"outcome":"maybe"`), "must be succeeded or failed"},
		"Details":    {"details are text", with(`"details":{"n":1}`), "must not be a JSON number"},
		"TooLarge":   {"no more than can be meant", with(`"reason":"` + strings.Repeat("a", MaxPayloadBytes) + `"`), "too large"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// The last of two fields of the same name wins, so the minimal event must not
			// have it.
			text := tc.text
			for _, field := range []string{"node", "cluster"} {
				if strings.Count(text, `"`+field+`"`) > 1 {
					text = strings.NewReplacer(`,"cluster":"c"`, "", `,"node":"n"`, "").Replace(text)
				}
			}
			if _, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: Decode = %v, want an error with %q", tc.reason, err, tc.want)
			}
		})
	}
	if _, err := Decode(bytes.Repeat([]byte(" "), MaxPayloadBytes+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Decode of too much = %v, want ErrTooLarge", err)
	}
}

func TestDecodeAll(t *testing.T) {
	other := strings.Replace(minimal, "cordon", "uncordon", 1)
	for text, want := range map[string]int{minimal: 1, "[" + minimal + "]": 1, " [" + minimal + "," + other + "]": 2, "[]": 0} {
		if got, err := DecodeAll([]byte(text)); err != nil || len(got) != want {
			t.Errorf("DecodeAll(%s) = %d, %v; want %d", text, len(got), err, want)
		}
	}
	_, err := DecodeAll([]byte("[" + minimal + `,{"action":"cordon"}]`))
	if which, ok := errors.AsType[*ElementError](err); !ok || which.Index != 1 || !strings.Contains(err.Error(), "element 1: timestamp") {
		t.Errorf("DecodeAll with a bad one = %v, want an error of element 1", err)
	}
	if _, err := DecodeAll([]byte("[" + strings.Repeat("0,", MaxPayloads) + "0]")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("DecodeAll of too many = %v, want ErrTooLarge", err)
	}
}

// TestDecodeReadsWhatIsSent verifies that a payload survives encoding and decoding in
// each format that the fleet API accepts.
func TestDecodeReadsWhatIsSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anEvent(t)
		if sanitizeLabel(e.Action) == "" {
			e.Action = ActionCordon
		}
		e.Timestamp = e.Timestamp.UTC()
		want := NewPayload(*e)
		for _, f := range []Format{FormatJSON, FormatCloudEvents, FormatCloudEventsBinary, FormatCloudEventsBatch} {
			req, err := encodeEvents(f, encodeSettings{}, []*ChangeEvent{e})
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(req)
			if err != nil {
				t.Fatalf("%s: %v of %s", f, err, req.body)
			}
			filled := want
			if filled.Source == "" && f != FormatJSON {
				filled.Source = got[0].Source // from the attributes
			}
			if diff := cmp.Diff([]Payload{filled}, got); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", f, diff)
			}
		}
	})
}

// read decodes a request like a server.
func read(req request) ([]Payload, error) {
	header := req.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", req.contentType)
	if IsCloudEvent(header) {
		return DecodeCloudEvent(header, req.body)
	}
	return DecodeAll(req.body)
}

func TestDecodeCloudEvent(t *testing.T) {
	const event = `"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2025-08-26T14:42:58.315Z","subject":"executions/x"`
	const bare = `{"action":"cordon","cluster":"c"}`
	headers := func(pairs ...string) http.Header {
		h := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/s"}, "Ce-Type": {"t"}, "Ce-Time": {"2025-08-26T14:42:58.315Z"}, "Ce-Subject": {"a%20b%25"}}
		for pair := range slices.Chunk(pairs, 2) {
			h.Set(pair[0], pair[1])
		}
		return h
	}
	structured := http.Header{"Content-Type": {"Application/CloudEvents+JSON; charset=UTF-8"}}
	batch := http.Header{"Content-Type": {"application/cloudevents-batch+json"}}
	encoded := base64.StdEncoding.EncodeToString([]byte(bare))
	cases := map[string]struct {
		reason string
		header http.Header
		body   string
		want   string // the subject, or the error
		fails  bool
	}{
		"Structured":  {"the attributes fill in what the data lack", structured, `{` + event + `,"data":` + bare + `}`, "executions/x", false},
		"Base64":      {"data may be base64", structured, `{` + event + `,"data_base64":"` + encoded + `"}`, "executions/x", false},
		"Batch":       {"an array", batch, `[{` + event + `,"data":` + bare + `}]`, "executions/x", false},
		"Binary":      {"attributes in headers, percent-encoded", headers("Content-Type", "application/json"), bare, "a b%", false},
		"BinaryPlus":  {"other JSON is JSON", headers("Content-Type", "application/vnd.x+json"), bare, "a b%", false},
		"Unmarked":    {"data without a type are JSON", headers(), bare, "a b%", false},
		"NoSpec":      {"a version is required", structured, `{"id":"1","data":` + bare + `}`, "specversion", true},
		"OldSpec":     {"of 0.3 the attributes differ", headers("Ce-Specversion", "0.3"), bare, "specversion", true},
		"NoID":        {"an id is required", headers("Ce-Id", ""), bare, "attribute id", true},
		"BadPercent":  {"a percent sign escapes", headers("Ce-Subject", "%zz"), bare, "Ce-Subject", true},
		"NoData":      {"data are required", structured, `{` + event + `}`, "no data", true},
		"NullData":    {"and are an event", structured, `{` + event + `,"data":null}`, "action is required", true},
		"BothData":    {"and given once", structured, `{` + event + `,"data":{},"data_base64":"e30="}`, "both set", true},
		"TextData":    {"data of another type", structured, `{` + event + `,"datacontenttype":"text/plain","data":"x"}`, "application/json", true},
		"BatchObject": {"a batch is an array", batch, `{` + event + `,"data":` + bare + `}`, "array", true},
		"BatchBad":    {"and says which is wrong", batch, `[{` + event + `,"data":` + bare + `},{}]`, "element 1: specversion", true},
		"Avro":        {"another format of CloudEvents", http.Header{"Content-Type": {"application/cloudevents+avro"}}, "x", "not supported", true},
		"XML":         {"another type", headers("Content-Type", "text/xml"), bare, "not supported", true},
		"Charset":     {"JSON is UTF-8", headers("Content-Type", "application/json; charset=latin1"), bare, "UTF-8", true},
		"BadType":     {"a type that does not parse", headers("Content-Type", "a/b/c;;="), bare, "not supported", true},
		"TooLarge":    {"no more than can be meant", headers(), strings.Repeat(" ", MaxPayloadBytes+1), "too large", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeCloudEvent(tc.header, []byte(tc.body))
			if tc.fails {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: error %v, want one with %q", tc.reason, err, tc.want)
				}
				return
			}
			if err != nil || len(got) != 1 {
				t.Fatalf("%s: %d payloads, %v", tc.reason, len(got), err)
			}
			if p := got[0]; p.Subject != tc.want || p.Source != "/s" || p.Timestamp != "2025-08-26T14:42:58.315Z" || len(p.ID) != 32 {
				t.Errorf("%s: %+v", tc.reason, p)
			}
		})
	}
	id := func(h http.Header) string {
		got, err := DecodeCloudEvent(h, []byte(bare))
		if err != nil {
			t.Fatal(err)
		}
		return got[0].ID
	}
	for attribute, apart := range map[string]bool{"Ce-Id": true, "Ce-Source": true, "Ce-Type": false, "Ce-Subject": false} {
		if other := id(headers(attribute, "other")); (other != id(headers())) != apart {
			t.Errorf("of another %s the id is %s: what tells events apart are their source and their id", attribute, other)
		}
	}
	if _, err := DecodeCloudEvent(http.Header{"Content-Type": {"text/xml"}}, nil); !errors.Is(err, ErrMediaType) {
		t.Errorf("another type = %v, want ErrMediaType", err)
	}
}

// TestCloudEventsAreValid decodes the encoded events with the SDK of CloudEvents.
func TestCloudEventsAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anEvent(t)
		if sanitizeLabel(e.Action) == "" {
			e.Action = ActionCordon
		}
		req, err := encodeEvents(FormatCloudEvents, encodeSettings{}, []*ChangeEvent{e})
		if err != nil {
			t.Fatal(err)
		}
		var theirs sdk.Event
		if err := json.Unmarshal(req.body, &theirs); err != nil {
			t.Fatalf("the SDK refuses %s: %v", req.body, err)
		}
		if err := theirs.Validate(); err != nil {
			t.Fatalf("the SDK finds fault with %s: %v", req.body, err)
		}
		if want := ID(*e); theirs.ID() != want || !theirs.Time().Equal(e.Timestamp.Truncate(time.Millisecond)) {
			t.Fatalf("id %q at %s, want %q at %s", theirs.ID(), theirs.Time(), want, e.Timestamp)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{minimal, "[" + minimal + "]", `{"action":"a","timestamp":"0000-01-01T00:00:00Z","healthEvent":{"errorCodes":["\ud800"]},"details":{"":""}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		payloads, err := DecodeAll(data)
		if err != nil {
			return
		}
		wantStable(t, payloads)
	})
}

func FuzzDecodeCloudEvent(f *testing.F) {
	f.Add("application/cloudevents+json", "", []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","data":`+minimal+`}`))
	f.Add("application/cloudevents-batch+json", "", []byte(`[{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"e30="}]`))
	f.Add("application/json", "a%20b", []byte(minimal))
	f.Fuzz(func(t *testing.T, contentType, subject string, body []byte) {
		header := http.Header{"Content-Type": {contentType}, "Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/s"}, "Ce-Type": {"t"}, "Ce-Subject": {subject}}
		payloads, err := DecodeCloudEvent(header, body)
		if err != nil {
			return
		}
		wantStable(t, payloads)
	})
}

// wantStable verifies that a decoded payload is decoded to the same payload again, so
// that a repeated one is recognized.
func wantStable(t *testing.T, payloads []Payload) {
	t.Helper()
	for _, p := range payloads {
		text, err := marshalJSONWithoutHTMLEscapes(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(text)
		if err != nil {
			t.Fatalf("%v of %s", err, text)
		}
		if diff := cmp.Diff(p, again); diff != "" {
			t.Fatalf("read again (-first +second):\n%s", diff)
		}
	}
}
