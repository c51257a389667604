package allinone

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGuideIsReadByAShell verifies that a shell can source the guide, whatever its values contain,
// and prints the commands unchanged.
func TestGuideIsReadByAShell(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]string{"Plain": "demo-1", "Hostile": "it's $(exit 1) `here`; \"and\" there"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), folder)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			g := guide{
				path:     []string{filepath.Join(dir, "assets"), filepath.Join(dir, "bin")},
				sections: []section{{"executions", []string{"fleetloop approve scale-web --kubeconfig $BOB", `curl -d '{"a": "b"}' $REPORTS`}}},
			}
			g.setVariable("BOB", filepath.Join(dir, "bob.kubeconfig"))
			g.setVariable("AUDIT", "")
			command, err := g.writeScript(dir)
			if err != nil {
				t.Fatal(err)
			}
			shell := exec.CommandContext(t.Context(), "sh", "-euc", command+` && printf '%s\n' "$BOB" "${AUDIT-none}" "$PATH"`)
			shell.Env = []string{"PATH=/bin:/usr/bin"}
			out, err := shell.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			want := "executions:\n  fleetloop approve scale-web --kubeconfig $BOB\n  curl -d '{\"a\": \"b\"}' $REPORTS\n" +
				dir + "/bob.kubeconfig\nnone\n" + dir + "/bin:" + dir + "/assets:/bin:/usr/bin\n"
			if diff := cmp.Diff(want, string(out)); diff != "" {
				t.Errorf("a shell says (-want +got):\n%s", diff)
			}
			if info, err := os.Stat(filepath.Join(dir, guideFile)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v: it may have a password in it, and is for its owner alone", info, err)
			}
		})
	}
}
