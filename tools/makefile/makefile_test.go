// Package makefile_test holds the tests of the Makefile and of the scripts that it
// runs.
package makefile_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is the folder of the Makefile.
const repository = "../.."

// runMake runs make in the repository and returns its output and its error.
func runMake(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-s", "-C", repository}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// newModule writes a module with the given test files, one package each.
func newModule(t *testing.T, name string, packages map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	files := map[string]string{"go.mod": "module example.org/" + name + "\n\ngo 1.26\n"}
	for pkg, body := range packages {
		files[pkg+"/x_test.go"] = "package " + pkg + "\n\nimport \"testing\"\n\n" + body + "\n"
	}
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// makeTest runs a target of the Makefile on modules other than the repository's, without the setup
// of the target.
func makeTest(t *testing.T, target []string, modules ...string) (string, error) {
	t.Helper()
	return runMake(t, append(target, "-o", "setup-test", "-o", "kubebed",
		"MODULES="+strings.Join(modules, " "), "GO_TEST=xargs -r go test", "GOLANGCI_LINT=/dev/null")...)
}

// TestReportsAllFailures: a module that fails, or does not even compile, keeps
// no other one from being tested, and the end of the output names everything
// that failed.
func TestReportsAllFailures(t *testing.T) {
	const good = "func TestPass(*testing.T) {}"
	const fail = "func TestFail(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Error(\"wrong\") }) }"
	one := newModule(t, "one", map[string]string{"good": good, "bad": fail, "broken": "func TestBroken(*testing.T) { undefined() }"})
	two := newModule(t, "two", map[string]string{"good": good, "worse": fail})
	three := newModule(t, "three", map[string]string{"good": good})
	unreadable := newModule(t, "four", nil)
	if err := os.WriteFile(filepath.Join(unreadable, "go.mod"), []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	out, err := makeTest(t, []string{"test"}, one, two, three, unreadable)
	if err == nil {
		t.Error("make test: exit code 0, want a failure")
	}
	for _, tested := range []string{"ok  \texample.org/one/good", "ok  \texample.org/two/good", "ok  \texample.org/three/good"} {
		if !strings.Contains(out, tested) {
			t.Errorf("not tested: %q", tested)
		}
	}
	_, summary, _ := strings.Cut(out, "\nfailed:\n")
	want := []string{"example.org/one/bad", "TestFail", "TestFail/sub", "example.org/one/broken [build failed]", "example.org/two/worse", "module " + unreadable}
	for _, name := range want {
		if !strings.Contains(summary, name) {
			t.Errorf("the summary does not name %q", name)
		}
	}
	if strings.Contains(summary, "good") {
		t.Error("the summary names what passed")
	}
	if t.Failed() {
		t.Logf("output:\n%s", out)
	}
}

// TestPasses checks that a run without failures has no summary.
func TestPasses(t *testing.T) {
	module := newModule(t, "one", map[string]string{"good": "func TestPass(*testing.T) {}"})
	out, err := makeTest(t, []string{"test"}, module, module)
	if err != nil || strings.Count(out, "example.org/one/good") != 2 || strings.Contains(out, "failed:") {
		t.Errorf("make test: %v\n%s", err, out)
	}
}

// TestUnitReportsAllFailures: the fast gate tests every module as well.
func TestUnitReportsAllFailures(t *testing.T) {
	out, err := makeTest(t, []string{"-n", "unit"}, "one", "two")
	if err != nil || !strings.Contains(out, "tools/test-modules") || !strings.Contains(out, "packages pure ./...") || !strings.Contains(out, "packages programs ./...") || !strings.Contains(out, "'one two'") {
		t.Errorf("make -n unit: %v\n%s", err, out)
	}
}

// TestUpSaysThatAnAddressIsTaken: it does before anything is built.
func TestUpSaysThatAnAddressIsTaken(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	taken := listener.Addr().String()
	args := "--listen-address " + taken + " --health-probe-bind-address=" + taken + " --metrics-bind-address=127.0.0.1:0 --console-listen-address=127.0.0.1:0"
	out, err := runMake(t, "up", "BINARIES=", "UP_ARGS="+args)
	if err == nil || !strings.Contains(out, taken+": fleet API (--listen-address), health (--health-probe-bind-address)") {
		t.Errorf("make up: %v, want that %s is taken\n%s", err, taken, out)
	}
}

// TestUpSaysHowLongKubernetesTakes: its programs are built the first time.
func TestUpSaysHowLongKubernetesTakes(t *testing.T) {
	const free = "--listen-address 127.0.0.1:0 --health-probe-bind-address 127.0.0.1:0 --metrics-bind-address 127.0.0.1:0 --console-listen-address 127.0.0.1:0"
	out, err := runMake(t, "up-check", "KUBE=embedded", "UP_ARGS="+free)
	if err != nil || !strings.Contains(out, "ten minutes") {
		t.Errorf("make up-check KUBE=embedded: %v\n%s", err, out)
	}
}

// TestUpGoesOnWithoutPackages: where PostgreSQL cannot be installed from the
// distribution's packages, "fleetloop up" downloads it.
func TestUpGoesOnWithoutPackages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tools"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), text, 0o600); err != nil { //nolint:gosec // a copy in the test's own folder
		t.Fatal(err)
	}
	setup := "#!/bin/sh\necho 'not installed: '$* >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "tools", "setup"), []byte(setup), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-C", dir, "setup-up")
	cmd.Env = append(os.Environ(), "DATABASE_URL=")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "not installed: postgresql") || !strings.Contains(string(out), "downloads PostgreSQL") {
		t.Errorf("make setup-up: %v\n%s", err, out)
	}
}

// TestReleaseNeedsAVersion: without a version nothing is built.
func TestReleaseNeedsAVersion(t *testing.T) {
	out, err := runMake(t, "release")
	if err == nil || !strings.Contains(out, "make release: set the version, such as 'make release VERSION=1.2.0'") {
		t.Errorf("make release: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(repository, "bin", "release")); !os.IsNotExist(err) {
		t.Errorf("bin/release after it: %v", err)
	}
}
