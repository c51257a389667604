package processnode

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestFolders(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	living, err := lockFolderAndClearPods("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockFolderAndClearPods(living.Path); err == nil {
		t.Error("two nodes have one folder")
	}
	dead, err := os.MkdirTemp("", tempPrefix) //nolint:usetesting // of that name
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp("", tempPrefix) //nolint:usetesting // of that name
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	for _, dir := range []string{dead, living.Path} {
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	given := t.TempDir()
	if err := os.MkdirAll(filepath.Join(given, podsFolder, "left"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", given} {
		f, err := lockFolderAndClearPods(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]bool{living.Path: true, fresh: true, dead: false, given: true, filepath.Join(given, podsFolder): false} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) == want {
			t.Errorf("%s: %v; want that it is there: %t", dir, err, want)
		}
	}
	if err := living.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(living.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a temporary folder is left: %v", err)
	}
}
