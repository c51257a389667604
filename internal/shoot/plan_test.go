package shoot_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

func TestNewer(t *testing.T) {
	tests := map[string]struct {
		reason   string
		low, top string
	}{
		"Patch":          {"by number, not by letter", "1.34.9", "1.34.10"},
		"Minor":          {"by number, not by letter", "1.9.0", "1.10.0"},
		"SaysLess":       {"1.34 is any of them, and so is met by each", "1.34", "1.34.0"},
		"Nothing":        {"nothing is met by all", "", "1.34.0"},
		"PreRelease":     {"it comes before the release", "1.35.0-rc.1", "1.35.0"},
		"PreReleases":    {"by number", "1.35.0-rc.9", "1.35.0-rc.10"},
		"WordsAfter":     {"as semantic versions have it", "1.35.0-1", "1.35.0-alpha"},
		"Prefix":         {"a v says nothing", "v1.34.1", "1.34.2"},
		"Image":          {"as image versions are", "1592.15.0", "1877.3.0"},
		"Day":            {"as image versions are", "24.4.20250523", "24.4.20250804"},
		"BeyondNumbers":  {"no number is too long", "1." + strings.Repeat("9", 30), "1.1" + strings.Repeat("0", 30)},
		"LeadingZeroes":  {"they say nothing", "1.034.1", "1.34.2"},
		"PreReleaseOnly": {"a word after a number", "1.35.0-rc", "1.35.0-rc.1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if !shoot.IsNewerVersion(test.top, test.low) {
				t.Errorf("%q is not newer than %q: %s", test.top, test.low, test.reason)
			}
			if shoot.IsNewerVersion(test.low, test.top) {
				t.Errorf("%q is newer than %q: %s", test.low, test.top, test.reason)
			}
		})
	}
	for _, same := range [][2]string{{"1.34.2", "1.34.2"}, {"v1.34.2", "1.34.2"}, {"1.34.2+build", "1.34.2"}, {"latest", "1.34.2"}, {"", ""}} {
		if shoot.IsNewerVersion(same[0], same[1]) || shoot.IsNewerVersion(same[1], same[0]) {
			t.Errorf("one of %q is newer", same)
		}
	}
}

func TestNewerIsAnOrder(t *testing.T) {
	version := rapid.Custom(func(t *rapid.T) string {
		v := fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "major"))
		for range rapid.IntRange(0, 2).Draw(t, "parts") {
			v += fmt.Sprintf(".%d", rapid.IntRange(0, 11).Draw(t, "part"))
		}
		return v + rapid.SampledFrom([]string{"", "-rc.1", "-rc.2", "-alpha", "+x"}).Draw(t, "rest")
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := version.Draw(t, "a"), version.Draw(t, "b"), version.Draw(t, "c")
		if shoot.IsNewerVersion(a, a) || shoot.IsNewerVersion(a, b) && shoot.IsNewerVersion(b, a) {
			t.Errorf("%s and %s are newer than each other", a, b)
		}
		if shoot.IsNewerVersion(a, b) && shoot.IsNewerVersion(b, c) && !shoot.IsNewerVersion(a, c) {
			t.Errorf("%s > %s > %s, but not %[1]s > %[3]s", a, b, c)
		}
	})
}

func FuzzNewer(f *testing.F) {
	f.Add("1.34.2", "1.34")
	f.Add("v1.0.0-rc.1+b", "..-.+")
	f.Fuzz(func(t *testing.T, a, b string) {
		if shoot.IsNewerVersion(a, b) && shoot.IsNewerVersion(b, a) {
			t.Errorf("%q and %q are newer than each other", a, b)
		}
	})
}

// manifest returns a manifest at generation 5, with two pools.
func manifest() shoot.Manifest {
	return shoot.Manifest{
		Metadata: shoot.Metadata{
			Name:        "a",
			Labels:      map[string]string{shoot.LabelCluster: "c", shoot.LabelInstallation: "i"},
			Annotations: map[string]string{shoot.AnnotationGeneration: "5"},
		},
		Spec: shoot.Spec{
			Kubernetes: shoot.Kubernetes{Version: "1.34.2"},
			Provider:   shoot.Provider{Workers: []shoot.Worker{pool("x", nil), pool("y", &shoot.Image{Name: "linux", Version: "2.0.0"})}},
		},
	}
}

