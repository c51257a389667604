package kubebedtest

import (
	"context"
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

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetloop/fleetloop/devstack/binaries"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// A Process is one run of the binary of a controller, for tests that stop it, kill it and read its
// output.
type Process struct {
	tb   testing.TB
	cmd  *exec.Cmd
	log  processtest.Buffer
	done chan struct{} // closed when it has ended
}

// StartProcess starts a binary with only the given environment. It is killed at the end of the test; its
// log is shown if the test failed.
func StartProcess(tb testing.TB, binary string, env map[string]string, args ...string) *Process {
	tb.Helper()
	p := &Process{tb: tb, done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(tb.Context()), binary, args...) //nolint:gosec // our own program
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + tb.TempDir()}
	for key, value := range env {
		p.cmd.Env = append(p.cmd.Env, key+"="+value)
	}
	p.cmd.Stderr, p.cmd.Stdout = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is in ProcessState
	}()
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("the controller said:\n%s", p.logTail())
		}
	})
	return p
}

// Kill ends the process as abruptly as a power failure.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

// Stop stops the process and returns its exit code.
func (p *Process) Stop() (exitCode int) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.tb.Fatal(err)
	}
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.tb.Fatalf("the controller does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// Count returns how often the process has logged a text.
func (p *Process) Count(text string) int { return strings.Count(p.log.String(), text) }

// CheckLogged returns an error unless the process has logged a text.
func (p *Process) CheckLogged(text string) error {
	if p.Count(text) == 0 {
		return fmt.Errorf("the controller has not said %q", text)
	}
	return nil
}

func (p *Process) logTail() string {
	const most = 20_000
	text := p.log.String()
	return text[max(0, len(text)-most):]
}

// Address returns the address on which the process listens for a purpose.
func (p *Process) Address(purpose string) (string, error) {
	for text := range strings.Lines(p.log.String()) {
		var line struct {
			Msg, Server, Addr string
		}
		if json.Unmarshal([]byte(text), &line) == nil && line.Msg == "listening" && strings.Contains(line.Server, purpose) {
			return line.Addr, nil
		}
	}
	return "", fmt.Errorf("it does not say where it listens for %s", purpose)
}

// LoggedField returns a field of the first log line with this message.
func (p *Process) LoggedField(message, field string) (string, error) {
	for text := range strings.Lines(p.log.String()) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil && line["msg"] == message {
			return fmt.Sprint(line[field]), nil
		}
	}
	return "", fmt.Errorf("it has not logged %q", message)
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.done }

// WantReady waits until the process is ready.
func (p *Process) WantReady() {
	p.tb.Helper()
	Eventually(p.tb, func(ctx context.Context) error {
		select {
		case <-p.done:
			p.tb.Fatalf("the controller has ended: %s", p.cmd.ProcessState)
		default:
		}
		code, body, err := p.getPath(ctx, "health", "/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("the controller is not ready: %d %s", code, body)
		}
		return err
	})
}

// Metrics returns the process's metrics as it serves them.
func (p *Process) Metrics() string {
	p.tb.Helper()
	_, body, err := p.getPath(p.tb.Context(), "metrics", "/metrics")
	if err != nil {
		p.tb.Fatal(err)
	}
	return body
}

func (p *Process) getPath(ctx context.Context, purpose, path string) (code int, body string, err error) {
	address, err := p.Address(purpose)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), errors.Join(err, resp.Body.Close())
}

// FormatKubeconfig returns a kubeconfig file for a client configuration.
func FormatKubeconfig(tb testing.TB, cfg *rest.Config) string {
	tb.Helper()
	const name = "bed"
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			name: {Token: cfg.BearerToken, ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData},
		},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// BuildBinaries builds binaries of cmd/ into a folder, as they are released.
func BuildBinaries(ctx context.Context, dir string, names ...string) error {
	return binaries.Build(ctx, dir, names...)
}
