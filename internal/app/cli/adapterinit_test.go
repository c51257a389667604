package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAdapterInit writes an adapter, and runs its tests without a network against this source.
func TestAdapterInit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "zones")
	got := run{args: []string{"adapter", "init", "dns-zones", "--module=example.org/team/zones", "--kind=nodepools", "--dir", dir}}.runCLI(t, newFleet())
	if got.code != CodeOK || !strings.Contains(got.stdout, "go test ./...") || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	for file, want := range map[string]string{
		"go.mod":                 "module example.org/team/zones\n",
		"main.go":                `adapter.Config{Name: "dns-zones", Collections: []string{"nodepools"}}`,
		"reconcile.go":           "func (r *reconciler) Reconcile(",
		"Dockerfile":             `ENTRYPOINT ["/dns-zones"]`,
		"deploy/deployment.yaml": "image: registry.example.com/dns-zones:1.0.0",
		"README.md":              "# dns-zones\n",
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "{{") {
			t.Errorf("%s: %v\n%s", file, err, text)
		}
	}

	source, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600); err != nil { //nolint:gosec // a file of this test
		t.Fatal(err)
	}
	const module = "github.com/fleetloop/fleetloop"
	for _, args := range [][]string{
		{"mod", "edit", "-require=" + module + "@v0.0.0", "-replace=" + module + "=" + source},
		{"test", "./..."},
		{"build", "-o", filepath.Join(t.TempDir(), "program"), "."},
	} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod -trimpath -tags=grpcnotrace", "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
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
		"Name": {[]string{"DNS"}, CodeUsage, "lower case"},
		"Kind": {[]string{"dns", "--kind=cars"}, CodeUsage, "cars"},
		"Full": {[]string{"dns", "--dir", full}, CodePrecondition, "is not empty"},
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
