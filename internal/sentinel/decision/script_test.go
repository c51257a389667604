package decision_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

// A script is one scripted case of the specification.
type script struct {
	resource decision.Resource
	ages     decision.Ages
	publish  bool
	reason   string // empty where the case gives none
	next     time.Time
	warning  string
}

// TestScripts reads the scripted cases out of the specification's own text and
// plays each.
func TestScripts(t *testing.T) {
	raw, err := os.ReadFile("../../../test/specification/service/decision-tests.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(raw), "\n**Test ")[1:]
	if len(sections) != 8 {
		t.Fatalf("%d cases, want 8", len(sections))
	}
	for i, section := range sections {
		title, text, _ := strings.Cut(section, "**\n")
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			s := readScript(t, text)
			got := decision.NewGenerationThenAgeProfile(s.ages).Decide(&s.resource, now)
			if got.ShouldPublish != s.publish || s.reason != "" && got.Reason.String() != s.reason || got.Warning.String() != s.warning {
				t.Errorf("%s: publish %t because %q, warning %q; want %t because %q, warning %q",
					title, got.ShouldPublish, got.Reason, got.Warning, s.publish, s.reason, s.warning)
			}
			if !s.next.IsZero() && !got.Next.Equal(s.next) {
				t.Errorf("%s: next event at %s, want %s", title, got.Next, s.next)
			}
		})
	}
}

// readScript parses the lines of a case. An unknown line fails the test.
func readScript(t *testing.T, text string) script {
	t.Helper()
	s := script{ages: decision.DefaultAges()}
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	duration := func(text string) time.Duration {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	lines := []struct {
		pattern string
		read    func(value string)
	}{
		{`- Cluster status\.phase: (\w+)`, func(v string) { s.resource.Phase = v }},
		{`- cluster\.generation = (\d+)`, func(v string) { s.resource.Generation = number(v) }},
		{`- cluster\.status\.observed_generation = (\d+)(?: \(or nil\))?`, func(v string) { s.resource.ObservedGeneration = number(v) }},
		{`- cluster\.status\.last_updated_time = now\(\) - (\w+)`, func(v string) { s.resource.LastUpdated = ago(duration(v)) }},
		{`- max_age_ready = (\w+)`, func(v string) { s.ages.Ready = duration(v) }},
		{`- max_age_not_ready = (\w+)`, func(v string) { s.ages.NotReady = duration(v) }},
		{`- Decision: (PUBLISH|SKIP)(?: \(treat as match\))?`, func(v string) { s.publish = v == "PUBLISH" }},
		{`- Reason: "(.+)"`, func(v string) { s.reason = v }},
		{`- Next event: now\(\) \+ (\w+)`, func(v string) { s.next = now.Add(duration(v)) }},
		{`- Log warning: "(.+)"`, func(v string) { s.warning = v }},
		{"(```|Given:|Then:|### Edge Cases|- Max age NOT checked.*|)", func(string) {}},
	}
	for line := range strings.Lines(text) {
		known := false
		for _, l := range lines {
			m := regexp.MustCompile("^" + l.pattern + "$").FindStringSubmatch(strings.TrimSpace(line))
			if m != nil {
				l.read(m[1])
				known = true
				break
			}
		}
		if !known {
			t.Fatalf("the case has a line that this test does not know: %q", line)
		}
	}
	return s
}

// TestReasonPublishes names the reasons for publishing. Each profile gives them
// with ShouldPublish, and the others without.
func TestReasonPublishes(t *testing.T) {
	want := map[decision.Reason]bool{
		decision.ReasonGenerationChanged: true, decision.ReasonMaxAgeReady: true, decision.ReasonMaxAgeNotReady: true,
		decision.ReasonBackoffExpired: true, decision.ReasonExpressionTrue: true, decision.ReasonExpressionFailed: true,
	}
	for r := range decision.NumReasons + 1 {
		if got := r.Publishes(); got != want[r] {
			t.Errorf("%q: Publishes() = %t, want %t", r, got, want[r])
		}
	}
	resources := []decision.Resource{
		{Generation: 2, ObservedGeneration: 1},
		{Phase: "Ready", LastUpdated: ago(time.Hour)},
		{LastUpdated: ago(time.Hour)},
		{LastUpdated: now},
		{LastTransition: now},
		{Phase: "Ready", LastTransition: now, LastUpdated: now},
	}
	for _, r := range resources {
		for _, v := range []decision.Verdict{
			decision.NewGenerationThenAgeProfile(decision.DefaultAges()).Decide(&r, now),
			decision.NewTransitionAgeProfile(decision.DefaultAges()).Decide(&r, now),
		} {
			if v.ShouldPublish != v.Reason.Publishes() {
				t.Errorf("%+v: ShouldPublish is %t with the reason %q", r, v.ShouldPublish, v.Reason)
			}
		}
	}
}