func pool(name string, i *shoot.Image) shoot.Worker {
	return shoot.Worker{Name: name, Machine: shoot.Machine{Type: "small", Image: i}, Maximum: 3}
}

func live(edit func(*shoot.LiveShoot)) shoot.LiveShoot {
	m := manifest()
	l := shoot.LiveShoot{Labels: m.Metadata.Labels, Annotations: m.Metadata.Annotations, Spec: m.Spec}
	edit(&l)
	return l
}

func TestWhatIsSent(t *testing.T) {
	image := func(name, version string) *shoot.Image { return &shoot.Image{Name: name, Version: version} }
	tests := map[string]struct {
		reason string
		live   func(*shoot.LiveShoot)
		want   func(*shoot.Spec)
	}{
		"Same":         {reason: "as it was asked for", live: func(*shoot.LiveShoot) {}, want: func(*shoot.Spec) {}},
		"Older":        {reason: "an update", live: func(l *shoot.LiveShoot) { l.Spec.Kubernetes.Version = "1.33.5" }, want: func(*shoot.Spec) {}},
		"Raised":       {reason: "Gardener raised it, and would refuse to lower it", live: func(l *shoot.LiveShoot) { l.Spec.Kubernetes.Version = "1.34.3" }, want: func(s *shoot.Spec) { s.Kubernetes.Version = "1.34.3" }},
		"ImageRaised":  {reason: "the same", live: func(l *shoot.LiveShoot) { l.Spec.Provider.Workers[1].Machine.Image = image("linux", "2.1.0") }, want: func(s *shoot.Spec) { s.Provider.Workers[1].Machine.Image = image("linux", "2.1.0") }},
		"ImageOlder":   {reason: "an update", live: func(l *shoot.LiveShoot) { l.Spec.Provider.Workers[1].Machine.Image = image("linux", "1.9.0") }, want: func(*shoot.Spec) {}},
		"OtherImage":   {reason: "its versions say nothing of ours", live: func(l *shoot.LiveShoot) { l.Spec.Provider.Workers[1].Machine.Image = image("bsd", "9.0.0") }, want: func(*shoot.Spec) {}},
		"ImageChosen":  {reason: "by Gardener", live: func(l *shoot.LiveShoot) { l.Spec.Provider.Workers[0].Machine.Image = image("linux", "3.0.0") }, want: func(s *shoot.Spec) { s.Provider.Workers[0].Machine.Image = image("linux", "3.0.0") }},
		"OthersPools":  {reason: "a pool that is not wanted is not sent", live: func(l *shoot.LiveShoot) { l.Spec.Provider.Workers[0].Name = "z" }, want: func(*shoot.Spec) {}},
		"OthersNumber": {reason: "what others changed comes back", live: func(l *shoot.LiveShoot) { l.Spec.Provider.Workers[0].Maximum = 50 }, want: func(*shoot.Spec) {}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, want := manifest(), manifest()
			test.want(&want.Spec)
			got, err := shoot.PrepareManifestForUpdate(m, live(test.live))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s (-want +got)", test.reason, diff)
			}
			if diff := cmp.Diff(manifest(), m); diff != "" {
				t.Errorf("the caller's manifest changed: %s", diff)
			}
		})
	}
}

