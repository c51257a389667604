package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// changeOf is the event of a number, of which a minute each has passed since.
func changeOf(n int) v1.ChangeEvent {
	e := v1.ChangeEvent{
		ID: fmt.Sprintf("id-%d", n), Action: "cordon", Timestamp: now.Add(-time.Duration(n) * time.Minute), Source: "nvsentinel/fault-quarantine",
		Actor: "nvsentinel/fault-quarantine", Cluster: "eu-1", Node: fmt.Sprintf("gpu-node-%d", n), Outcome: "succeeded", Session: "s-1",
		Summary: fmt.Sprintf("NVSentinel cordoned node gpu-node-%d due to XID-79", n), RecordedAt: now,
	}
	switch n % 3 {
	case 1:
		e.Action, e.Outcome, e.Summary = "drain-failed", "failed", "NVSentinel failed to drain node\tgpu-node-1: \x1b[31mblocked"
	case 2:
		e.Action, e.Node, e.Subject, e.Actor, e.Summary = "execution-approved", "", "executions/scale-web", "alice@example.com", "Fleetloop approved execution scale-web"
	}
	return e
}

// changesAPI lists the events 0 to n-1, from the newest.
func changesAPI(n int) *fakeAPI {
	f := &fakeAPI{}
	f.before = func(r *http.Request) (int, any) {
		if r.URL.Path != v1.ChangesPath {
			return http.StatusNotFound, v1.Problem{Detail: "nothing is served at this path"}
		}
		q := r.URL.Query()
		var from, limit int
		_, _ = fmt.Sscan(q.Get("continue"), &from)
		_, _ = fmt.Sscan(q.Get("limit"), &limit)
		page := v1.ChangeEventList{Items: []v1.ChangeEvent{}, Cursor: "live"}
		for i := from; i < min(from+limit, n); i++ {
			page.Items = append(page.Items, changeOf(i))
		}
		if from+limit < n {
			page.Continue = fmt.Sprint(from + limit)
		}
		return http.StatusOK, page
	}
	return f
}

func TestShowChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		args   []string
		n      int
		colour bool
	}{
		"changes":             {"from the newest", nil, 3, false},
		"changes-colour":      {"what failed stands out", nil, 3, true},
		"changes-wide":        {"more of each", []string{"-o", "wide"}, 3, false},
		"changes-json":        {"a list", []string{"-o", "json"}, 2, false},
		"changes-yaml":        {"a list", []string{"-o", "yaml"}, 2, false},
		"changes-none":        {"data stays clean", nil, 0, false},
		"changes-none-json":   {"an empty list is a list", []string{"-o", "json"}, 0, false},
		"changes-limit":       {"a message names the limit", []string{"--limit", "2", "--no-headers"}, 5, false},
		"changes-bad-limit":   {"", []string{"--limit", "-1"}, 3, false},
		"changes-bad-since":   {"", []string{"--since", "tomorrow"}, 3, false},
		"changes-bad-until":   {"", []string{"--until", "tomorrow"}, 3, false},
		"changes-bad-outcome": {"", []string{"--outcome", "fine"}, 3, false},
		"changes-bad-dry-run": {"", []string{"--dry-runs", "maybe"}, 3, false},
		"changes-both":        {"", []string{"--until", "1h", "-f"}, 3, false},
		"changes-bad-format":  {"", []string{"-o", "name"}, 3, false},
		"changes-what":        {"the subcommand is unknown", []string{"delivries"}, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run{args: append([]string{"changes"}, c.args...), terminal: c.colour}
			wantGolden(t, name, r.runCLI(t, changesAPI(c.n)).outputText())
		})
	}
}

