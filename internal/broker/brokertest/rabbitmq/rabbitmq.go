// Package rabbitmq starts a private RabbitMQ server for tests and benchmarks. The server has its
// own folder, ports, cookie and port mapper, on the loopback address only. It needs no privileges
// and leaves nothing behind; it ends with the process that started it, even if that is killed.
package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// startBound is the timeout of the server's start. It takes 4 s on an idle machine.
const startBound = 90 * time.Second

// Options configure the server. The zero value is usable.
type Options struct {
	// Bin is the folder with rabbitmq-server and rabbitmqctl. Empty means the environment's
	// RABBITMQ_BIN, else the folder of the distribution's package, else the PATH.
	Bin string
}

// A Server is a RabbitMQ server that is running or was killed.
type Server struct {
	bin, dir string
	port     int
	env      []string
	guard    *exec.Cmd
	pipe     *os.File
}

// Start starts a server and waits until it answers.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Bin == "" {
		opts.Bin, _ = settings.OSEnv("RABBITMQ_BIN")
	}
	bin, err := findProgramFolder(opts.Bin)
	if err != nil {
		return nil, err
	}
	ports, err := findFreePorts(ctx, 3)
	if err != nil {
		return nil, fmt.Errorf("start rabbitmq: %w", err)
	}
	dir, err := os.MkdirTemp("", "rabbitmq-") // the watchdog removes it
	if err != nil {
		return nil, fmt.Errorf("start rabbitmq: %w", err)
	}
	s := &Server{bin: bin, dir: dir, port: ports[0]}
	if err := s.writeConfigAndSetEnv(ports); err != nil {
		return nil, fmt.Errorf("start rabbitmq: %w", errors.Join(err, os.RemoveAll(dir)))
	}
	if err := s.startWatchdog(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("start rabbitmq: %w", errors.Join(err, os.RemoveAll(dir)))
	}
	if err := s.Restart(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// findProgramFolder returns the folder of the server's programs.
func findProgramFolder(configured string) (folder string, err error) {
	const advice = "rabbitmq-server not found: run make setup, run apt-get install rabbitmq-server, or set RABBITMQ_BIN to its directory"
	for _, dir := range []string{configured, "/usr/lib/rabbitmq/bin"} {
		if dir == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "rabbitmq-server")); err == nil {
			return dir, nil
		}
		if dir == configured {
			return "", fmt.Errorf("%s (%q does not)", advice, configured)
		}
	}
	path, err := exec.LookPath("rabbitmq-server")
	if err != nil {
		return "", errors.New(advice)
	}
	return filepath.Dir(path), nil
}

// findFreePorts returns ports that are free at present.
func findFreePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // all at the end, so that the ports differ
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("listen: unexpected address %v", l.Addr())
		}
		ports = append(ports, addr.Port)
	}
	return ports, nil
}

// writeConfigAndSetEnv writes the configuration and the environment.
func (s *Server) writeConfigAndSetEnv(ports []int) error {
	files := map[string]string{
		"rabbitmq.conf": fmt.Sprintf("listeners.tcp.1 = 127.0.0.1:%d\nlog.console = true\nlog.file = false\n", ports[0]),
		"plugins":       "[].\n",
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	s.env = append(os.Environ(),
		"HOME="+s.dir,
		"RABBITMQ_NODENAME=bed"+strconv.Itoa(ports[0])+"@localhost",
		"RABBITMQ_CONFIG_FILE="+filepath.Join(s.dir, "rabbitmq"),
		"RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_MNESIA_BASE="+filepath.Join(s.dir, "db"),
		"RABBITMQ_LOG_BASE="+filepath.Join(s.dir, "log"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(s.dir, "plugins"),
		"RABBITMQ_PID_FILE="+s.pidFile(),
		"RABBITMQ_DIST_PORT="+strconv.Itoa(ports[1]),
		"ERL_EPMD_PORT="+strconv.Itoa(ports[2]),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	)
	return nil
}

func (s *Server) pidFile() string { return filepath.Join(s.dir, "pid") }

// startWatchdog starts a shell that waits for the end of its input, which the end of this process
// causes. It then kills the server and its port mapper, and removes the folder.
func (s *Server) startWatchdog(ctx context.Context) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }() // the shell has its own copy
	// The port mapper refuses to stop while the server is registered.
	const script = `cat >/dev/null; kill -9 $(cat "$RABBITMQ_PID_FILE") 2>/dev/null
for i in 1 2 3 4 5 6 7 8 9 10; do epmd -kill 2>/dev/null | grep -q "^Killed$" && break; sleep 0.2; done
rm -rf "$HOME"`
	s.guard = exec.CommandContext(ctx, "/bin/sh", "-c", script)
	s.guard.Env, s.guard.Dir = s.env, "/"
	s.guard.Stdin = read
	s.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal does not reach it
	s.pipe = write
	return s.guard.Start()
}

// Addr returns the listen address of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the URL for clients.
func (s *Server) URL() string { return "amqp://guest:guest@" + s.Addr() + "/" }

// Restart starts the server again after Kill, on the same data.
func (s *Server) Restart(ctx context.Context) error {
	out, err := os.OpenFile(filepath.Join(s.dir, "out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start rabbitmq: %w", err)
	}
	defer func() { _ = out.Close() }()                                                              // the server has its own copy
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(s.bin, "rabbitmq-server")) //nolint:gosec // find chose it
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.env, s.dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start rabbitmq: %w", err)
	}
	err = backoff.Retry(
		ctx,
		backoff.Policy{Initial: 50 * time.Millisecond, Max: 200 * time.Millisecond, MaxElapsed: startBound},
		s.checkAMQPHandshake,
	)
	if err != nil {
		log, _ := os.ReadFile(out.Name()) // it only improves the error
		return fmt.Errorf("start rabbitmq: no response on %s within %s: %w; output:\n%s", s.Addr(), startBound, err, lastBytes(log, 2000))
	}
	return nil
}

func lastBytes(b []byte, n int) []byte { return bytes.TrimSpace(b[max(0, len(b)-n):]) }

// checkAMQPHandshake checks that the server speaks AMQP.
func (s *Server) checkAMQPHandshake(ctx context.Context) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 8))
	return err
}

// Kill ends the server at once, as a power failure would.
func (s *Server) Kill() error {
	text, err := os.ReadFile(s.pidFile())
	if err != nil {
		return fmt.Errorf("kill rabbitmq: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("kill rabbitmq: %w", err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill rabbitmq: %w", err)
	}
	return nil
}

// Stop stops the server permanently.
func (s *Server) Stop() {
	_ = s.pipe.Close() // which ends the watchdog's wait
	_ = s.guard.Wait() // its exit code is irrelevant
}

// RunRabbitMQCtl runs rabbitmqctl.
func (s *Server) RunRabbitMQCtl(ctx context.Context, args ...string) (output string, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "rabbitmqctl"), args...) //nolint:gosec // a test's arguments
	cmd.Env, cmd.Dir = s.env, s.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w: %s", strings.Join(args, " "), err, lastBytes(out, 2000))
	}
	return string(out), nil
}