// TestHistories: a generation of another history of the database counts only if it is from before the
// two parted, because after a restore the same number is given again.
func TestHistories(t *testing.T) {
	known := func(synced int64, sent map[string]int64) shoot.KnownGenerations {
		return shoot.KnownGenerations{Synced: synced, Sent: sent}
	}
	tests := map[string]struct {
		reason     string
		was, is    string // history of the Shoot, and of the request at generation 5
		generation string // of the Shoot
		known      shoot.KnownGenerations
		want       shoot.Class
	}{
		"Lost":           {"the restored database gave the same number again", "h1", "h3", "5", known(3, nil), shoot.ClassConflict},
		"LostLower":      {"it gave higher ones since", "h1", "h3", "4", known(3, nil), shoot.ClassConflict},
		"LostAndSent":    {"a failover followed the restore and the edit", "h1", "h3", "5", known(3, map[string]int64{"h2": 5}), shoot.ClassConflict},
		"LostBeforeSync": {"the backup has an earlier edit that was not synced", "h1", "h3", "5", known(3, map[string]int64{"h1": 4, "h3": 5}), shoot.ClassConflict},
		"Known":          {"the backup has it", "h1", "h3", "3", known(3, nil), ""},
		"Sent":           {"the result was lost in a failover", "h2", "h3", "5", known(3, map[string]int64{"h1": 4, "h2": 5, "h3": 5}), ""},
		"SentEarlier":    {"the result was lost two failovers ago", "h1", "h3", "4", known(3, map[string]int64{"h1": 4, "h2": 5, "h3": 5}), ""},
		"Overwritten":    {"an operator permits it", "h1", "h3", "5", known(3, map[string]int64{shoot.AnyHistory: 1000005}), ""},
		"SameHistory":    {"a retry", "h3", "h3", "5", known(3, nil), ""},
		"Before":         {"an older release wrote the Shoot", "", "h3", "5", known(3, nil), ""},
		"AfterDowngrade": {"an older release makes the request", "h1", "", "5", known(3, nil), ""},
		"Newer":          {"generations count within a history", "h3", "h3", "6", known(3, nil), shoot.ClassConflict},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := manifest()
			m.Known = test.known
			m.Metadata.Annotations[shoot.AnnotationHistory] = test.is
			_, err := shoot.PrepareManifestForUpdate(m, live(func(l *shoot.LiveShoot) {
				l.Annotations = map[string]string{shoot.AnnotationGeneration: test.generation, shoot.AnnotationHistory: test.was}
			}))
			if got := shoot.ClassOf(err); err == nil && test.want != "" || err != nil && got != test.want {
				t.Errorf("%s: %v, want class %q", test.reason, err, test.want)
			}
		})
	}
}

func TestWhatIsNotSent(t *testing.T) {
	labels := func(c, i string) func(*shoot.LiveShoot) {
		return func(l *shoot.LiveShoot) {
			l.Labels = map[string]string{shoot.LabelCluster: c, shoot.LabelInstallation: i}
		}
	}
	generation := func(g string) func(*shoot.LiveShoot) {
		return func(l *shoot.LiveShoot) { l.Annotations = map[string]string{shoot.AnnotationGeneration: g} }
	}
	tests := map[string]struct {
		reason string
		live   func(*shoot.LiveShoot)
		want   shoot.Class
	}{
		"Nobodys":           {"somebody made it by hand", func(l *shoot.LiveShoot) { l.Labels = nil }, shoot.ClassForeign},
		"OtherCluster":      {"it is another cluster's", labels("d", "i"), shoot.ClassForeign},
		"OtherInstallation": {"it is another database's", labels("c", "j"), shoot.ClassForeign},
		"Newer":             {"another worker was faster", generation("6"), shoot.ClassConflict},
		"Deleting":          {"nothing can be changed any more", func(l *shoot.LiveShoot) { l.Deleting = true }, shoot.ClassConflict},
		"Older":             {"it is time", generation("4"), ""},
		"Unreadable":        {"somebody else wrote it", generation("x"), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := shoot.PrepareManifestForUpdate(manifest(), live(test.live))
			if (err == nil) != (test.want == "") || err != nil && shoot.ClassOf(err) != test.want {
				t.Errorf("%s: got %v (%s)", test.reason, err, shoot.ClassOf(err))
			}
		})
	}
	if err := shoot.CheckOwnedByRef(shoot.Ref{Name: "a"}, nil); shoot.ClassOf(err) != shoot.ClassForeign {
		t.Errorf("who names no cluster owns nothing, but: %v", err)
	}
}
