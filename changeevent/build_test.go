package changeevent

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func aTime(t *rapid.T) time.Time {
	zone := time.FixedZone("", rapid.IntRange(-14, 14).Draw(t, "zone")*3600)
	return time.Unix(rapid.Int64Range(-62_000_000_000, 250_000_000_000).Draw(t, "sec"), rapid.Int64Range(0, 999_999_999).Draw(t, "nsec")).In(zone)
}

func TestCanonicalTime(t *testing.T) {
	cases := map[string]struct {
		reason string
		at     time.Time
		want   string
	}{
		"Fine":    {"what is finer is cut off, not rounded", time.Date(2025, 8, 26, 14, 42, 58, 315_999_999, time.UTC), "2025-08-26T14:42:58.315Z"},
		"Whole":   {"there are always three", time.Date(2025, 1, 12, 14, 30, 0, 0, time.UTC), "2025-01-12T14:30:00.000Z"},
		"Zone":    {"and always UTC", time.Date(2025, 1, 12, 14, 30, 0, 0, time.FixedZone("", -3600)), "2025-01-12T15:30:00.000Z"},
		"Zero":    {"the zero time has a form as well", time.Time{}, "0001-01-01T00:00:00.000Z"},
		"TooLate": {"a year has four digits", time.Date(12025, 1, 1, 0, 0, 0, 0, time.UTC), "9999-12-31T23:59:59.999Z"},
		"TooSoon": {"and no sign", time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC), "0000-01-01T00:00:00.000Z"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := CanonicalTime(tc.at)
			if got != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
			if _, err := time.Parse(time.RFC3339, got); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

func TestNewPayload(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(e *ChangeEvent)
		check  func(p Payload) bool
	}{
		"NoHealth": {"no report, no object", func(e *ChangeEvent) {
			e.CheckName, e.ErrorCode, e.ErrorCodes, e.Agent, e.IsFatal, e.Message = "", "", nil, "", false, ""
		}, func(p Payload) bool { return p.HealthEvent == nil }},
		"OnlyFatal":    {"one fact is a report", func(e *ChangeEvent) { *e = ChangeEvent{Action: "a", IsFatal: true} }, func(p Payload) bool { return p.HealthEvent != nil && p.HealthEvent.IsFatal }},
		"JoinedCodes":  {"several codes are one string, too", func(e *ChangeEvent) { e.ErrorCode, e.ErrorCodes = "", []string{"79", "48"} }, func(p Payload) bool { return p.HealthEvent.ErrorCode == "79,48" }},
		"OwnSummary":   {"the event's own words stand", func(e *ChangeEvent) { e.Summary = "Alice did it" }, func(p Payload) bool { return p.Summary == "Alice did it" }},
		"OwnDry":       {"but a dry run is marked", func(e *ChangeEvent) { e.Summary, e.DryRun = "Alice did it", true }, func(p Payload) bool { return p.Summary == "[DRY-RUN] Alice did it" }},
		"OwnDryMarked": {"once", func(e *ChangeEvent) { e.Summary, e.DryRun = "[DRY-RUN] Alice did it", true }, func(p Payload) bool { return p.Summary == "[DRY-RUN] Alice did it" }},
		"Outcome":      {"what does not say has succeeded", func(e *ChangeEvent) { e.Outcome = "" }, func(p Payload) bool { return p.Outcome == OutcomeSucceeded }},
		"BadUTF8":      {"broken text is mended", func(e *ChangeEvent) { e.Message = "a\xffb\x00c\r\nd" }, func(p Payload) bool { return p.HealthEvent.Message == "a\uFFFDb c\nd" }},
		"LongMessage": {"long text ends on a rune", func(e *ChangeEvent) { e.Message = strings.Repeat("é", 5000) }, func(p Payload) bool {
			return utf8.RuneCountInString(p.HealthEvent.Message) == maxMessage && strings.HasSuffix(p.HealthEvent.Message, "é…")
		}},
		"BadLink": {"nobody clicks on a script", func(e *ChangeEvent) {
			e.Links = []Link{{Href: "javascript:alert(1)"}, {Href: "https://user@x.example"}, {Href: "/x"}, {Href: "http://runbook.example/a"}}
		}, func(p Payload) bool { return len(p.Links) == 1 && p.Links[0].Href == "http://runbook.example/a" }},
		"TwiceLink": {"the same link is there once", func(e *ChangeEvent) {
			e.Links = []Link{{Href: "https://x.example/a"}, {Href: "https://x.example/a", Text: "again"}}
		}, func(p Payload) bool { return len(p.Links) == 1 }},
		"Details": {"names of details are on one line", func(e *ChangeEvent) { e.Details = map[string]string{"a\nb": "1\n2", "": "x"} }, func(p Payload) bool { return len(p.Details) == 1 && p.Details["a b"] == "1\n2" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEvent()
			tc.change(e)
			if p := NewPayload(*e); !tc.check(p) {
				text, _ := json.Marshal(p) // only shown
				t.Errorf("%s: %s", tc.reason, text)
			}
		})
	}
}

// TestIDTellsChangesApart verifies that the id depends on each field, by changing each in
// turn.
func TestIDTellsChangesApart(t *testing.T) {
	base := *newEvent()
	base.ID = ""
	if got := ID(base); len(got) != 32 || got != ID(base) {
		t.Fatalf("ID = %q, then %q", got, ID(base))
	}
	differs := map[string]func(e *ChangeEvent){
		"action":  func(e *ChangeEvent) { e.Action = ActionUncordon },
		"node":    func(e *ChangeEvent) { e.NodeName = "gpu-node-02" },
		"subject": func(e *ChangeEvent) { e.Subject = "executions/x" },
		"session": func(e *ChangeEvent) { e.Session = "other" },
		"time":    func(e *ChangeEvent) { e.Timestamp = e.Timestamp.Add(time.Nanosecond) },
		"source":  func(e *ChangeEvent) { e.Source = SourceJanitor },
		"cluster": func(e *ChangeEvent) { e.Cluster = "other" },
		"dry run": func(e *ChangeEvent) { e.DryRun = true },
		"outcome": func(e *ChangeEvent) { e.Outcome = OutcomeFailed },
		"check":   func(e *ChangeEvent) { e.CheckName = "other" },
		"code":    func(e *ChangeEvent) { e.ErrorCode = "XID-48" },
		"shift":   func(e *ChangeEvent) { e.Cluster, e.Source = e.Cluster+"n", strings.TrimPrefix(e.Source, "n") },
	}
	for field, change := range differs {
		other := base
		change(&other)
		if ID(other) == ID(base) {
			t.Errorf("another %s has the same id", field)
		}
	}
	same := base
	same.Timestamp, same.Summary, same.Reason = base.Timestamp.In(time.FixedZone("", 3600)), "other words", "other words"
	same.Links, same.Message = []Link{{Href: "https://x.example"}}, "other words"
	if ID(same) != ID(base) {
		t.Error("other words and another zone change the id")
	}
}

// TestPayloadIsBounded verifies the limits of a payload for any event, and that the event
// is not changed.
func TestPayloadIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anEvent(t)
		before, err := json.Marshal(e.Details)
		if err != nil {
			t.Fatal(err)
		}
		p := NewPayload(*e)
		body, err := marshalJSONWithoutHTMLEscapes(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(body) > MaxPayloadBytes || !utf8.Valid(body) {
			t.Fatalf("%d bytes, valid: %t", len(body), utf8.Valid(body))
		}
		for _, name := range []string{p.Action, p.Node, p.Subject, p.ID, p.Session, p.Source, p.Cluster} {
			if sanitizeLine(name) != name || utf8.RuneCountInString(name) > maxName {
				t.Fatalf("name %q", name)
			}
		}
		after, err := json.Marshal(e.Details)
		if err != nil || string(before) != string(after) {
			t.Fatal("the event was changed")
		}
	})
}

