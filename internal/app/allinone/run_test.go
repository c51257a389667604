package allinone_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/allinone"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/processtest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == allinone.RunnerCommand || os.Args[1] == allinone.WebCommand) {
		os.Exit(runProgram()) //nolint:forbidigo // a node of a test runs this very program
	}
	pgtest.Main(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")) // of the Pub/Sub library, begins with the process
}

// runProgram is what a node runs as a container.
func runProgram() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(allinone.NewHiddenRunnerAndWebCommands(allinone.Env{Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: settings.OSEnv})...)
	root.SetArgs(os.Args[1:])
	return cli.ExitCode(root.ExecuteContext(ctx))
}

const (
	patience = 60 * time.Second
	every    = 20 * time.Millisecond
)

// A run is one call of "fleetloop up" in this process.
type run struct {
	stdout, stderr processtest.Buffer
	cancel         context.CancelFunc
	done           chan struct{}
	err            error // once done is closed
}

// startProgram runs "fleetloop up" on free ports. It uses a separate database unless env sets
// DATABASE_URL.
func startProgram(t *testing.T, env map[string]string, args ...string) *run {
	t.Helper()
	all := map[string]string{}
	if _, given := env["DATABASE_URL"]; !given {
		all["DATABASE_URL"] = pgtest.NewMigratedDatabaseURL(t)
	}
	maps.Copy(all, env)
	r := &run{done: make(chan struct{})}
	cmd := allinone.NewCommand(allinone.Env{
		Stdout: &r.stdout, Stderr: &r.stderr,
		Size:      func() (width, height int) { return 120, 40 },
		LookupEnv: func(name string) (string, bool) { value, ok := all[name]; return value, ok },
	})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(append([]string{
		"--listen-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0", "--console-listen-address", "127.0.0.1:0",
		"--log-format", "json",
	}, args...))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	go func() {
		defer close(r.done)
		r.err = cmd.ExecuteContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
		if t.Failed() {
			t.Logf("it said:\n%s%s%v", r.stdout.String(), r.stderr.String(), r.err)
		}
	})
	return r
}

// waitForExit waits for the end of the run.
func (r *run) waitForExit(t *testing.T) error {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		t.Fatalf("still running after %s", patience)
	}
	return r.err
}

// stopProgram ends the run as a signal does.
func (r *run) stopProgram(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := r.waitForExit(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}

// waitForLine waits for a log line with a message and fields.
func (r *run) waitForLine(t *testing.T, msg string, fields map[string]any) map[string]any {
	t.Helper()
	var found map[string]any
	eventually(t, func() error {
		if lines := r.outputLines(msg, fields); len(lines) > 0 {
			found = lines[0]
			return nil
		}
		select {
		case <-r.done:
			t.Fatalf("it ended before it said %q: %v", msg, r.err)
		default:
		}
		return fmt.Errorf("it has not said %q", msg)
	})
	return found
}

// outputLines are the log lines so far with a message and fields.
func (r *run) outputLines(msg string, fields map[string]any) []map[string]any {
	var out []map[string]any
	for text := range strings.Lines(r.stderr.String()) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) != nil || line["msg"] != msg {
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(fields)), func(key string) bool { return line[key] != fields[key] }) {
			out = append(out, line)
		}
	}
	return out
}

func textOf(line map[string]any, key string) string {
	s, _ := line[key].(string)
	return s
}

// newClient is a client of the run's fleet API.
func (r *run) newClient(t *testing.T) *fleetclient.Client {
	t.Helper()
	c, err := fleetclient.New(fleetclient.Config{Endpoint: textOf(r.waitForLine(t, "fleet API ready", nil), "url")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

// healthAddress is where the run serves health and metrics.
func (r *run) healthAddress(t *testing.T) string {
	t.Helper()
	return textOf(r.waitForLine(t, "listening", map[string]any{"server": "metrics and health"}), "addr")
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %v", patience, err)
		case <-ticker.C:
		}
	}
}

// sendRequest sends a request and gives the status and the body of the answer.
func sendRequest(t *testing.T, method, url, contentType string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}
