package cli

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const lines = `{"name":"a","spec":{}}` + "\n" + `{"name":"b","spec":{}}` + "\n"
	file := filepath.Join(dir, "fleet.ndjson")
	open := filepath.Join(dir, "open.ndjson")
	for name, content := range map[string]string{file: lines, open: `{"name":"b"}`} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refusal := v1.Problem{Detail: `line 2: a Cluster named "b" already exists; created before the error: 1`, Code: "name_taken"}
	partly, untouched := refusal, refusal
	partly.Loaded, untouched.Loaded = &v1.LoadResult{Created: 1}, &v1.LoadResult{}

	cases := map[string]struct {
		reason string
		run    run
		status int
		answer any
		sent   []string
		stdout string
		code   int
		says   string
	}{
		"File": {
			"as it is",
			run{args: []string{"load", "clusters", "-f", file}},
			200,
			v1.LoadResult{Created: 2},
			[]string{"POST clusters/bulk " + lines},
			"clusters: 2 created\n", CodeOK, "",
		},
		"Stdin": {
			"a pipe",
			run{args: []string{"load", "c", "-f", "-", "--if-exists", "skip"}, stdin: lines},
			200,
			v1.LoadResult{Created: 1, Skipped: 1},
			[]string{"POST clusters/bulk " + lines},
			"clusters: 1 created, 1 skipped\n", CodeOK, "",
		},
		"JSON": {
			"for programs",
			run{args: []string{"load", "clusters", "-f", file, "-o", "json"}},
			200,
			v1.LoadResult{Created: 2},
			[]string{"POST clusters/bulk " + lines},
			`{"created":2,"skipped":0}` + "\n", CodeOK, "",
		},
		"Children": {
			"in the cluster that is named",
			run{args: []string{"load", "nodepools", "--cluster", "c1", "-f", file}},
			200,
			v1.LoadResult{Created: 2},
			[]string{"POST clusters/" + testID(1) + "/nodepools/bulk " + lines},
			"nodepools: 2 created\n", CodeOK, "",
		},
		"Partly": {
			"some of it was done",
			run{args: []string{"load", "clusters", "-f", file}},
			409, partly,
			[]string{"POST clusters/bulk " + lines},
			"", CodePartial, "line 2: a Cluster named \"b\" already exists; created before the error: 1\nnext:  fix the line; earlier lines were created; load the file again with --if-exists skip",
		},
		"Nothing": {
			"and here nothing",
			run{args: []string{"load", "clusters", "-f", file}},
			409, untouched,
			[]string{"POST clusters/bulk " + lines},
			"", CodePrecondition, "line 2",
		},
		"OneLine": {
			"a last line needs no end",
			run{args: []string{"load", "clusters", "-f", open}},
			409, untouched,
			[]string{`POST clusters/bulk {"name":"b"}`},
			"", CodePrecondition, "next:  fix the line",
		},
		"Forbidden": {
			"it was not about the lines",
			run{args: []string{"load", "clusters", "-f", file}},
			403,
			v1.Problem{Detail: "no"},
			[]string{"POST clusters/bulk " + lines},
			"", CodeFailed, "next:  request the permission",
		},
		"NoKind":     {"which", run{args: []string{"load", "-f", file}}, 0, nil, nil, "", CodeUsage, "give one resource kind"},
		"OtherKind":  {"unknown", run{args: []string{"load", "boats", "-f", file}}, 0, nil, nil, "", CodeUsage, `unknown resource kind "boats"`},
		"NoFile":     {"which file", run{args: []string{"load", "clusters"}}, 0, nil, nil, "", CodeUsage, "with -f; - is standard input"},
		"Missing":    {"no such file", run{args: []string{"load", "clusters", "-f", filepath.Join(dir, "none")}}, 0, nil, nil, "", CodeUsage, "no such file"},
		"Folder":     {"one file", run{args: []string{"load", "clusters", "-f", dir}}, 0, nil, nil, "", CodeUsage, "is a folder"},
		"NoParent":   {"where", run{args: []string{"load", "nodepools", "-f", file}}, 0, nil, nil, "", CodeUsage, "needs a cluster; give it with --cluster"},
		"NotAChild":  {"nowhere", run{args: []string{"load", "clusters", "--cluster", "c1", "-f", file}}, 0, nil, nil, "", CodeUsage, "only for node pools"},
		"NoOverride": {"it would overwrite", run{args: []string{"load", "clusters", "-f", file, "--if-exists", "replace"}}, 0, nil, nil, "", CodeUsage, "is not fail or skip"},
		"Orphan":     {"not there", run{args: []string{"load", "nodepools", "--cluster", "nope", "-f", file}}, 0, nil, nil, "", CodePrecondition, `cluster "nope"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet()
			f.before = func(r *http.Request) (int, any) {
				if r.Method != http.MethodPost {
					return 0, nil
				}
				if got := r.URL.Query().Get("if_exists") == "skip"; got != strings.Contains(strings.Join(tc.run.args, " "), "skip") {
					t.Errorf("%s: asked with %s", tc.reason, r.URL.RawQuery)
				}
				return tc.status, tc.answer
			}
			got := tc.run.runCLI(t, f)
			if got.code != tc.code || got.stdout != tc.stdout || !strings.Contains(got.stderr, tc.says) {
				t.Errorf("%s: exit code %d, want %d; stdout %q, want %q; stderr %q, want %q in it", tc.reason, got.code, tc.code, got.stdout, tc.stdout, got.stderr, tc.says)
			}
			if diff := cmp.Diff(tc.sent, f.sentRequests(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: sent (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestLoadIsCutShort: what to do next depends on whether anything was sent.
func TestLoadIsCutShort(t *testing.T) {
	t.Parallel()
	f := newFleet()
	f.down = io.ErrUnexpectedEOF
	got := run{args: []string{"load", "clusters", "-f", "-"}, stdin: "{}\n"}.runCLI(t, f)
	if got.code != CodeFailed || !strings.Contains(got.stderr, "fleetloop up' to start one on this machine") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
	f.down = nil
	f.before = answering(http.StatusServiceUnavailable, v1.Problem{Detail: "database", Loaded: &v1.LoadResult{Created: 2000}})
	got = run{args: []string{"load", "clusters", "-f", "-"}, stdin: "{}\n"}.runCLI(t, f)
	if got.code != CodePartial || !strings.Contains(got.stderr, "next:  earlier lines were created; load the file again with --if-exists skip") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

func TestLoadShowsProgress(t *testing.T) {
	t.Parallel()
	for name, terminal := range map[string]bool{"Terminal": true, "Pipe": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				f.before = answering(http.StatusOK, v1.LoadResult{Created: 4})
				stdin, w := io.Pipe()
				go func() {
					for range 4 {
						time.Sleep(900 * time.Millisecond)
						_, _ = io.WriteString(w, "{}\n")
					}
					_ = w.Close()
				}()
				var stdout, stderr bytes.Buffer
				env := Env{Stdin: stdin, Stdout: &stdout, Stderr: &stderr, Progress: terminal, Wrap: f.wrapTransport}
				code := Run(t.Context(), env, Command(env), []string{"load", "clusters", "-f", "-"})
				if code != CodeOK || stdout.String() != "clusters: 4 created\n" {
					t.Errorf("exit code %d, stdout %q", code, stdout.String())
				}
				want := ""
				if terminal {
					want = "\r\x1b[K1 lines sent, 1 a second\r\x1b[K2 lines sent, 1 a second\r\x1b[K3 lines sent, 1 a second\r\x1b[K"
				}
				if got := stderr.String(); got != want {
					t.Errorf("stderr %q, want %q", got, want)
				}
			})
		})
	}
}
