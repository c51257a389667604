package adapterapp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/adapter"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// TestURLs checks that a value stays one segment or one parameter of a URL.
func TestURLs(t *testing.T) {
	for name, tc := range map[string]struct{ url, zone, want string }{
		"Segment":   {"/zones/{spec.zone}", "a/b?c#d e", "/zones/a%2Fb%3Fc%23d%20e"},
		"Encoded":   {"/zones/{spec.zone}/x", "%2e%2e", "/zones/%252e%252e/x"},
		"Parameter": {"/zones?name={spec.zone}&all=1", "a&b=c d", "/zones?name=a%26b%3Dc+d&all=1"},
		"Parent":    {"/zones/{spec.zone}", "..", "error"},
		"Half":      {"/zones/.{spec.zone}", ".", "error"},
		"Empty":     {"/zones/{spec.zone}", "", "error"},
	} {
		r := newRunner(t, "action: {http: {url: 'http://h"+tc.url+"'}}\ndelete: {nothing: true}\n", nil)
		var out strings.Builder
		err := r.DryRun(&out, newZone(`{"zone":`+strconv.Quote(tc.zone)+`}`))
		if tc.want == "error" && err == nil || tc.want != "error" && (err != nil || !strings.Contains(out.String(), "url: http://h"+tc.want+"\n")) {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}

// TestStatuses checks which statuses are successes, and which failures are retried.
func TestStatuses(t *testing.T) {
	const success, retry, permanent = "success", "retry", "permanent"
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", other.URL)
		w.Header().Set("Retry-After", "7")
		code, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(code)
	}))
	defer server.Close()
	for name, tc := range map[string]struct {
		code         int
		fields, want string
	}{
		"OK":              {200, "", success},
		"NoContent":       {204, "", success},
		"Redirect":        {302, "", permanent},
		"BadRequest":      {400, "", permanent},
		"NotFound":        {404, "", permanent},
		"Unauthorized":    {401, "", retry},
		"Conflict":        {409, "", retry},
		"TooMany":         {429, "", retry},
		"ServerError":     {503, "", retry},
		"AllowedNotFound": {404, ", success: [2xx, 404]", success},
		"OnlyCreated":     {200, ", success: [201]", retry},
		"OwnClasses":      {400, ", permanent: [422]", retry},
		"OwnPermanent":    {503, ", permanent: [5xx]", permanent},
	} {
		r := newRunner(t, fmt.Sprintf("action: {http: {method: GET, url: '%s/%d'%s}}\ndelete: {nothing: true}\n", server.URL, tc.code, tc.fields), nil)
		_, err := r.Reconcile(t.Context(), newZone(`{}`))
		got := success
		if err != nil {
			got = retry
		}
		if adapter.IsPermanent(err) {
			got = permanent
		}
		if delay, _ := backoff.RetryAfter(err); got != tc.want || err != nil && delay != 7*time.Second {
			t.Errorf("%s: %s after %s (%v), want %s", name, got, delay, err, tc.want)
		}
	}
	if elsewhere != 0 {
		t.Error("a redirect was followed, with the headers")
	}
}

// TestRequestLimits checks the limits on time and size, and that a header cannot hold a line break.
func TestRequestLimits(t *testing.T) {
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-end
		}
		_, _ = w.Write(make([]byte, maxOutput+1))
	}))
	defer server.Close()
	defer close(end)
	for name, tc := range map[string]struct{ fields, want string }{
		"Slow":   {"url: '" + server.URL + "/slow', timeout: 50ms", "the timeout of the request expired"},
		"Large":  {"url: '" + server.URL + "'", "the response exceeds 1048576 bytes"},
		"Header": {"url: '" + server.URL + "', headers: {A: \"cel:'a' + spec.zone\"}", "the header A has a control character"},
		"Down":   {"url: 'http://127.0.0.1:1'", "connection refused"},
	} {
		r := newRunner(t, "action: {http: {"+tc.fields+"}}\ndelete: {nothing: true}\n", nil)
		_, err := r.Reconcile(t.Context(), newZone(`{"zone":"a\r\nB: c"}`))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
}

