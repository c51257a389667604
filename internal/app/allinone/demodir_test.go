package allinone

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestADemoRemovesWhatKilledOnesLeft(t *testing.T) {
	tmp := t.TempDir()
	live, removeLive, err := createDemoDirAndRemoveAbandoned(tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fleetloop-demo-killed", "fleetloop-demo-starting", "fleetloop-demo-lockless", "other"} {
		if err := os.MkdirAll(filepath.Join(tmp, name, "postgresql"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	target := filepath.Join(tmp, "other")
	if err := os.Symlink(target, filepath.Join(tmp, "fleetloop-demo-link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fleetloop-demo-killed", "fleetloop-demo-starting", "other"} {
		if err := os.WriteFile(filepath.Join(tmp, name, "lock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-time.Hour)
	for _, name := range []string{filepath.Base(live), "fleetloop-demo-killed", "other"} {
		if err := os.Chtimes(filepath.Join(tmp, name, "lock"), long, long); err != nil {
			t.Fatal(err)
		}
	}

	next, removeNext, err := createDemoDirAndRemoveAbandoned(tmp)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Base(live), filepath.Base(next), "fleetloop-demo-link", "fleetloop-demo-lockless", "fleetloop-demo-starting", "other"}
	slices.Sort(want)
	if got := fileNames(t, tmp); !slices.Equal(got, want) {
		t.Errorf("after a demo was killed there are %q, want %q", got, want)
	}

	for _, remove := range []func() error{removeLive, removeNext} {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}
	if got := fileNames(t, tmp); slices.Contains(got, filepath.Base(live)) || slices.Contains(got, filepath.Base(next)) {
		t.Errorf("after both ended there are %q", got)
	}
}

func fileNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestDemoLink holds that the link leads to the demo that started last, and that the end of an older demo
// does not remove it.
func TestDemoLink(t *testing.T) {
	home := t.TempDir()
	env := func(key string) (string, bool) {
		value, ok := map[string]string{"HOME": home, "XDG_STATE_HOME": "/elsewhere"}[key]
		return value, ok
	}
	link := filepath.Join(home, ".local", "state", "fleetloop", "demo")
	target := func() string {
		dir, _ := os.Readlink(link) // none is empty
		return dir
	}
	removeFirst, err := linkDemoDir(env, "/tmp/first")
	if err != nil {
		t.Fatal(err)
	}
	if got := target(); got != "/tmp/first" {
		t.Errorf("the link leads to %q, want /tmp/first", got)
	}
	removeSecond, err := linkDemoDir(env, "/tmp/second")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		remove func() error
		want   string
	}{{removeFirst, "/tmp/second"}, {removeSecond, ""}, {removeSecond, ""}} {
		if err := step.remove(); err != nil {
			t.Error(err)
		}
		if got := target(); got != step.want {
			t.Errorf("the link leads to %q, want %q", got, step.want)
		}
	}
	if _, err := linkDemoDir(func(string) (string, bool) { return "", false }, "/tmp/first"); err == nil {
		t.Error("linkDemoDir without HOME returned no error")
	}
}
