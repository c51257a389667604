// Package upgrade_test upgrades an installation of the previous release to this one, and back, while
// users work with it.
package upgrade_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/devstack/binaries"
)

// stopBound is the longest time that the proof may take to stop its servers.
const stopBound = 30 * time.Second

// TestUpgrade holds that processes of the previous release run beside those of this one, on the schema
// and the CustomResourceDefinitions of this one, and after a way back. Nothing is lost or done twice, and
// no request fails.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	runProof(t, "-upgrade", "-faults=none", "-minutes=0.75", "-clusters=40", "-seed=2")
}

// runProof runs the program of the proof, which starts servers, and fails the test if a promise is broken.
// The files stay if the test fails.
func runProof(t *testing.T, args ...string) {
	t.Helper()
	root, err := binaries.ModuleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The folder of a test is closed to the user of PostgreSQL.
	dir, err := os.MkdirTemp("", "fleetloop-proof-") //nolint:usetesting // see above, and it stays if the test fails
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("history and logs are in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := binaries.BuildPackages(t.Context(), root, dir, "./devstack/proof"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "proof"), append([]string{"-dir=" + dir}, args...)...)
	cmd.Dir = root
	// It stops its servers.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopBound
	out, err := cmd.CombinedOutput()
	t.Logf("the proof took %s:\n%s", time.Since(began).Round(time.Second), out)
	if err != nil {
		t.Fatalf("the proof failed: %v", err)
	}
}
