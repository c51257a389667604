package kubebed_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
)

// TestFoldersLeftBehind covers that the next start removes the temporary folders of
// killed processes, and no folder that is in use or belongs to others.
func TestFoldersLeftBehind(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	bed := start(t, kubebed.Options{})
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"fleetloop-kubebed-dead", "fleetloop-kubebed-foreign", "other"} {
		dir := filepath.Join(tmp, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if name != "fleetloop-kubebed-foreign" { // it has no lock
			if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(bed.Dir(), old, old); err != nil {
		t.Fatal(err)
	}
	_, err := kubebed.Start(t.Context(), kubebed.Options{Assets: t.TempDir()}) // it removes the folders, and fails
	if err == nil {
		t.Fatal("there is a bed of no programs")
	}
	for dir, want := range map[string]bool{
		filepath.Join(tmp, "fleetloop-kubebed-dead"): false, filepath.Join(tmp, "fleetloop-kubebed-foreign"): true,
		filepath.Join(tmp, "other"): true, bed.Dir(): true,
	} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) == want {
			t.Errorf("%s: %v, want it there: %t", dir, err, want)
		}
	}
	if err := bed.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bed.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a bed that was stopped: %v", err)
	}
}
