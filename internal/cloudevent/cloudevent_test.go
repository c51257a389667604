package cloudevent_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

func newEvent() cloudevent.Event {
	return cloudevent.Event{
		ID:          "9f86d081",
		Source:      "hyperfleet-sentinel",
		Type:        "com.redhat.hyperfleet.cluster.reconcile",
		Subject:     "cls-123",
		Time:        time.Date(2025, 10, 21, 12, 0, 0, 5000, time.UTC),
		Data:        []byte(`{"resource_id":"cls-123","reason":"generation changed"}`),
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		TraceState:  "vendor=x",
	}
}

func TestAppendJSONGolden(t *testing.T) {
	bare := cloudevent.Event{ID: "1", Source: "/s", Type: "t"}
	full := newEvent()
	cases := map[string]struct {
		reason string
		event  cloudevent.Event
		want   string
	}{
		"Full": {
			reason: "every attribute in its place, the time in UTC",
			event:  full,
			want: `{"specversion":"1.0","type":"com.redhat.hyperfleet.cluster.reconcile","source":"hyperfleet-sentinel","id":"9f86d081",` +
				`"time":"2025-10-21T12:00:00.000005Z","datacontenttype":"application/json","subject":"cls-123",` +
				`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"vendor=x",` +
				`"data":{"resource_id":"cls-123","reason":"generation changed"}}`,
		},
		"Bare": {
			reason: "what is not set is left out, and no data is null",
			event:  bare,
			want:   `{"specversion":"1.0","type":"t","source":"/s","id":"1","datacontenttype":"application/json","data":null}`,
		},
		"Escapes": {
			reason: "a quote in an attribute cannot end it",
			event:  cloudevent.Event{ID: `a"b\`, Source: "/s", Type: "t", Data: []byte("1")},
			want:   `{"specversion":"1.0","type":"t","source":"/s","id":"a\"b\\","datacontenttype":"application/json","data":1}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := string(tc.event.AppendJSON([]byte("kept:")))
			if diff := cmp.Diff("kept:"+tc.want, got); diff != "" {
				t.Errorf("%s: AppendJSON (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAppendJSONAllocatesNothing(t *testing.T) {
	e := newEvent()
	buf := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() { buf = e.AppendJSON(buf[:0]) }); n != 0 {
		t.Errorf("AppendJSON allocates %v times, want 0", n)
	}
}

// text draws attribute values that CloudEvents allows, including awkward ones, but without outer
// spaces, which the SDK's setters remove.
func text() *rapid.Generator[string] {
	return rapid.StringOfN(rapid.RuneFrom([]rune("abz09-./:_ \"\\<>&=,;%+é\u2028日\U0001F680")), 1, 30, -1).
		Filter(func(s string) bool { return strings.TrimSpace(s) == s })
}

func anEvent(t *rapid.T) cloudevent.Event {
	optional := rapid.OneOf(rapid.Just(""), text())
	e := cloudevent.Event{
		ID:          text().Draw(t, "id"),
		Source:      rapid.StringMatching(`/([a-z0-9.~-]{1,9}/){0,3}(#[a-z]+)?`).Draw(t, "source"),
		Type:        text().Draw(t, "type"),
		Subject:     optional.Draw(t, "subject"),
		TraceParent: optional.Draw(t, "traceparent"),
		TraceState:  optional.Draw(t, "tracestate"),
	}
	if rapid.Bool().Draw(t, "timed") {
		e.Time = time.Unix(rapid.Int64Range(-60_000_000_000, 250_000_000_000).Draw(t, "sec"), rapid.Int64Range(0, 999_999_999).Draw(t, "nsec")).UTC()
	}
	if rapid.Bool().Draw(t, "data") {
		data, err := json.Marshal(rapid.MapOf(text(), rapid.OneOf(text(), rapid.Just("null"))).Draw(t, "fields"))
		if err != nil {
			t.Fatal(err)
		}
		e.Data = data
	}
	return e
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anEvent(t)
		if err := want.Validate(); err != nil {
			t.Fatalf("Validate(%+v) = %v, want nil", want, err)
		}

		got, err := cloudevent.Parse(want.AppendJSON(nil))
		if err != nil {
			t.Fatalf("structured: %v", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("structured (-want +got):\n%s", diff)
		}

		attrs := maps.Collect(want.Attributes)
		got, err = cloudevent.FromAttributes(func(n string) (string, bool) { v, ok := attrs[n]; return v, ok }, want.DataOrNull())
		if err != nil {
			t.Fatalf("binary: %v", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("binary (-want +got):\n%s", diff)
		}
	})
}

// fromSDK reads the content of the SDK's event with the SDK's accessors.
func fromSDK(e *sdk.Event) cloudevent.Event {
	ext := func(name string) string {
		s, _ := e.Extensions()[name].(string)
		return s
	}
	out := cloudevent.Event{
		ID: e.ID(), Source: e.Source(), Type: e.Type(), Subject: e.Subject(), Time: e.Time().UTC(),
		Data: e.Data(), TraceParent: ext("traceparent"), TraceState: ext("tracestate"),
	}
	if e.Time().IsZero() {
		out.Time = time.Time{}
	}
	if len(out.Data) == 0 || string(out.Data) == "null" {
		out.Data = nil
	}
	return out
}

func TestSDKReadsWhatWeWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anEvent(t)
		var theirs sdk.Event
		if err := json.Unmarshal(want.AppendJSON(nil), &theirs); err != nil {
			t.Fatalf("the SDK refuses %s: %v", want.AppendJSON(nil), err)
		}
		if err := theirs.Validate(); err != nil {
			t.Fatalf("the SDK finds fault with %s: %v", want.AppendJSON(nil), err)
		}
		if diff := cmp.Diff(want, fromSDK(&theirs)); diff != "" {
			t.Errorf("SDK's reading (-want +got):\n%s", diff)
		}
	})
}

func TestWeReadWhatSDKWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anEvent(t)
		theirs := sdk.New()
		theirs.SetID(want.ID)
		theirs.SetSource(want.Source)
		theirs.SetType(want.Type)
		if want.Subject != "" {
			theirs.SetSubject(want.Subject)
		}
		if !want.Time.IsZero() {
			theirs.SetTime(want.Time)
		}
		if want.TraceParent != "" {
			theirs.SetExtension("traceparent", want.TraceParent)
		}
		if want.TraceState != "" {
			theirs.SetExtension("tracestate", want.TraceState)
		}
		theirs.SetExtension("unknownextension", "is ignored")
		if want.Data != nil {
			if err := theirs.SetData("application/json", json.RawMessage(want.Data)); err != nil {
				t.Fatal(err)
			}
		}
		b, err := json.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := cloudevent.Parse(b)
		if err != nil {
			t.Fatalf("Parse(%s) = %v", b, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Parse(%s) (-want +got):\n%s", b, diff)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	const ok = `"specversion":"1.0","id":"1","source":"/s","type":"t"`
	cases := map[string]struct {
		reason string
		text   string
		want   string
	}{
		"NotJSON":         {"a broken text is an error", `{`, "parse CloudEvent"},
		"Array":           {"a batch is not an event", `[{` + ok + `}]`, "parse CloudEvent"},
		"Trailing":        {"one message is one event", `{` + ok + `} {}`, "parse CloudEvent"},
		"NoVersion":       {"specversion is required", `{"id":"1","source":"/s","type":"t"}`, `specversion is ""`},
		"OldVersion":      {"0.3 has other attributes", `{"specversion":"0.3","id":"1","source":"/s","type":"t"}`, `specversion is "0.3"`},
		"NoID":            {"id is required", `{"specversion":"1.0","source":"/s","type":"t"}`, "id is missing"},
		"BlankID":         {"a blank id identifies nothing", `{"specversion":"1.0","id":" ","source":"/s","type":"t"}`, "id is missing"},
		"NullSource":      {"a null attribute is an absent one", `{"specversion":"1.0","id":"1","source":null,"type":"t"}`, "source is missing"},
		"NoType":          {"type is required", `{"specversion":"1.0","id":"1","source":"/s"}`, "type is missing"},
		"OtherCase":       {"names are case-sensitive", `{"specversion":"1.0","ID":"1","source":"/s","type":"t"}`, "id is missing"},
		"NumberID":        {"attributes are strings", `{"specversion":"1.0","id":1,"source":"/s","type":"t"}`, "parse CloudEvent"},
		"Twice":           {"which of the two would count?", `{` + ok + `,"id":"2"}`, "duplicate"},
		"BadTime":         {"a time that is none", `{` + ok + `,"time":"yesterday"}`, `time is "yesterday"`},
		"BadSource":       {"source is a URI reference", `{"specversion":"1.0","id":"1","source":"::","type":"t"}`, `source "::"`},
		"ControlInSource": {"a line break would reach a header", `{"specversion":"1.0","id":"1","source":"/s","type":"t\r\nx"}`, "type"},
		"Noncharacter":    {"CloudEvents forbids noncharacters", `{"specversion":"1.0","id":"1\ufffe","source":"/s","type":"t"}`, "does not allow"},
		"NotJSONData":     {"we carry JSON alone", `{` + ok + `,"datacontenttype":"text/plain","data":"x"}`, `datacontenttype is "text/plain"`},
		"BothData":        {"data is given once", `{` + ok + `,"data":1,"data_base64":"MQ=="}`, "mutually exclusive"},
		"BadBase64":       {"data_base64 is base64", `{` + ok + `,"data_base64":"%"}`, "data_base64"},
		"Base64NotJSON":   {"what it decodes to is JSON", `{` + ok + `,"data_base64":"ew=="}`, "not valid JSON"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := cloudevent.Parse([]byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: Parse(%s) = %v, want an error with %q", tc.reason, tc.text, err, tc.want)
			}
		})
	}
}

func TestDecodeTellsTheModesApart(t *testing.T) {
	event := newEvent()
	structured, attrs := event.AppendJSON(nil), maps.Collect(event.Attributes)
	none := map[string]string{}
	cases := map[string]struct {
		reason      string
		contentType string
		attrs       map[string]string
		body        []byte
		wantErr     string
	}{
		"Structured":        {"the content type says so", "application/cloudevents+json", none, structured, ""},
		"StructuredCharset": {"parameters and case do not matter", "Application/CloudEvents+JSON; charset=UTF-8", none, structured, ""},
		"Binary":            {"JSON data with attributes", "application/json", attrs, event.Data, ""},
		"BinaryUnmarked":    {"no content type is binary", "", attrs, event.Data, ""},
		"Batch":             {"a batch is not an event", "application/cloudevents-batch+json", none, structured, "not supported"},
		"Avro":              {"another format cannot be read", "application/cloudevents+avro", none, structured, "not supported"},
		"PlainText":         {"we read JSON alone", "text/plain", attrs, []byte("x"), "is not JSON"},
		"NoAttributes":      {"a message that is no event", "application/json", none, event.Data, "specversion"},
		"BrokenData":        {"data is checked in binary mode too", "application/json", attrs, []byte(`{"a"`), "not valid JSON"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := cloudevent.Decode(tc.contentType, func(n string) (string, bool) { v, ok := tc.attrs[n]; return v, ok }, tc.body)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("%s: Decode() = %v, want an error with %q", tc.reason, err, tc.wantErr)
				}
				return
			}
			if diff := cmp.Diff(event, got); err != nil || diff != "" {
				t.Errorf("%s: Decode() = %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
}

func TestParseReadsBase64(t *testing.T) {
	text := `{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"` + base64.StdEncoding.EncodeToString([]byte(`{"a":1}`)) + `"}`
	got, err := cloudevent.Parse([]byte(text))
	if err != nil || string(got.Data) != `{"a":1}` {
		t.Errorf("Parse(%s) = %s, %v, want the data decoded", text, got.Data, err)
	}
}

func TestValidateRefuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		spoil  func(*cloudevent.Event)
		want   string
	}{
		"NoID":        {"id is required", func(e *cloudevent.Event) { e.ID = "" }, "id is missing"},
		"LineBreak":   {"a line break in a header starts another", func(e *cloudevent.Event) { e.Subject = "a\r\nX: y" }, "subject"},
		"Delete":      {"U+007F is a control character", func(e *cloudevent.Event) { e.TraceState = "\x7f" }, "tracestate"},
		"InvalidUTF8": {"a broken text is not Unicode", func(e *cloudevent.Event) { e.Type = "a\xff" }, "type"},
		"Year":        {"RFC 3339 has four digits", func(e *cloudevent.Event) { e.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "year 10000"},
		"Data":        {"a broken value would break the envelope", func(e *cloudevent.Event) { e.Data = []byte(`{"a":1}}`) }, "not valid JSON"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEvent()
			tc.spoil(&e)
			if err := e.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: Validate() = %v, want an error with %q", tc.reason, err, tc.want)
			}
		})
	}
	replaced := newEvent()
	replaced.Subject = "\uFFFD is a character like any other"
	if err := replaced.Validate(); err != nil {
		t.Errorf("Validate() = %v, want nil: U+FFFD itself is allowed", err)
	}
}

