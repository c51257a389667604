package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// stuckAPI has a number of stuck clusters.
func stuckAPI(n int) *fakeAPI {
	var list v1.StuckList
	for i := range n {
		list.Items = append(list.Items, v1.StuckResource{
			Kind: v1.KindCluster, ID: fmt.Sprint(i), Name: fmt.Sprintf("eu-%d", i), Phase: v1.PhaseFailed, Since: now.Add(-time.Hour),
			Cause: v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: "dns", Message: "no zone"},
		})
	}
	return &fakeAPI{before: func(r *http.Request) (int, any) {
		if r.URL.Path == v1.SummaryPath {
			return http.StatusOK, newSummary()
		}
		return http.StatusOK, list
	}}
}

const topCounts = `KIND        TOTAL   READY   PENDING   PROVISIONING   FAILED   DELETING   OLDEST NOT READY
clusters    12      10      0         0              2        0          eu-1 (3h)
nodepools   0       0       0         0              0        0          -

SYNC       PENDING   RUNNING   BACKING_OFF   STUCK   PAUSED   SYNCED   OLDEST UNSYNCED
clusters   0         0         0             1       0        11       eu-2 (60m)

`

// TestTopOnce shows the counts and the list once, without a terminal and with --once.
func TestTopOnce(t *testing.T) {
	t.Parallel()
	const heads = "KIND      NAME   PHASE    AGE   CAUSE                  ATTEMPTS   NEXT\n"
	cases := map[string]struct {
		reason   string
		args     string
		terminal bool
		n        int
		want     string
	}{
		"Pipe":  {"all that are stuck", "top", false, 1, topCounts + heads + "cluster   eu-0   Failed   60m   adapter dns: no zone   -          -\n"},
		"Limit": {"the rest is mentioned", "top --limit 1", false, 2, topCounts + heads + "cluster   eu-0   Failed   60m   adapter dns: no zone   -          -\nMore resources are stuck; 'fleetloop stuck' lists all.\n"},
		"Once":  {"the screen stays", "top --once", true, 0, topCounts + "Nothing is stuck.\n"},
	}
	for name, tc := range cases {
		r := run{args: strings.Fields(tc.args), terminal: tc.terminal, env: map[string]string{"NO_COLOR": "1"}}.runCLI(t, stuckAPI(tc.n))
		if diff := cmp.Diff(tc.want, r.stdout); diff != "" || r.code != CodeOK {
			t.Errorf("%s: %s: exit code %d, stderr %q (-want +got):\n%s", name, tc.reason, r.code, r.stderr, diff)
		}
	}
	for _, args := range []string{"top --interval 0s", "top --limit -1", "top manifests", "top --cause x", "top a b"} {
		if r := (run{args: strings.Fields(args)}).runCLI(t, stuckAPI(0)); r.code != CodeUsage {
			t.Errorf("%s: exit code %d", args, r.code)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if r := (run{args: []string{"top"}, terminal: true, ctx: ctx}).runCLI(t, &fakeAPI{down: syscall.ECONNREFUSED}); r.code != CodeFailed || !strings.HasSuffix(r.stdout, leaveScreen) || !strings.Contains(r.stderr, "next:") {
		t.Errorf("no server: exit code %d, %q, %q", r.code, r.stdout, r.stderr)
	}
	r := run{args: []string{"top"}}.runCLI(t, &fakeAPI{before: answering(http.StatusNotFound, v1.Problem{})})
	if r.code != CodeFailed || !strings.Contains(r.stderr, "does not support top") {
		t.Errorf("an old server: exit code %d, %q", r.code, r.stderr)
	}
}

// TestTopRefreshes draws frames that fit the terminal, through an outage, and restores the terminal at the end.
func TestTopRefreshes(t *testing.T) {
	t.Parallel()
	for _, rejected := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := stuckAPI(30)
			var out, errOut bytes.Buffer
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			env := Env{
				Stdout: &out, Stderr: &errOut, Terminal: true, Wrap: f.wrapTransport, Now: func() time.Time { return now },
				LookupEnv:      func(string) (string, bool) { return "1", false },
				TerminalHeight: func() int { return 14 },
			}
			var events sync.WaitGroup
			events.Go(func() {
				time.Sleep(5 * time.Second)
				f.changeItem(func(f *fakeAPI) { f.down = syscall.ECONNREFUSED })
				time.Sleep(2 * time.Second)
				if rejected {
					f.changeItem(func(f *fakeAPI) { f.down, f.before = nil, answering(http.StatusForbidden, v1.Problem{Detail: "no"}) })
					time.Sleep(2 * time.Second)
				}
				cancel()
			})
			code := Run(ctx, env, Command(env), []string{"top"})
			events.Wait()
			text, left := strings.CutSuffix(out.String(), leaveScreen)
			text, entered := strings.CutPrefix(text, enterScreen)
			frames := strings.Split(text, cursorHome)[1:]
			if !left || !entered || len(frames) != 4 {
				t.Fatalf("%d frames in %q", len(frames), out.String())
			}
			for n, frame := range frames {
				lines := strings.Split(frame, "\r\n")
				outage := strings.Contains(lines[0], "not refreshed:")
				if len(lines) != 14 || !strings.Contains(lines[12], "eu-2") || !strings.Contains(lines[13], "More resources") || outage != (n == 3) {
					t.Errorf("frame %d: %q", n, lines)
				}
			}
			if want := map[bool]int{false: CodeOK, true: CodeFailed}[rejected]; code != want {
				t.Errorf("exit code %d, want %d: %s", code, want, errOut.String())
			}
		})
	}
}
