package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/processtest"
)

// A process is one of the binaries at work.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *logbook
	done chan struct{} // closed when it has ended
}

// start starts a binary with nothing in its environment but what is given. It
// is killed when the test ends; its log is shown if the test failed.
func start(t *testing.T, name string, env map[string]string, args ...string) *process {
	t.Helper()
	return startProgram(t, name, binary(t, name), env, args...)
}

// startProgram is start for a program at a path.
func startProgram(t *testing.T, name, path string, env map[string]string, args ...string) *process {
	t.Helper()
	p := &process{name: name, log: &logbook{}, done: make(chan struct{})}
	p.cmd = exec.CommandContext(t.Context(), path, args...)
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	for key, value := range env {
		p.cmd.Env = append(p.cmd.Env, key+"="+value)
	}
	p.cmd.Stderr, p.cmd.Stdout = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
		if t.Failed() {
			t.Logf("%s %s said:\n%s", p.name, strings.Join(args, " "), p.log.tail())
		}
	})
	return p
}

// kill ends the process as a power failure would.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
}

// stop sends a signal, waits for the end no longer than a bound, and gives
// the exit code.
func (p *process) stop(t *testing.T, sig os.Signal, bound time.Duration) int {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("signal %s: %v", p.name, err)
	}
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		t.Fatalf("%s did not end within %s of %s", p.name, bound, sig)
	}
	return p.cmd.ProcessState.ExitCode()
}

// wantRunning fails if the process has ended.
func (p *process) wantRunning(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
		t.Fatalf("%s has ended: %s", p.name, p.cmd.ProcessState)
	default:
	}
}

// addr is where the process listens for something, by its own account.
func (p *process) addr(t *testing.T, purpose string) string {
	t.Helper()
	var addr string
	eventually(t, patience, func() error {
		for _, line := range p.log.lines() {
			if line["msg"] == "listening" && line["server"] == purpose {
				addr, _ = line["addr"].(string)
				return nil
			}
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended before it listened for %s: %s", p.name, purpose, p.cmd.ProcessState)
		default:
		}
		return fmt.Errorf("%s does not say where it listens for %s", p.name, purpose)
	})
	return addr
}

// wantReady waits until the process is ready.
func (p *process) wantReady(t *testing.T) {
	t.Helper()
	url := "http://" + p.addr(t, "health") + "/readyz"
	eventually(t, patience, func() error {
		p.wantRunning(t)
		if code, body := get(t, url); code != http.StatusOK {
			return fmt.Errorf("%s is not ready: %d %s", p.name, code, body)
		}
		return nil
	})
}

// wantUnready waits until the process is not ready and says why, and checks
// that it lives all the same.
func (p *process) wantUnready(t *testing.T, because ...string) {
	t.Helper()
	url := "http://" + p.addr(t, "health")
	eventually(t, patience, func() error {
		p.wantRunning(t)
		code, body := get(t, url+"/readyz")
		if code != http.StatusServiceUnavailable {
			return fmt.Errorf("/readyz gives %d, want %d", code, http.StatusServiceUnavailable)
		}
		for _, want := range because {
			if !strings.Contains(body, want) {
				return fmt.Errorf("/readyz lacks %q: %s", want, body)
			}
		}
		return nil
	})
	if code, body := get(t, url+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz gives %d %s although the process itself is in order", code, body)
	}
}

// get asks for a page and gives status 0 if there is no answer.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// A logbook keeps what a process writes.
type logbook struct{ processtest.Buffer }

// mentions reports whether the log holds a text.
func (l *logbook) mentions(text string) error {
	if !strings.Contains(l.String(), text) {
		return fmt.Errorf("the log lacks %q", text)
	}
	return nil
}

// tail is the end of the log.
func (l *logbook) tail() string {
	const most = 6000
	text := l.String()
	return text[max(0, len(text)-most):]
}

// lines are the complete lines that are JSON.
func (l *logbook) lines() []map[string]any {
	var out []map[string]any
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), &fields) == nil {
			out = append(out, fields)
		}
	}
	return out
}

// find gives the lines with a message.
func (l *logbook) find(msg string) []map[string]any {
	var out []map[string]any
	for _, line := range l.lines() {
		if line["msg"] == msg {
			out = append(out, line)
		}
	}
	return out
}

// wantLine waits for a line with a message and some fields.
func (p *process) wantLine(t *testing.T, msg string, fields map[string]any) {
	t.Helper()
	eventually(t, patience, func() error {
		for _, line := range p.log.find(msg) {
			matches := true
			for key, value := range fields {
				matches = matches && line[key] == value
			}
			if matches {
				return nil
			}
		}
		return errors.New("no log line " + msg)
	})
}