func TestShrinkKeepsWhatCounts(t *testing.T) {
	e := newEvent()
	e.Details = map[string]string{}
	for key := range strings.SplitSeq(strings.Repeat("k", maxDetails), "") {
		e.Details[key+string(rune('a'+len(e.Details)))] = strings.Repeat("\U0001F680", 400)
	}
	for i := range maxLinks {
		e.Links = append(e.Links, Link{Href: "https://x.example/" + strings.Repeat("a", 2000) + string(rune('a'+i))})
	}
	full := NewPayload(*e)
	if len(full.Details) == 0 && len(full.Links) == 0 {
		t.Fatal("nothing is left of what there was room for")
	}
	small := newPayload(encodeSettings{room: 1024}, e)
	if small.Details != nil || small.Links != nil || small.Node != e.NodeName || small.HealthEvent.Message != e.Message {
		t.Errorf("what is left: %+v", small)
	}
}

func TestCut(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		limit        int
		want         string
	}{
		"Short":     {"what fits stays", "abc", 3, "abc"},
		"Long":      {"what does not ends so", "abcd", 3, "ab…"},
		"Rune":      {"a rune is one character", "ééé", 3, "ééé"},
		"RuneLong":  {"and is not cut in two", "éééé", 3, "éé…"},
		"Astral":    {"one outside the basic plane is two", "🚀🚀", 3, "🚀…"},
		"AstralFit": {"of the limit", "🚀🚀", 4, "🚀🚀"},
		"Blank":     {"no blank before the end", "ab cd", 4, "ab…"},
		"None":      {"nothing fits", "abc", 0, ""},
		"One":       {"only the mark fits", "abc", 1, "…"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := truncateText(tc.text, tc.limit); got != tc.want {
				t.Errorf("%s: cut(%q, %d) = %q, want %q", tc.reason, tc.text, tc.limit, got, tc.want)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		text, limit := rapid.String().Draw(t, "text"), rapid.IntRange(0, 40).Draw(t, "limit")
		got := truncateText(text, limit)
		if !utf8.ValidString(got) || utf16Len(got) > limit || truncateText(got, limit) != got {
			t.Fatalf("cut(%q, %d) = %q", text, limit, got)
		}
		if utf16Len(text) <= limit && got != text {
			t.Fatalf("cut(%q, %d) = %q, and it fits", text, limit, got)
		}
	})
}

func TestMend(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "a\tb\nc": "a\tb\nc", "a\r\nb": "a\nb", "a\x00b\x7fc\u0085d": "a b c d", "\xffx": "\uFFFDx", "\u2028": " ", "a\ufffeb\ufdd0": "a\uFFFDb\uFFFD", "é": "é",
	} {
		if got := sanitizeText(in); got != want {
			t.Errorf("mend(%q) = %q, want %q", in, got, want)
		}
	}
	if diff := cmp.Diff("a b c", sanitizeLine(" a\n\tb\r\nc ")); diff != "" {
		t.Error(diff)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if got := sanitizeText(text); !utf8.ValidString(got) || sanitizeText(got) != got {
			t.Fatalf("mend(%q) = %q", text, got)
		}
		if got := sanitizeLine(text); strings.ContainsAny(got, "\r\n\t") || sanitizeLine(got) != got {
			t.Fatalf("sanitizeLine(%q) = %q", text, got)
		}
	})
}