// TestCommandArguments checks that a value is one argument, never an option, and never read by a shell.
func TestCommandArguments(t *testing.T) {
	run := func(args, zone string) (string, error) {
		r := newRunner(t, "action: {command: {args: ["+args+"], env: {ZONE: 'cel:spec.zone'}}}\nreport: {message: 'cel:result.text'}\ndelete: {nothing: true}\n",
			map[string]string{"FLEET_TOKEN": "s3cret"})
		got, err := r.Reconcile(t.Context(), newZone(`{"zone":`+strconv.Quote(zone)+`}`))
		if err != nil {
			return "", err
		}
		return got.Conditions[0].Message, nil
	}
	if got, err := run("printf, '<%s>', a b, 'cel:spec.zone'", "$(id); `id` 'x' *"); err != nil || got != "<a b><$(id); `id` 'x' *>" {
		t.Errorf("arguments %q, %v", got, err)
	}
	if got, err := run("printf, '%s', 'cel:spec.zone'", "-v"); err == nil || !adapter.IsPermanent(err) {
		t.Errorf("an option was passed: %q, %v", got, err)
	}
	if got, err := run("printf, --, '%s', 'cel:spec.zone'", "-v"); err != nil || got != "-v" {
		t.Errorf("after --: %q, %v", got, err)
	}
	t.Setenv("BROKER_PASSWORD", "s3cret")
	if got, err := run("env", "z"); err != nil || strings.Contains(got, "s3cret") || !strings.Contains(got, "ZONE=z") || !strings.Contains(got, "PATH=") {
		t.Errorf("environment %q, %v", got, err)
	}
}

// TestCommandFailures checks the limits and exit codes of commands.
func TestCommandFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		args, fields, want string
		permanent          bool
	}{
		"Exit":      {"sh, -c, 'echo one >&2; echo two >&2; exit 3'", "", "sh: exit status 3: two", false},
		"Permanent": {"sh, -c, 'exit 3'", ", permanent_exit_codes: [3]", "exit status 3", true},
		"NotFound":  {"/nonexistent/program", "", "run program: fork/exec", false},
		"Slow":      {"sleep, '60'", ", timeout: 50ms", "the timeout of the command expired", false},
		"Large":     {"sh, -c, 'head -c 2000000 /dev/zero'", "", "the output exceeds 1048576 bytes", false},
	} {
		r := newRunner(t, "action: {command: {args: ["+tc.args+"]"+tc.fields+"}}\ndelete: {nothing: true}\n", nil)
		_, err := r.Reconcile(t.Context(), newZone(`{}`))
		if err == nil || !strings.Contains(err.Error(), tc.want) || adapter.IsPermanent(err) != tc.permanent {
			t.Errorf("%s: error %v (permanent %t), want %q", name, err, adapter.IsPermanent(err), tc.want)
		}
	}
}

// TestCommandGroupEnds checks that no process of a command survives it.
func TestCommandGroupEnds(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"AfterTimeout": `trap "" TERM; sleep 600 & echo $! >PID; wait; wait; sleep 600`,
		"AfterExit":    `sleep 600 >/dev/null 2>&1 & echo $! >PID`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pidFile := filepath.Join(t.TempDir(), "pid")
			r := newRunner(t, "action: {command: {args: [sh, -c, '"+strings.ReplaceAll(strings.ReplaceAll(script, "PID", pidFile), "'", "''")+"'], timeout: 500ms}}\ndelete: {nothing: true}\n", nil)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, _ = r.Reconcile(ctx, newZone(`{}`)) // only one of them fails
			text, err := os.ReadFile(pidFile)
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			for syscall.Kill(pid, 0) == nil && !isZombie(pid) {
				if backoff.Sleep(ctx, 10*time.Millisecond) != nil {
					t.Fatalf("the process %d still runs", pid)
				}
			}
		})
	}
}

// isZombie reports whether a process has ended, but its parent has not noticed.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(text), ") Z ")
}
