package allinone

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// busySnapshot is a fleet on its way.
func busySnapshot() FleetSnapshot {
	s := FleetSnapshot{
		Now: now, Started: now.Add(-83 * time.Second), APIURL: "http://127.0.0.1:8080",
		Groups: []ResourceGroup{
			{"Clusters", map[v1.Phase]int{v1.PhaseReady: 7, v1.PhaseProvisioning: 4, v1.PhasePending: 1}},
			{"Node pools", map[v1.Phase]int{v1.PhaseReady: 5, v1.PhaseProvisioning: 2, v1.PhasePending: 190, v1.PhaseFailed: 1, v1.PhaseDeleting: 2}},
		},
		Published: 412, PerSecond: 17.25,
		Unready: []UnreadyResource{
			{"cluster/demo-03", v1.PhaseProvisioning, now.Add(-71 * time.Second)},
			{"nodepool/demo-03-workers", v1.PhasePending, now.Add(-70 * time.Second)},
			{"nodepool/demo-11-workers", v1.PhaseFailed, now.Add(-12 * time.Second)},
		},
		Adapters: []AdapterState{
			{"validation", false, 140, now.Add(-time.Second)},
			{"dns", true, 98, now.Add(-40 * time.Second)},
			{"provisioning", false, 0, time.Time{}},
		},
	}
	reasons := []string{"generation changed - new spec to reconcile", "max age expired (not ready)"}
	for i := range 12 {
		s.Recent = append(s.Recent, PublishedEvent{
			Time: now.Add(-time.Duration(i) * 700 * time.Millisecond), Resource: "cluster/demo-" + string(rune('a'+i)), Reason: reasons[i%2],
		})
	}
	return s
}

// testChanges returns changes, newest first.
func testChanges() []RecentChange {
	var list []RecentChange
	for i, summary := range []string{
		"Gardener reported cluster demo-03 (Shoot demo-03) ready", "Gardener failed to reconcile cluster demo-05 (Shoot demo-05): infrastructure: quota exceeded",
		"Fleetloop asked Gardener to create cluster demo-05 (Shoot demo-05)", "Fleetloop created cluster demo-05", "Fleetloop asked Gardener to create cluster demo-03 (Shoot demo-03)",
	} {
		list = append(list, RecentChange{Time: now.Add(-time.Duration(i) * 3 * time.Second), Summary: summary, Failed: i == 1})
	}
	return list
}

func TestRenderFleet(t *testing.T) {
	t.Parallel()
	noticed := busySnapshot()
	noticed.Notice = "fleet API unreachable: http://127.0.0.1:8080: connection refused"
	hostile := busySnapshot()
	hostile.Recent = []PublishedEvent{{now, "cluster/\x1b[2Jx\ny", "a\x1b]0;t\x07" + strings.Repeat("long ", 40)}}
	hostile.Adapters[0].Name, hostile.Notice = "\x1b[31mred", "a\nb"
	three := busySnapshot()
	three.Groups = append(three.Groups, ResourceGroup{"Manifests", map[v1.Phase]int{"Paused": 3}})

	garden := busySnapshot()
	garden.Shoots = map[v1.ShootStatus]int{"": 1, v1.ShootPending: 2, v1.ShootProgressing: 3, v1.ShootReady: 5, v1.ShootDeleting: 1}

	hinted, far := busySnapshot(), busySnapshot()
	hinted.Hint = ". /tmp/fleetloop-demo-3700042877/try.sh"
	far.Hint = ". /var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T/fleetloop-demo-1/try.sh"

	told := garden
	told.Changes = testChanges()
	hostile.Changes = []RecentChange{{Time: now, Summary: "\x1b[2Jcordoned\n", Failed: true}}

	cases := map[string]struct {
		reason        string
		s             FleetSnapshot
		width, height int
		colour        bool
	}{
		"standard":   {"the usual terminal holds everything", busySnapshot(), 80, 24, false},
		"colour":     {"the same with colours", busySnapshot(), 80, 24, true},
		"empty":      {"nothing has happened yet", FleetSnapshot{Now: now, Started: now, APIURL: "http://127.0.0.1:8080", Groups: []ResourceGroup{{Title: "Clusters"}, {Title: "Node pools"}}}, 80, 24, false},
		"large":      {"more room, no more rows than are useful", busySnapshot(), 140, 50, false},
		"short":      {"events give way first", busySnapshot(), 80, 18, false},
		"very short": {"what stands above stays", busySnapshot(), 80, 6, false},
		"narrow":     {"one column", busySnapshot(), 40, 30, false},
		"notice":     {"what the user should know is seen", noticed, 80, 24, false},
		"hint":       {"what to try can be copied", hinted, 80, 24, false},
		"hint far":   {"the command is whole, rather than what stands before it", far, 80, 6, false},
		"hostile":    {"a name does nothing to the terminal", hostile, 80, 24, true},
		"garden":     {"how far Gardener is, in one line", garden, 80, 24, false},
		"changes":    {"what was done, beside what was published", told, 80, 30, false},
		"few lines":  {"changes share the room with the events", told, 80, 22, true},
		"three":      {"more kinds, and a phase of a newer server", three, 80, 30, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantGolden(t, strings.ReplaceAll(name, " ", "-"), RenderFleet(tc.s, tc.width, tc.height, tc.colour))
		})
	}
}

