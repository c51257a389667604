package clusterworker

import (
	"context"
	"encoding/json"
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

// A process is one life of a worker.
type process struct {
	name string
	cmd  *exec.Cmd
	log  processtest.Buffer
	done chan struct{} // closed when it has ended
}

// launch starts a binary with nothing in its environment but what is given.
func launch(path, name, home string, env map[string]string) (*process, error) {
	p := &process{name: name, done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), path)
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	for key, value := range env {
		p.cmd.Env = append(p.cmd.Env, key+"="+value)
	}
	p.cmd.Stderr, p.cmd.Stdout = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is in ProcessState
	}()
	return p, nil
}

// kill ends the process as a power failure would, stopped or not.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// running is an error if the process has ended.
func (p *process) running() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s has ended: %s", p.name, p.cmd.ProcessState)
	default:
		return nil
	}
}

// health asks an endpoint of the process for its health.
func (p *process) health(t *testing.T, path string) (status int, body string) {
	t.Helper()
	for _, l := range p.find("listening") {
		if addr, _ := l["addr"].(string); l["server"] == "metrics and health" {
			return get(t, "http://"+addr+path)
		}
	}
	return 0, p.name + " does not say where it listens"
}

// wantHealth waits until an endpoint answers with a status.
func (p *process) wantHealth(t *testing.T, path string, want int, because ...string) {
	t.Helper()
	err := poll(t.Context(), func() error {
		if err := p.running(); err != nil {
			t.Fatal(err)
		}
		status, body := p.health(t, path)
		if status != want {
			return fmt.Errorf("%s of %s gives %d %s, want %d", path, p.name, status, body, want)
		}
		for _, text := range because {
			if !strings.Contains(body, text) {
				return fmt.Errorf("%s of %s lacks %q: %s", path, p.name, text, body)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// get asks for a page and gives status 0 if there is no answer.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
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

// find gives the lines of the log with a message.
func (p *process) find(msg string) []map[string]any {
	var out []map[string]any
	for text := range strings.Lines(p.log.String()) {
		var fields map[string]any
		if strings.HasSuffix(text, "\n") && json.Unmarshal([]byte(text), &fields) == nil && fields["msg"] == msg {
			out = append(out, fields)
		}
	}
	return out
}

// wantLine waits for a line of the log.
func (p *process) wantLine(t *testing.T, msg string) {
	t.Helper()
	err := poll(t.Context(), func() error {
		if len(p.find(msg)) == 0 {
			return fmt.Errorf("the log of %s lacks %q", p.name, msg)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// about are the last lines of the log that mention a text.
func (p *process) about(text string) string {
	const most = 40
	var found []string
	for l := range strings.Lines(p.log.String()) {
		if strings.Contains(l, text) {
			found = append(found, l)
		}
	}
	return strings.Join(found[max(0, len(found)-most):], "")
}

// tail is the end of the log.
func (p *process) tail() string {
	const most = 4000
	text := p.log.String()
	return text[max(0, len(text)-most):]
}
