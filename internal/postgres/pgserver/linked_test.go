package pgserver

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newClosedDir returns a folder that root's server cannot reach, and skips the rest for other users.
func newClosedDir(t *testing.T) (dir string, ok bool) {
	t.Helper()
	if !isRoot() {
		t.Log("only root's server runs as somebody else")
		return "", false
	}
	dir = newTestDir(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir, true
}

// openAndCloseHome opens the home as a start does. It returns the linked folder.
func openAndCloseHome(t *testing.T, cfg Config) (linked string) {
	t.Helper()
	h, err := openAndLockHome(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.unlockHome(); err != nil {
		t.Fatal(err)
	}
	linked = filepath.Dir(h.data)
	if filepath.Dir(linked) != rootDataDir {
		t.Fatalf("the data of %q is in %q", cfg.Dir, h.data)
	}
	t.Cleanup(func() { _ = os.RemoveAll(linked) })
	return linked
}

func mustRename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyTemporaryDataIsRemoved(t *testing.T) {
	closed, ok := newClosedDir(t)
	if !ok {
		return
	}
	cases := map[string]struct {
		reason string
		starts []Config
		want   bool
	}{
		"Named":     {reason: "a user named the folder", starts: []Config{{}}, want: true},
		"Demo":      {reason: "the folder of a demo goes with the demo", starts: []Config{{Temporary: true}}},
		"Throwaway": {reason: "tests leave nothing", starts: []Config{{Throwaway: true}, {Throwaway: true}}},
		"Adopted":   {reason: "the last start promised to keep the data", starts: []Config{{Temporary: true}, {}}, want: true},
		"Tested":    {reason: "the first start promised to keep the data", starts: []Config{{}, {Throwaway: true}}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			home, linked := filepath.Join(closed, name), ""
			for _, cfg := range tc.starts {
				cfg.Dir = home
				linked = openAndCloseHome(t, cfg)
			}
			mustRename(t, home, home+"-away")
			openAndCloseHome(t, Config{Dir: filepath.Join(closed, name+"-other"), Temporary: true})
			if _, err := os.Stat(linked); (err == nil) != tc.want {
				t.Errorf("the folder is kept: %v, want %v: %s", err == nil, tc.want, tc.reason)
			}
		})
	}
}

// TestAMovedTemporaryFolderKeepsItsData holds that the record of the link follows the folder.
func TestAMovedTemporaryFolderKeepsItsData(t *testing.T) {
	closed, ok := newClosedDir(t)
	if !ok {
		return
	}
	a, b := filepath.Join(closed, "a"), filepath.Join(closed, "b")
	linked := openAndCloseHome(t, Config{Dir: a, Temporary: true})
	mustRename(t, a, b)
	if again := openAndCloseHome(t, Config{Dir: b, Temporary: true}); again != linked {
		t.Fatalf("the moved folder got the data folder %q, want %q", again, linked)
	}
	if got, err := os.ReadFile(filepath.Join(linked, linkRecordFile)); err != nil || string(got) != filepath.Join(b, "data") {
		t.Errorf("the record of the link is %q, %v", got, err)
	}
	openAndCloseHome(t, Config{Dir: filepath.Join(closed, "c"), Temporary: true})
	if _, err := os.Stat(linked); err != nil {
		t.Errorf("the data of a moved folder was removed: %v", err)
	}
}

// TestMissingDataIsAnError holds that a link that leads nowhere is reported and kept.
func TestMissingDataIsAnError(t *testing.T) {
	home := newTestDir(t)
	link, target := filepath.Join(home, "data"), filepath.Join(newTestDir(t), "data")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "password"), []byte("kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), Config{Dir: home}, slog.New(slog.DiscardHandler))
	if err == nil {
		_ = s.Close()
		t.Fatal("started an empty database in place of a missing one")
	}
	for _, want := range []string{"the database is missing", link, target, "mount or restore that folder", "delete the link"} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	if got, err := os.Readlink(link); err != nil || got != target {
		t.Errorf("the link leads to %q, %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(home, "password")); err != nil || string(got) != "kept\n" {
		t.Errorf("the password is %q, %v", got, err)
	}
}

// TestMissingLinkedDataIsAnError removes the data of a folder that had it.
func TestMissingLinkedDataIsAnError(t *testing.T) {
	closed, ok := newClosedDir(t)
	if !ok {
		return
	}
	home := filepath.Join(closed, "db")
	first := mustStart(t, home)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	linked := openAndCloseHome(t, Config{Dir: home, Throwaway: true})
	mustRename(t, filepath.Join(linked, "data"), filepath.Join(linked, "away"))
	s, err := Start(t.Context(), Config{Dir: home, Throwaway: true}, slog.New(slog.DiscardHandler))
	if err == nil {
		_ = s.Close()
		t.Fatal("started an empty database in place of a missing one")
	}
	if !strings.Contains(err.Error(), "the database is missing") {
		t.Errorf("got %v", err)
	}
	mustRename(t, filepath.Join(linked, "away"), filepath.Join(linked, "data"))
	mustStart(t, home)
}
