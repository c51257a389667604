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

// TestOnlyTheDirOfADemoIsTemporary holds that the database of a folder that a user named is never temporary.
func TestOnlyTheDirOfADemoIsTemporary(t *testing.T) {
	demo := DemoConfig{Enabled: true}
	cases := map[string]struct {
		reason string
		cfg    Config
		want   bool
	}{
		"Demo":      {reason: "its folder is removed at the end", cfg: Config{Demo: demo}, want: true},
		"NamedDemo": {reason: "the user named the folder", cfg: Config{Demo: demo, DataDir: "./fleet"}},
		"Named":     {reason: "the user named the folder", cfg: Config{DataDir: "./fleet"}},
		"Default":   {reason: "the state folder lasts", cfg: Config{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.cfg.usesDemoDir(); got != tc.want {
				t.Errorf("%s: usesDemoDir() = %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
