package cli

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAdapterInit writes an adapter, and runs its tests without a network against this source.
func TestAdapterInit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "zones")
	source, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	got := run{args: []string{
		"adapter", "init", "dns-zones", "--module=example.org/team/zones", "--kind=nodepools", "--dir", dir, "--replace=../../..",
	}}.runCLI(t, newFleet())
	if got.code != CodeOK || !strings.Contains(got.stdout, "go test ./...") || !strings.Contains(got.stdout, "adapter.env") || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	wantAdapterFiles(t, dir, map[string]string{
		"go.mod":                 "module example.org/team/zones\n\ngo 1.26\n\nrequire " + modulePath + " v0.0.0\n\nreplace " + modulePath + " => \"" + source + "\"\n",
		"main.go":                `adapter.Config{Name: "dns-zones", Collections: []string{"nodepools"}}`,
		"reconcile.go":           "func (r *reconciler) Reconcile(",
		"Dockerfile":             `ENTRYPOINT ["/dns-zones"]`,
		"deploy/deployment.yaml": "image: registry.example.com/dns-zones:1.0.0",
		"README.md":              "# dns-zones\n",
	})

	sums, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600); err != nil { //nolint:gosec // a file of this test
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	for _, args := range [][]string{{"test", "./..."}, {"build", "-o", program, "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod -trimpath -tags=grpcnotrace", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	wantStarted(t, program)
}

// wantStarted runs the program as fleetloop up configures it, without a broker or a fleet API that answers, and
// waits until it has started.
func wantStarted(t *testing.T, program string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{
		"BROKER_TYPE=nats", "BROKER_URL=nats://127.0.0.1:1", "HYPERFLEET_API_ENDPOINT=http://127.0.0.1:1", "HEALTH_PROBE_BIND_ADDRESS=127.0.0.1:0",
	}
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	var out []string
	for lines.Scan() {
		out = append(out, lines.Text())
		if strings.Contains(lines.Text(), `"msg":"started"`) {
			_ = cmd.Process.Signal(os.Interrupt)
		}
	}
	err = cmd.Wait()
	if text := strings.Join(out, "\n"); err != nil || !strings.Contains(text, `"msg":"started","files":"files","probes_and_metrics":"127.0.0.1:`) {
		t.Errorf("the program ended with %v:\n%s", err, text)
	}
}

// TestAdapterInitOfARelease writes an adapter that requires the release of fleetloop.
func TestAdapterInitOfARelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := adapterOptions{name: "zones", module: "example.com/zones", collection: "clusters", version: "v1.2.3", dir: dir}
	source, err := o.locateSource()
	if err != nil || source != "" {
		t.Errorf("locateSource() = %q, %v; want none, because Go downloads the release", source, err)
	}
	if err := writeAdapterFromTemplate(o); err != nil {
		t.Fatal(err)
	}
	wantAdapterFiles(t, dir, map[string]string{"go.mod": "module example.com/zones\n\ngo 1.26\n\nrequire " + modulePath + " v1.2.3\n"})
}

// wantAdapterFiles checks that each file of an adapter contains a text, and no placeholder.
func wantAdapterFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for file, want := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "{{") {
			t.Errorf("%s: %v, want %q in:\n%s", file, err, want, text)
		}
	}
}

func TestAdapterInitRefuses(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "main.go"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"Name":        {[]string{"DNS"}, CodeUsage, "lower case"},
		"Kind":        {[]string{"dns", "--kind=cars"}, CodeUsage, "cars"},
		"NoSource":    {[]string{"registry", "--dir", filepath.Join(full, "new")}, CodeUsage, "--replace"}, // a test is a development build
		"OtherSource": {[]string{"registry", "--replace", full, "--dir", filepath.Join(full, "new")}, CodeUsage, "no source of Fleetloop"},
		"Full":        {[]string{"dns", "--dir", full, "--replace=../../.."}, CodePrecondition, "is not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run{args: append([]string{"adapter", "init"}, tc.args...)}.runCLI(t, newFleet())
			if got.code != tc.code || !strings.Contains(got.stderr, tc.want) {
				t.Errorf("exit code %d, want %d: %s", got.code, tc.code, got.stderr)
			}
		})
	}
	t.Cleanup(func() {
		if text, err := os.ReadFile(filepath.Join(full, "main.go")); string(text) != "mine" || err != nil {
			t.Errorf("main.go was changed: %q, %v", text, err)
		}
	})
}
