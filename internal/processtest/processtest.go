// Package processtest runs the command line of a binary within a test, and checks its output and its
// endpoints. Its Buffer stores log output, for tests that read it while it is written.
package processtest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// Patience is the timeout for anything that should happen soon.
const Patience = time.Minute

// RunningCommand is one call of a command line.
type RunningCommand struct {
	Stdout, Stderr Buffer
	// Cancel has the effect of a signal.
	Cancel context.CancelFunc
	// Done is closed when the call has ended. Err is its result after that.
	Done chan struct{}
	Err  error
}

// Binary returns the command line of a binary.
type Binary func(stdout, stderr io.Writer, env func(string) (string, bool)) *cobra.Command

// StartCommandInGoroutine calls a command line on free addresses, with only the given environment variables. It ends
// with the test at the latest.
func StartCommandInGoroutine(t *testing.T, binary Binary, env map[string]string, args ...string) *RunningCommand {
	t.Helper()
	all := map[string]string{
		"LISTEN_ADDRESS": "127.0.0.1:0", "METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0",
	}
	maps.Copy(all, env)
	c := &RunningCommand{Done: make(chan struct{})}
	cmd := binary(&c.Stdout, &c.Stderr, func(name string) (string, bool) {
		value, ok := all[name]
		return value, ok
	})
	cmd.SetArgs(args)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c.Cancel = cancel
	go func() {
		defer close(c.Done)
		c.Err = cmd.ExecuteContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-c.Done
		if t.Failed() {
			t.Logf("%v: %v\n%s%s", args, c.Err, c.Stdout.String(), c.Stderr.String())
		}
	})
	return c
}

// WaitUntilEnded waits for the end of the call and returns its error.
func (c *RunningCommand) WaitUntilEnded(t *testing.T) error {
	t.Helper()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case <-c.Done:
	case <-timer.C:
		t.Fatalf("still running after %s", Patience)
	}
	return c.Err
}

// WaitForURLInLog returns the address of an endpoint from the log.
func (c *RunningCommand) WaitForURLInLog(t *testing.T, server string) string {
	t.Helper()
	mark := `"server":"` + server + `","addr":"`
	var addr string
	Eventually(t, func() error {
		_, rest, ok := strings.Cut(c.Stderr.String(), mark)
		if !ok {
			return fmt.Errorf("no listen address for %s in the log", server)
		}
		addr, _, _ = strings.Cut(rest, `"`)
		return nil
	})
	return "http://" + addr
}

// EventuallyStatus waits until a page has a status.
func EventuallyStatus(t *testing.T, url string, want int) (body string) {
	t.Helper()
	Eventually(t, func() error {
		status, answer := SendRequest(t, http.MethodGet, url, "")
		if status != want {
			return fmt.Errorf("%s = %d, want %d: %s", url, status, want, answer)
		}
		body = answer
		return nil
	})
	return body
}

// Eventually repeats a check until it returns no error.
func Eventually(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %v", Patience, err)
		case <-ticker.C:
		}
	}
}

// SendRequest sends a request and returns the response.
func SendRequest(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
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
