package version_test

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/version"
)

// TestVersionIsTagOrDev: what the toolchain makes up where there is no tag never
// becomes the name of an image.
func TestVersionIsTagOrDev(t *testing.T) {
	for recorded, want := range map[string]string{
		"v1.2.3":                               "1.2.3",
		"v0.1.0-rc.1":                          "0.1.0-rc.1",
		"":                                     "dev",
		"(devel)":                              "dev",
		"v0.0.0-20260301120000-0123456789ab":   "dev",
		"v1.2.4-0.20260301120000-0123456789ab": "dev",
		"v1.2.3-rc.1.0.20260301120000-0123456789ab": "dev",
		"v1.2.3+dirty": "dev",
		"v0.0.0-20260301120000-0123456789ab+dirty":    "dev",
		"v2.0.0+incompatible":                         "dev",
		"v0.0.0-20260301120000-0123456789ab+dirty.20": "dev",
	} {
		if got := version.Of(&debug.BuildInfo{Main: debug.Module{Version: recorded}}).Version; got != want {
			t.Errorf("version of %q is %q, want %q", recorded, got, want)
		}
	}
}

func TestOf(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "GOOS", Value: "linux"},
			{Key: "GOARCH", Value: "arm64"},
			{Key: "vcs.revision", Value: "abc"},
			{Key: "vcs.time", Value: "2026-03-01T12:00:00Z"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	want := version.Build{Version: "1.2.3", Revision: "abc-dirty", Module: "v1.2.3", Time: "2026-03-01T12:00:00Z", Go: "go1.26.8", Platform: "linux/arm64"}
	if diff := cmp.Diff(want, version.Of(info)); diff != "" {
		t.Errorf("build (-want +got):\n%s", diff)
	}
	want = version.Build{Version: "dev", Revision: "unknown", Time: "unknown", Go: "unknown", Platform: "unknown/unknown"}
	if diff := cmp.Diff(want, version.Of(&debug.BuildInfo{})); diff != "" {
		t.Errorf("build of nothing known (-want +got):\n%s", diff)
	}
}

// TestModule: the version of "go install" is known where that command gets the same source.
func TestModule(t *testing.T) {
	const pseudo = "v0.0.0-20260301120000-0123456789ab"
	git := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}}
	for name, tc := range map[string]struct {
		reason, recorded string
		settings         []debug.BuildSetting
		module, revision string
	}{
		"Tag":       {"a tag is published", "v1.2.3", git, "v1.2.3", "0123456789abcdef"},
		"Installed": {"it came from there", pseudo, nil, pseudo, "0123456789ab"},
		"Tree":      {"the commit may be nowhere else", pseudo, git, "", "0123456789abcdef"},
		"Dirty":     {"the changes are nowhere else", "v1.2.3+dirty", git, "", "0123456789abcdef"},
		"NoGit":     {"nothing is known", "(devel)", nil, "", "unknown"},
	} {
		got := version.Of(&debug.BuildInfo{Main: debug.Module{Version: tc.recorded}, Settings: tc.settings})
		if got.Module != tc.module || got.Revision != tc.revision {
			t.Errorf("%s: %s: module %q, revision %q; want %q, %q", name, tc.reason, got.Module, got.Revision, tc.module, tc.revision)
		}
	}
}

func TestIsSameSource(t *testing.T) {
	build := func(v, revision string) version.Build { return version.Build{Version: v, Revision: revision} }
	for name, tc := range map[string]struct {
		reason string
		a, b   version.Build
		want   bool
	}{
		"Tag":          {"only one was built from a clone, which knows the commit", build("1.2.3", "abc"), build("1.2.3", "unknown"), true},
		"OtherTag":     {"another source", build("1.2.3", "abc"), build("1.2.4", "abc"), false},
		"Commit":       {"the same source", build("dev", "abc"), build("dev", "abc"), true},
		"OtherCommit":  {"another source", build("dev", "abc"), build("dev", "def"), false},
		"OtherChanges": {"another source", build("dev", "abc"), build("dev", "abc-dirty"), false},
	} {
		if got := tc.a.IsSameSource(tc.b); got != tc.want {
			t.Errorf("%s: %s: %t for %s and %s", name, tc.reason, got, tc.a.Name(), tc.b.Name())
		}
	}
}

func TestText(t *testing.T) {
	b := version.Get()
	want := "sentinel, version " + b.Version + " (revision: " + b.Revision + ")\n"
	if got := b.Text("sentinel"); !strings.HasPrefix(got, want) || !strings.Contains(got, "go version:   "+runtime.Version()+"\n") {
		t.Errorf("text is %q", got)
	}
}
