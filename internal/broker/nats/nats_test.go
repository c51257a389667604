package nats_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// serveArg makes the test binary an embedded server in a separate process, which a test can kill.
const serveArg = "serve-embedded"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == serveArg {
		serve(os.Args[2], os.Args[3])
		return
	}
	goleak.VerifyTestMain(m)
}

// serve runs an embedded server until its standard input ends.
func serve(dir, port string) {
	n, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	b, err := natsserver.NewBrokerStartingServerOnRun(natsserver.Config{Dir: dir, Port: n}, nats.Config{}, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with our parent
		cancel()
	}()
	if err := b.Run(ctx); err != nil {
		panic(err)
	}
}

// A process is a server that can be killed.
type process struct {
	dir, addr string

	mu    sync.Mutex
	cmd   *exec.Cmd
	stdin io.Closer
}

func newProcess(t *testing.T) *process {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{dir: t.TempDir(), addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p.start(t)
	t.Cleanup(func() { p.kill(t) })
	return p
}

func (p *process) start(t *testing.T) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Error(err)
		return
	}
	_, port, _ := net.SplitHostPort(p.addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), exe, serveArg, p.dir, port)
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Error(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	brokertest.Eventually(t, "the server", func() error {
		c, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", p.addr)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if line, err := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "INFO") {
			return fmt.Errorf("it said %q: %w", line, err)
		}
		return nil
	})
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may be gone already
	_ = p.cmd.Wait()         // its state is that it was killed
	_ = p.stdin.Close()
	p.cmd = nil
}

// newProxy returns a proxy for addr until the end of the test.
func newProxy(t *testing.T, addr string) *brokertest.FaultProxy {
	t.Helper()
	proxy, err := brokertest.StartFaultProxy(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

func newBroker(t *testing.T, cfg nats.Config) *nats.Broker {
	t.Helper()
	b, err := nats.New(cfg, brokertest.NewTestLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSuite(t *testing.T) {
	server := newProcess(t)
	n := 0
	brokertest.Run(t, func(t *testing.T) *brokertest.Bed {
		t.Helper()
		n++
		proxy := newProxy(t, server.addr)
		cfg := nats.Config{
			URL:             settings.Secret("nats://" + proxy.Addr()),
			Topic:           fmt.Sprintf("topic-%d", n),
			StopTimeout:     brokertest.StopTimeout,
			AckWait:         2 * time.Second,
			RedeliveryDelay: 50 * time.Millisecond,
		}
		return &brokertest.Bed{
			Open: func(t *testing.T, mode cloudevent.Mode) brokertest.Broker {
				t.Helper()
				cfg := cfg
				cfg.Mode = mode
				return newBroker(t, cfg)
			},
			OpenBounded: func(t *testing.T, n int) brokertest.Broker {
				t.Helper()
				cfg := cfg
				cfg.MaxMessages = int64(n)
				return newBroker(t, cfg)
			},
			Proxy:   proxy,
			Kill:    server.kill,
			Restart: server.start,
		}
	})
}