// TestUnreadyCanBeToldApart: on the usual terminal each row names its resource.
func TestUnreadyCanBeToldApart(t *testing.T) {
	t.Parallel()
	s := busySnapshot()
	s.Unready = nil
	names := []string{"cluster/us-east-01", "nodepool/us-east-01/system", "nodepool/us-east-01/workers", "cluster/us-east-02"}
	for _, name := range names {
		s.Unready = append(s.Unready, UnreadyResource{name, v1.PhaseProvisioning, now.Add(-12 * time.Minute)})
	}
	got := strings.ReplaceAll(RenderFleet(s, 80, 24, false)+"\n", "\n", " \n")
	for _, name := range []string{" us-east-01 ", " us-east-01/system ", " us-east-01/workers ", " us-east-02 "} {
		if !strings.Contains(got, name) {
			t.Errorf("no %q in\n%s", name, got)
		}
	}
	for i := range s.Unready {
		s.Unready[i].Resource = strings.Replace(names[i], "us-east", "production-in-us-east", 1)
	}
	got = strings.ReplaceAll(RenderFleet(s, 80, 24, false)+"\n", "\n", " \n")
	for _, end := range []string{"t-01 ", "t-01/system ", "t-01/workers ", "t-02 "} {
		if !strings.Contains(got, end) {
			t.Errorf("no name that ends with %q in\n%s", end, got)
		}
	}
}

// TestRenderFits holds for any terminal and whatever a server sends.
func TestRenderFits(t *testing.T) {
	t.Parallel()
	paint := regexp.MustCompile("\x1b\\[[0-9]m|\x1b\\[3[0-9]m")
	rapid.Check(t, func(t *rapid.T) {
		s := FleetSnapshot{Now: now, Started: now.Add(-time.Hour), APIURL: rapid.String().Draw(t, "url"), Notice: rapid.String().Draw(t, "notice"), Hint: rapid.String().Draw(t, "hint")}
		for range rapid.IntRange(0, 3).Draw(t, "groups") {
			s.Groups = append(s.Groups, ResourceGroup{rapid.String().Draw(t, "title"), rapid.MapOf(
				rapid.Map(rapid.String(), func(p string) v1.Phase { return v1.Phase(p) }), rapid.IntRange(-1, 1<<40),
			).Draw(t, "phases")})
		}
		for range rapid.IntRange(0, 12).Draw(t, "rows") {
			s.Recent = append(s.Recent, PublishedEvent{now, rapid.String().Draw(t, "resource"), rapid.String().Draw(t, "reason")})
			s.Changes = append(s.Changes, RecentChange{now, rapid.String().Draw(t, "summary"), rapid.Bool().Draw(t, "failed")})
			s.Unready = append(s.Unready, UnreadyResource{rapid.String().Draw(t, "resource"), v1.Phase(rapid.String().Draw(t, "phase")), now})
			s.Adapters = append(s.Adapters, AdapterState{Name: rapid.String().Draw(t, "adapter"), Paused: rapid.Bool().Draw(t, "paused")})
		}
		width, height := rapid.IntRange(0, 120).Draw(t, "width"), rapid.IntRange(0, 40).Draw(t, "height")
		colour := rapid.Bool().Draw(t, "colour")
		got := RenderFleet(s, width, height, colour)
		if colour {
			got = paint.ReplaceAllString(got, "")
		}
		if got == "" {
			return
		}
		lines := strings.Split(got, "\n")
		if len(lines) > height {
			t.Fatalf("%d lines on a terminal of %d", len(lines), height)
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > width || strings.ContainsFunc(l, func(r rune) bool { return r < ' ' }) {
				t.Fatalf("a line of %d on a terminal of %d: %q", n, width, l)
			}
		}
	})
}

func TestSummary(t *testing.T) {
	t.Parallel()
	ready := busySnapshot()
	ready.Groups = []ResourceGroup{{"Clusters", map[v1.Phase]int{v1.PhaseReady: 12}}, {"Node pools", map[v1.Phase]int{v1.PhaseReady: 24}}}
	ready.Unready, ready.Adapters[1].Paused = nil, false
	ready.Shoots = map[v1.ShootStatus]int{v1.ShootReady: 12}
	late := busySnapshot()
	late.Notice = "timed out after 5m"
	late.Changes = testChanges()
	cases := map[string]struct {
		reason string
		s      FleetSnapshot
	}{
		"summary-ready": {"phases that nothing is in are left out", ready},
		"summary-late":  {"what is missing is named", late},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantGolden(t, name, FormatSummary(tc.s))
		})
	}
}

func BenchmarkRenderFleet(b *testing.B) {
	s := busySnapshot()
	for b.Loop() {
		RenderFleet(s, 80, 24, true)
	}
}