func TestAttributesStopWhenTold(t *testing.T) {
	e := newEvent()
	all := len(maps.Collect(e.Attributes))
	for want := 1; want <= all; want++ {
		n := 0
		for range e.Attributes {
			if n++; n == want {
				break
			}
		}
		if n != want {
			t.Errorf("%d attributes were yielded, want %d", n, want)
		}
	}
}

func TestModeValidate(t *testing.T) {
	for _, m := range []cloudevent.Mode{"", cloudevent.Structured, cloudevent.Binary} {
		if err := m.Validate(); err != nil {
			t.Errorf("Mode(%q).Validate() = %v, want nil", m, err)
		}
	}
	if err := cloudevent.Mode("both").Validate(); err == nil {
		t.Error(`Mode("both").Validate() = nil, want an error`)
	}
}

func FuzzParse(f *testing.F) {
	e := newEvent()
	f.Add(e.AppendJSON(nil))
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"MQ=="}`))
	f.Add([]byte(`{"specversion":"1.0","id":"\ud83d","source":"/s","type":"t","time":"2025-10-21T12:00:00+23:59"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := cloudevent.Parse(b)
		if err != nil {
			return
		}
		again, err := cloudevent.Parse(got.AppendJSON(nil))
		if err != nil {
			t.Fatalf("what was read from %q cannot be read again: %v", b, err)
		}
		if diff := cmp.Diff(got, again); diff != "" {
			t.Errorf("%q changes when written and read again (-first +second):\n%s", b, diff)
		}
	})
}

func BenchmarkAppendJSON(b *testing.B) {
	e := newEvent()
	var buf []byte
	for b.Loop() {
		buf = e.AppendJSON(buf[:0])
	}
}

func BenchmarkValidate(b *testing.B) {
	e := newEvent()
	for b.Loop() {
		if err := e.Validate(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSDK(b *testing.B) {
	e := newEvent()
	for b.Loop() {
		theirs := sdk.New()
		theirs.SetID(e.ID)
		theirs.SetSource(e.Source)
		theirs.SetType(e.Type)
		theirs.SetSubject(e.Subject)
		theirs.SetTime(e.Time)
		if err := theirs.SetData("application/json", json.RawMessage(e.Data)); err != nil {
			b.Fatal(err)
		}
		if _, err := json.Marshal(theirs); err != nil {
			b.Fatal(err)
		}
	}
}
