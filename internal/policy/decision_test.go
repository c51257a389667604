package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/policy"
)

// answering returns a set whose decision is a document, except for the canaries.
func answering(document string) map[string]string {
	return map[string]string{"a.rego": `package fleetloop.safety

decision := {"allow": false, "violations": ["canary"], "requireDryRun": true, "requireApproval": true, "policyName": "p"} if not input.request.labels.ask

decision := ` + document + ` if input.request.labels.ask
`}
}

func TestDecisionsAreReadStrictly(t *testing.T) {
	const good = `"allow": true, "violations": set(), "requireDryRun": false, "requireApproval": false, "policyName": "p"`
	cases := map[string]struct{ document, want string }{
		"NoAllow":        {`{"violations": set(), "requireDryRun": false, "requireApproval": false, "policyName": "p"}`, `the decision lacks "allow"`},
		"NoViolations":   {`{"allow": true, "requireDryRun": false, "requireApproval": false, "policyName": "p"}`, `the decision lacks "violations"`},
		"NoDryRun":       {`{"allow": true, "violations": [], "requireApproval": false, "policyName": "p"}`, `the decision lacks "requireDryRun"`},
		"NoApproval":     {`{"allow": true, "violations": [], "requireDryRun": false, "policyName": "p"}`, `the decision lacks "requireApproval"`},
		"NoName":         {`{"allow": true, "violations": [], "requireDryRun": false, "requireApproval": false}`, `the decision lacks "policyName"`},
		"EmptyName":      {`{"allow": true, "violations": [], "requireDryRun": false, "requireApproval": false, "policyName": ""}`, `policyName has 0 bytes`},
		"ExtraField":     {`{` + good + `, "alow": true}`, `the decision has the unknown field "alow": want allow, violations, `},
		"ExtraKeyNumber": {`{` + good + `, 7: true}`, `the decision has the unknown field 7`},
		"NotAnObject":    {`true`, `the decision is boolean, want an object`},
		"Text":           {`"yes"`, `the decision is string, want an object`},
		"AllowText":      {`{"allow": "true", "violations": [], "requireDryRun": false, "requireApproval": false, "policyName": "p"}`, `allow is string, want a boolean`},
		"AllowNull":      {`{"allow": null, "violations": [], "requireDryRun": false, "requireApproval": false, "policyName": "p"}`, `allow is null, want a boolean`},
		"ViolationsText": {`{"allow": false, "violations": "x", "requireDryRun": false, "requireApproval": false, "policyName": "p"}`, `violations is string, want a set or a list of strings`},
		"ViolationsMix":  {`{"allow": false, "violations": ["x", 1], "requireDryRun": false, "requireApproval": false, "policyName": "p"}`, `violations contains number, want strings`},
		"Contradiction":  {`{"allow": true, "violations": ["x"], "requireDryRun": false, "requireApproval": false, "policyName": "p"}`, `allow is true, but there is a violation: x`},
		"WarningsObject": {`{` + good + `, "warnings": {"a": "b"}}`, `warnings is object, want a set or a list`},
		"Approvals":      {`{` + good + `, "approvals": 2}`, `approvals is number, want an object`},
		"ApprovalsField": {`{` + good + `, "approvals": {"four_eyes": true}}`, `approvals has the unknown field "four_eyes": want count, groups, requesterCannotApprove`},
		"CountText":      {`{` + good + `, "approvals": {"count": "2"}}`, `count is "2", want a number from 0 to 16`},
		"CountFraction":  {`{` + good + `, "approvals": {"count": 1.5}}`, `count is 1.5, want a number`},
		"CountNegative":  {`{` + good + `, "approvals": {"count": -1}}`, `count is -1, want a number`},
		"CountLarge":     {`{` + good + `, "approvals": {"count": 17}}`, `count is 17, want a number`},
		"NoGroup":        {`{` + good + `, "approvals": {"groups": ["sre", ""]}}`, `a group has 0 bytes, want 1 to 256`},
		"LongGroup":      {`{` + good + `, "approvals": {"groups": ["` + strings.Repeat("g", 257) + `"]}}`, `a group has 257 bytes, want 1 to 256`},
		"ManyGroups":     {`{` + good + `, "approvals": {"groups": [g | some i in numbers.range(1, 33); g := sprintf("g%d", [i])]}}`, `groups has 33 entries, at most 32 are allowed`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSet(t, answering(tc.document), policy.Options{Mode: policy.Audit})
			d, err := s.Decide(t.Context(), example(t, map[string]any{"request.labels": map[string]any{"ask": "x"}}), now)
			wantError(t, err, "evaluate data.fleetloop.safety.decision: ", tc.want)
			if d.Allow {
				t.Error("what no decision was allowed")
			}
		})
	}
}