func TestChangesAreAskedFor(t *testing.T) {
	t.Parallel()
	f := changesAPI(1200)
	var queries []string
	answer := f.before
	f.before = func(r *http.Request) (int, any) {
		queries = append(queries, r.URL.RawQuery)
		return answer(r)
	}
	r := run{args: []string{
		"changes", "--cluster", "eu-1", "--node", "n", "--actor", "alice,bob", "--source", "janitor", "--action", "cordon", "--subject", "s", "--session", "x",
		"--outcome", "failed", "--dry-runs", "false", "--text", "no room",
		"--since", "1h", "--until", "2026-03-01T11:30:00Z", "--limit", "700", "--no-headers",
	}}.runCLI(t, f)
	if lines := strings.Count(r.stdout, "\n"); lines != 700 || r.code != CodeOK {
		t.Errorf("%d lines, exit code %d: %s", lines, r.code, r.stderr)
	}
	const filter = "action=cordon&actor=alice%2Cbob&cluster=eu-1&"
	const dryRun = "dry_run=false&"
	const rest = "limit=500&node=n&outcome=failed&session=x&since=2026-03-01T11%3A00%3A00Z&source=janitor&subject=s&text=no+room&until=2026-03-01T11%3A30%3A00Z"
	if diff := cmp.Diff([]string{filter + dryRun + rest, filter + "continue=500&" + dryRun + rest}, queries); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
}

func TestChangesOfAnOlderServer(t *testing.T) {
	t.Parallel()
	f := &fakeAPI{before: func(*http.Request) (int, any) {
		return http.StatusNotFound, v1.Problem{Detail: "nothing is served at this path"}
	}}
	r := run{args: []string{"changes"}}.runCLI(t, f)
	if r.code != CodeFailed || !strings.Contains(r.stderr, "next:  the server has no change events") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

// streamingAPI lists only the event 0, and streams the given events.
type streamingAPI struct {
	*fakeAPI

	asked   []string // where each stream began
	streams []func(io.Writer) error
	cancel  context.CancelFunc
}

func (f *streamingAPI) wrapTransport(http.RoundTripper) http.RoundTripper { return f }

func (f *streamingAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return f.fakeAPI.RoundTrip(r)
	}
	f.asked = append(f.asked, r.URL.RawQuery)
	if len(f.streams) == 0 {
		f.cancel() // the user has seen enough
		return nil, r.Context().Err()
	}
	next := f.streams[0]
	f.streams = f.streams[1:]
	var body bytes.Buffer
	end := next(&body)
	switch {
	case end == nil:
		return answerOf(&body), nil
	case body.Len() > 0:
		return answerOf(io.MultiReader(&body, broken{end})), nil
	}
	return nil, end
}

func answerOf(body io.Reader) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body)}
}

// broken is a connection that is cut.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func writeEvents(w io.Writer, n int) {
	data, err := json.Marshal(changeOf(n))
	if err != nil {
		panic(err) // of this test
	}
	_, _ = fmt.Fprintf(w, "event: changed\nid: c%d\ndata: %s\n\n", n, data)
}

// TestFollowChanges: a stream that ends, breaks or cannot be had is begun again
// where it was left, and nothing is shown twice.
func TestFollowChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &streamingAPI{fakeAPI: changesAPI(3), cancel: cancel, streams: []func(io.Writer) error{
			func(w io.Writer) error {
				writeEvents(w, 0) // it was in the list
				writeEvents(w, 10)
				return nil
			},
			func(w io.Writer) error {
				_, _ = io.WriteString(w, ": a comment\n\nevent: bookmark\nid: b1\ndata: {}\n\n")
				writeEvents(w, 11)
				_, _ = io.WriteString(w, "event: changed\nid: half")
				return syscall.ECONNRESET
			},
			func(io.Writer) error { return syscall.ECONNREFUSED },
			func(io.Writer) error { return syscall.ECONNREFUSED },
			func(w io.Writer) error { writeEvents(w, 12); return nil },
		}}
		var stdout, stderr bytes.Buffer
		env := Env{Stdout: &stdout, Stderr: &stderr, Now: func() time.Time { return now }, Wrap: f.wrapTransport}
		if code := Run(ctx, env, Command(env), []string{"changes", "-f", "--cluster", "eu-1", "-o", "json"}); code != CodeOK {
			t.Errorf("exit code %d", code)
		}
		var got []string
		for line := range strings.Lines(stdout.String()) {
			var e v1.ChangeEvent
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			got = append(got, e.ID)
		}
		if diff := cmp.Diff([]string{"id-2", "id-1", "id-0", "id-10", "id-11", "id-12"}, got); diff != "" {
			t.Errorf("shown (-want +got):\n%s", diff)
		}
		want := []string{
			"after=live&cluster=eu-1", "after=c10&cluster=eu-1", "after=c11&cluster=eu-1", "after=c11&cluster=eu-1", "after=c11&cluster=eu-1", "after=c12&cluster=eu-1",
		}
		if diff := cmp.Diff(want, f.asked); diff != "" {
			t.Errorf("streams (-want +got):\n%s", diff)
		}
		if n := strings.Count(stderr.String(), "warning:"); n != 1 {
			t.Errorf("it warned %d times:\n%s", n, stderr.String())
		}
	})
}

