package changeevent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestFieldsAreRedacted(t *testing.T) {
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
	for name, c := range map[string]struct {
		reason string
		field  string
		value  string
		want   string
	}{
		"Plain":       {"most fields are no secret", "spec.version", `"1.35"`, `"1.35"`},
		"Number":      {"a number stays as it is written", "spec.nodes", `12345678901234567890`, `12345678901234567890`},
		"Token":       {"by the name of the field", "spec.auth.token", `"c0ffee"`, `"[redacted]"`},
		"Within":      {"by the name of what it is within", "spec.credentials.user", `"admin"`, `"[redacted]"`},
		"Long":        {"also where the path is cut", "spec." + strings.Repeat("a", 300) + ".token", `"c0ffee"`, `"[redacted]"`},
		"Spelling":    {"however the name is written", "spec.API-Key", `"c0ffee"`, `"[redacted]"`},
		"Kubeconfig":  {"a kubeconfig", "spec.kube_config", `"apiVersion: v1"`, `"[redacted]"`},
		"Password":    {"also of another type", "spec.adminPassword", `{"value":"x"}`, `"[redacted]"`},
		"Inside":      {"also inside a value", "spec.users", `[{"name":"a","password":"x"},{"name":"b"}]`, `[{"name":"a","password":"[redacted]"},{"name":"b"}]`},
		"PEM":         {"by what it is, whatever its name", "spec.ca", `"-----BEGIN EC PRIVATE KEY-----\nx"`, `"[redacted]"`},
		"JWT":         {"by what it is", "spec.note", `"` + jwt + `"`, `"[redacted]"`},
		"URL":         {"a password in a URL", "spec.mirror", `"https://bob:hunter2@mirror.example.com/"`, `"[redacted]"`},
		"URLPlain":    {"a URL without one", "spec.mirror", `"https://mirror.example.com:8443/a@b"`, `"https://mirror.example.com:8443/a@b"`},
		"Header":      {"a header with a credential", "spec.header", `"Bearer c0ffeec0ffee"`, `"[redacted]"`},
		"Config":      {"a kubeconfig under another name", "spec.data", `"users:\n- user:\n    client-key-data: eA=="`, `"[redacted]"`},
		"ConfigKey":   {"a part of a kubeconfig", "spec.data", `"client-key-data:eA=="`, `"[redacted]"`},
		"Certificate": {"a certificate is public", "spec.ca", `"-----BEGIN CERTIFICATE-----"`, `"-----BEGIN CERTIFICATE-----"`},
		"NoJSON":      {"what is no JSON is text", "spec.a", `{"a":`, `"{\"a\":"`},
		"Two":         {"nor is more than one value", "spec.a", `1 2`, `"1 2"`},
		"Null":        {"null is a value", "spec.a", `null`, `null`},
		"NUL":         {"PostgreSQL cannot read it", "spec.a", `["a\u0000b",{"c\u0000":["\u0000"]}]`, `["a b",{"c ":[" "]}]`},
		"NULInName":   {"a name is read without control characters", "spec.a", `{"pass\u0000word":"x"}`, `{"pass word":"[redacted]"}`},
		"NULInSecret": {"a control character hides no secret", "spec.a", `["https://bob:hunter\u0000@x/","Bearer\u0000c0ffeec0ffee"]`, `["[redacted]","[redacted]"]`},
		"NULTwice":    {"keys that become the same", "spec.a", `{"a ":1,"a\u0000":2,"a\u0001":3}`, `{"a ":3}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPayload(ChangeEvent{Action: ActionClusterChanged, Cluster: "c", Changes: []FieldChange{{Field: c.field, Before: json.RawMessage(c.value)}}})
			if diff := cmp.Diff([]FieldChange{{Field: sanitizeLabel(c.field), Before: json.RawMessage(c.want)}}, p.Changes); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if redacted := strings.Contains(c.want, "redacted"); redacted && strings.Contains(p.Summary, "c0ffee") {
				t.Errorf("the summary tells it: %s", p.Summary)
			}
		})
	}
}

func TestFieldsAreBounded(t *testing.T) {
	var many []FieldChange
	for i := range 100 {
		many = append(many, FieldChange{Field: fmt.Sprintf("spec.f%d", i), Before: json.RawMessage(`"` + strings.Repeat("é", 5000) + `"`), After: json.RawMessage(`[` + strings.Repeat("1,", 5000) + `1]`)})
	}
	p := NewPayload(ChangeEvent{Action: ActionClusterChanged, Cluster: "c", Changes: many, ChangesOmitted: 7})
	if len(p.Changes) != maxFields || p.ChangesOmitted != 100-maxFields+7 {
		t.Errorf("%d fields, and %d left out", len(p.Changes), p.ChangesOmitted)
	}
	for _, c := range p.Changes {
		for _, value := range []json.RawMessage{c.Before, c.After} {
			var text string
			if err := json.Unmarshal(value, &text); err != nil || utf8.RuneCountInString(text) > maxFieldValue || !strings.HasSuffix(text, "…") {
				t.Fatalf("%v: %s", err, value)
			}
		}
	}
	if utf8.RuneCountInString(p.Summary) > maxSummary || !strings.Contains(p.Summary, "and 104 more of c") {
		t.Errorf("summary %q", p.Summary)
	}
}

func TestFieldsWithoutName(t *testing.T) {
	p := NewPayload(ChangeEvent{Action: ActionClusterChanged, Cluster: "c", Changes: []FieldChange{{Before: json.RawMessage("1")}}})
	if p.Changes != nil || p.ChangesOmitted != 1 {
		t.Errorf("changes %#v, and %d left out; want nil and 1", p.Changes, p.ChangesOmitted)
	}
}

// TestFieldsSurvive verifies that any changed fields survive encoding and decoding.
func TestFieldsSurvive(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{`"a"`, `{"a":1e999}`, "\xff", "[]", "null", `{"token":"x"}`, `"` + strings.Repeat("a", 300) + `"`}))
	rapid.Check(t, func(t *rapid.T) {
		e := ChangeEvent{Action: ActionClusterChanged, Cluster: "c", Timestamp: aTime(t), ChangesOmitted: rapid.IntRange(-2, 2).Draw(t, "omitted")}
		for range rapid.IntRange(0, 40).Draw(t, "fields") {
			e.Changes = append(e.Changes, FieldChange{Field: text.Draw(t, "field"), Before: json.RawMessage(text.Draw(t, "before")), After: json.RawMessage(text.Draw(t, "after"))})
		}
		once := NewPayload(e)
		body, err := json.Marshal(once)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(once, again); diff != "" {
			t.Fatalf("-written +read:\n%s", diff)
		}
	})
}

func TestSummarizeFields(t *testing.T) {
	change := func(field, before, after string) FieldChange {
		return FieldChange{Field: field, Before: json.RawMessage(before), After: json.RawMessage(after)}
	}
	version := change("spec.version", `"1.34"`, `"1.35"`)
	who := map[string]string{DetailActor: "alice"}
	for name, c := range map[string]struct {
		reason string
		event  ChangeEvent
		want   string
	}{
		"One":      {"who changed what", ChangeEvent{Action: ActionClusterChanged, Details: who, Changes: []FieldChange{version}}, "alice changed spec.version 1.34 → 1.35 of my-cluster"},
		"Subject":  {"the cluster is named once", ChangeEvent{Action: ActionClusterChanged, Subject: "clusters/my-cluster", Details: who, Changes: []FieldChange{version}}, "alice changed spec.version 1.34 → 1.35 of my-cluster"},
		"Dry":      {"a dry run", ChangeEvent{Action: ActionClusterChanged, DryRun: true, Details: who, Changes: []FieldChange{version}}, "[DRY-RUN] alice would have changed spec.version 1.34 → 1.35 of my-cluster"},
		"Failed":   {"a failure", ChangeEvent{Action: ActionClusterChanged, Outcome: OutcomeFailed, Reason: "forbidden", Details: who, Changes: []FieldChange{version}}, "alice failed to change spec.version 1.34 → 1.35 of my-cluster: forbidden"},
		"Nobody":   {"a component", ChangeEvent{Action: ActionShootUpdated, Subject: "shoots/web", Source: SourceClusterWorker, Changes: []FieldChange{version}}, "Fleetloop updated spec.version 1.34 → 1.35 of shoot web of my-cluster"},
		"NodePool": {"a node pool of a cluster", ChangeEvent{Action: "nodepool-changed", Subject: "nodepools/gpu", Details: who, Changes: []FieldChange{change("spec.replicas", "3", "5")}}, "alice changed spec.replicas 3 → 5 of nodepool gpu of my-cluster"},
		"Set":      {"it was not set", ChangeEvent{Action: ActionClusterChanged, Details: who, Changes: []FieldChange{change("labels.tier", "", `"gold"`)}}, "alice changed labels.tier (unset) → gold of my-cluster"},
		"Removed":  {"it is not set any more", ChangeEvent{Action: ActionClusterChanged, Details: who, Changes: []FieldChange{change("labels.tier", `""`, "")}}, `alice changed labels.tier "" → (unset) of my-cluster`},
		"Secret":   {"a secret is not told", ChangeEvent{Action: ActionClusterChanged, Details: who, Changes: []FieldChange{change("spec.token", `"a"`, `"b"`)}}, "alice changed spec.token (redacted) of my-cluster"},
		"Many": {
			"the rest is a number",
			ChangeEvent{Action: ActionClusterChanged, Details: who, Changes: []FieldChange{version, change("a", "1", "2"), change("b", "1", "2"), change("c", "1", "2")}, ChangesOmitted: 2},
			"alice changed spec.version 1.34 → 1.35, a 1 → 2, b 1 → 2 and 3 more of my-cluster",
		},
		"Created": {"what it was created with is not in the line", ChangeEvent{Action: ActionClusterCreated, Details: who, Changes: []FieldChange{version}}, "alice created cluster my-cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			c.event.Cluster = "my-cluster"
			if got := Summarize(c.event); got != c.want {
				t.Errorf("%s: Summarize = %q, want %q", c.reason, got, c.want)
			}
		})
	}
}

// TestRedactText covers the values of secret names in YAML, JSON and environment files, and secrets under any name.
func TestRedactText(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"YAML":         {"spec:\n  apiToken: abc\n  region: us\n", "spec:\n  apiToken: [redacted]\n  region: us\n"},
		"YAMLBlock":    {"a:\n  password: |\n    one\n\n    two\n  b: 1", "a:\n  password: [redacted]\n  b: 1"},
		"YAMLItem":     {"- secret: a\n- name: b\n", "secret: [redacted]\n- name: b\n"},
		"JSON":         {"{\n  \"token\": \"abc\",\n  \"a\": 1\n}", "{\n  token: [redacted]\n  \"a\": 1\n}"},
		"JSONObject":   {"{\n  \"credentials\": {\n    \"user\": \"u\"\n  },\n  \"a\": 1\n}", "{\n  credentials: [redacted]\n  },\n  \"a\": 1\n}"},
		"Environment":  {"API_KEY=abc\r\nPORT=1\r\n", "API_KEY: [redacted]\r\nPORT=1\r\n"},
		"PrivateKey":   {"x: |\n  -----BEGIN RSA PRIVATE KEY-----\n  MIIE\n  -----END RSA PRIVATE KEY-----\ny: 1\n", "x: |\n  [redacted]\ny: 1\n"},
		"URL":          {"  url postgres://u:p@host/db\n", "  [redacted]\n"},
		"NameOfObject": {"token-service   Ready   since: 1h\n", "token-service   Ready   since: 1h\n"},
		"Nothing":      {"", ""},
	} {
		if got := RedactText(tc.text); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