func TestDecisions(t *testing.T) {
	cases := map[string]struct {
		reason   string
		mode     policy.Mode
		document string
		want     policy.Decision
	}{
		"Full": {
			reason:   "sets and lists, sorted",
			document: `{"allow": true, "violations": [], "warnings": {"b", "a"}, "requireDryRun": true, "requireApproval": true, "approvals": {"count": 2, "groups": ["sre", "dba"], "requesterCannotApprove": true}, "policyName": "p"}`,
			want:     policy.Decision{Allow: true, Warnings: []string{"a", "b"}, RequireDryRun: true, RequireApproval: true, Approvals: policy.Approvals{Count: 2, Groups: []string{"dba", "sre"}, RequesterCannotApprove: true}},
		},
		"Least": {
			reason:   "warnings and approvals can be left out",
			document: `{"allow": true, "violations": set(), "requireDryRun": false, "requireApproval": false, "policyName": "p"}`,
			want:     policy.Decision{Allow: true},
		},
		"OneApprovalAtLeast": {
			reason:   "an approval by nobody is none",
			document: `{"allow": true, "violations": set(), "requireDryRun": false, "requireApproval": true, "approvals": {"count": 0}, "policyName": "p"}`,
			want:     policy.Decision{Allow: true, RequireApproval: true, Approvals: policy.Approvals{Count: 1}},
		},
		"SilentDenial": {
			reason:   "a status has to say something",
			document: `{"allow": false, "violations": set(), "requireDryRun": false, "requireApproval": false, "policyName": "p"}`,
			want:     policy.Decision{Violations: []string{"no rule of the policy allows the action"}},
		},
		"Warn": {
			reason: "a denial becomes a warning, and stays to be seen",
			mode:   policy.Warn, document: `{"allow": false, "violations": ["x"], "warnings": ["w"], "requireDryRun": true, "requireApproval": true, "policyName": "p"}`,
			want: policy.Decision{Allow: true, Violations: []string{"x"}, Warnings: []string{"w", "would be denied: x"}, RequireDryRun: true, RequireApproval: true, Approvals: policy.Approvals{Count: 1}},
		},
		"Audit": {
			reason: "the same",
			mode:   policy.Audit, document: `{"allow": false, "violations": ["x"], "requireDryRun": false, "requireApproval": false, "policyName": "p"}`,
			want: policy.Decision{Allow: true, Violations: []string{"x"}, Warnings: []string{"would be denied: x"}},
		},
		"WarnAllowed": {
			reason: "a leave is a leave in every mode",
			mode:   policy.Warn, document: `{"allow": true, "violations": [], "requireDryRun": false, "requireApproval": false, "policyName": "p"}`,
			want: policy.Decision{Allow: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSet(t, answering(tc.document), policy.Options{Mode: tc.mode})
			got, err := s.Decide(t.Context(), example(t, map[string]any{"request.labels": map[string]any{"ask": "x"}}), now)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.PolicyName, tc.want.Mode = "p", string(tc.mode)
			if tc.mode == "" {
				tc.want.Mode = "enforce"
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// TestMessagesAreBounded checks the limits of messages in a status.
func TestMessagesAreBounded(t *testing.T) {
	doc := `{"allow": false, "violations": [v | some i in numbers.range(1, 50); v := sprintf("%02d %s", [i, input.request.labels.ask])], "requireDryRun": false, "requireApproval": false, "policyName": "p"}`
	s := newSet(t, answering(doc), policy.Options{})
	d, err := s.Decide(t.Context(), example(t, map[string]any{"request.labels": map[string]any{"ask": strings.Repeat("ö", 400)}}), now)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(d.Violations); n != 32 || d.Violations[31] != "and 19 more" {
		t.Errorf("got %d violations, the last %q", n, d.Violations[31])
	}
	if v := d.Violations[0]; len(v) > 512 || !strings.HasSuffix(v, "ö…") {
		t.Errorf("got %d bytes: %s", len(v), v)
	}
}

func TestModes(t *testing.T) {
	for text, want := range map[string]policy.Mode{"": policy.Enforce, "enforce": policy.Enforce, "warn": policy.Warn, "audit": policy.Audit} {
		if got, err := policy.ParseMode(text); got != want || err != nil {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"Enforce", "off", "deny"} {
		_, err := policy.ParseMode(text)
		wantError(t, err, fmt.Sprintf("unknown mode %q: want enforce, warn or audit", text))
		if _, err := policy.CompileAndTest(t.Context(), with(nil), policy.Options{Mode: policy.Mode(text)}); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
