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
	want := version.Build{Version: "1.2.3", Revision: "abc-dirty", Time: "2026-03-01T12:00:00Z", Go: "go1.26.8", Platform: "linux/arm64"}
	if diff := cmp.Diff(want, version.Of(info)); diff != "" {
		t.Errorf("build (-want +got):\n%s", diff)
	}
	want = version.Build{Version: "dev", Revision: "unknown", Time: "unknown", Go: "unknown", Platform: "unknown/unknown"}
	if diff := cmp.Diff(want, version.Of(&debug.BuildInfo{})); diff != "" {
		t.Errorf("build of nothing known (-want +got):\n%s", diff)
	}
}

func TestText(t *testing.T) {
	b := version.Get()
	want := "sentinel, version " + b.Version + " (revision: " + b.Revision + ")\n"
	if got := b.Text("sentinel"); !strings.HasPrefix(got, want) || !strings.Contains(got, "go version:   "+runtime.Version()+"\n") {
		t.Errorf("text is %q", got)
	}
}