func TestFollowEndsWhereItIsRefused(t *testing.T) {
	t.Parallel()
	f := changesAPI(3)
	answer := f.before
	f.before = func(r *http.Request) (int, any) {
		if strings.Contains(r.Header.Get("Accept"), "event-stream") {
			return http.StatusGone, v1.Problem{Code: "cursor_expired", Detail: "the database was restored"}
		}
		return answer(r)
	}
	r := run{args: []string{"changes", "--follow", "-o", "yaml"}}.runCLI(t, f)
	if r.code != CodePrecondition || !strings.Contains(r.stderr, "next:  run 'fleetloop changes -f' again") || !strings.HasPrefix(r.stdout, "---\nactor: alice@example.com\n") {
		t.Errorf("exit code %d: %s\n%s", r.code, r.stderr, r.stdout)
	}
}

func TestAddToChanges(t *testing.T) {
	t.Parallel()
	env := Env{Stdout: io.Discard, Stderr: io.Discard}
	root := Command(env)
	enough := errors.New("it ran")
	AddChangesSubcommands(root, &cobra.Command{Use: "deliveries", RunE: func(*cobra.Command, []string) error { return enough }})
	root.SetArgs([]string{"changes", "deliveries"})
	if err := root.ExecuteContext(t.Context()); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}

// TestCompleteObject completes the objects of changes: kinds, and the names of nodes and executions with changes.
func TestCompleteObject(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"events n":                   "clusters nodepools nodes executions",
		"events node/gpu-node-":      "node/gpu-node-0 node/gpu-node-1 node/gpu-node-3 node/gpu-node-4",
		"events nodes gpu-node-4":    "gpu-node-4",
		"changes execution/":         "execution/scale-web",
		"changes executions scale":   "scale-web",
		"changes executions scale a": "",
	} {
		r := run{args: append([]string{"__complete"}, strings.Split(args, " ")...)}.runCLI(t, changesAPI(6))
		var got []string
		for line := range strings.Lines(r.stdout) {
			if name := strings.TrimSpace(line); !strings.HasPrefix(name, ":") && !strings.HasPrefix(name, "_") {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want || r.code != CodeOK {
			t.Errorf("%s: exit code %d, got %q, want %q", args, r.code, got, want)
		}
	}
}

// TestEventsOrder lists events from the oldest, of those that --limit selects from the newest.
func TestEventsOrder(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"events":           "id-3 id-2 id-1 id-0",
		"events --limit 2": "id-1 id-0",
		"changes":          "id-0 id-1 id-2 id-3",
	} {
		r := run{args: append(strings.Fields(args), "-o", "jsonpath={.items[*].id}")}.runCLI(t, changesAPI(4))
		if got := strings.TrimSpace(r.stdout); got != want || r.code != CodeOK {
			t.Errorf("%s: exit code %d, got %q, want %q", args, r.code, got, want)
		}
	}
}
