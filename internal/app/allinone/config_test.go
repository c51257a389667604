package allinone

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStateDir(t *testing.T) {
	cases := map[string]struct {
		reason string
		env    map[string]string
		want   string
		err    string
	}{
		"Home":     {reason: "the usual place", env: map[string]string{"HOME": "/home/a"}, want: "/home/a/.local/state/fleetloop"},
		"XDG":      {reason: "where the user keeps state", env: map[string]string{"HOME": "/home/a", "XDG_STATE_HOME": "/state"}, want: "/state/fleetloop"},
		"Relative": {reason: "a path that is not absolute counts as not set", env: map[string]string{"HOME": "/home/a", "XDG_STATE_HOME": "state"}, want: "/home/a/.local/state/fleetloop"},
		"Nowhere":  {reason: "a service has no home, and the root folder is not one", env: nil, err: "--data-dir"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := stateDir(func(key string) (string, bool) { v, ok := tc.env[key]; return v, ok })
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: stateDir() = %q, %v; want %q, %q", tc.reason, got, err, tc.want, tc.err)
			}
		})
	}
}

// TestModeOfTheDataDir verifies that the user that runs root's PostgreSQL can enter the directory.
func TestModeOfTheDataDir(t *testing.T) {
	cfg := Config{DataDir: filepath.Join(t.TempDir(), "new")}
	dir, _, err := cfg.createDataDir(func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		want = 0o711
	}
	if fi.Mode().Perm() != want {
		t.Errorf("mode %v, want %v", fi.Mode().Perm(), want)
	}
}
