package brokertest_test

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newEcho returns a proxy of an echo server.
func newEcho(t *testing.T) *brokertest.FaultProxy {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	p, err := brokertest.StartFaultProxy(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		_ = l.Close()
		<-done
	})
	return p
}

type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, p *brokertest.FaultProxy) client {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return client{c, bufio.NewReader(c)}
}

// ask sends a line and waits for its echo.
func (c client) ask(bound time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return err
	}
	_, err := c.r.ReadString('\n')
	return err
}

func TestPassesBytes(t *testing.T) {
	c := dial(t, newEcho(t))
	for range 3 {
		if err := c.ask(5 * time.Second); err != nil {
			t.Fatalf("ask: %v", err)
		}
	}
}

func TestCut(t *testing.T) {
	p := newEcho(t)
	c := dial(t, p)
	if err := c.ask(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	p.ResetConnections()
	if err := c.ask(5 * time.Second); err == nil {
		t.Error("the connection works after Cut, want an error")
	}
	if err := dial(t, p).ask(5 * time.Second); err != nil {
		t.Errorf("a new connection after Cut: %v", err)
	}
}

func TestRefuse(t *testing.T) {
	p := newEcho(t)
	p.SetRefuseConnections(true)
	if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.Addr()); err == nil {
		if err := (client{c, bufio.NewReader(c)}).ask(5 * time.Second); err == nil {
			t.Error("a connection works under Refuse, want an error")
		}
		_ = c.Close()
	}
	p.SetRefuseConnections(false)
	if err := dial(t, p).ask(5 * time.Second); err != nil {
		t.Errorf("after Refuse: %v", err)
	}
}

func TestPause(t *testing.T) {
	p := newEcho(t)
	c := dial(t, p)
	p.PauseTraffic()
	if err := c.ask(50 * time.Millisecond); err == nil {
		t.Fatal("bytes pass under Pause")
	}
	p.ResumeTraffic()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.r.ReadString('\n'); err != nil {
		t.Errorf("what waited did not pass after Resume: %v", err)
	}
}

func TestDelay(t *testing.T) {
	p := newEcho(t)
	c := dial(t, p)
	p.SetLatency(30 * time.Millisecond)
	begin := time.Now()
	if err := c.ask(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 60*time.Millisecond {
		t.Errorf("there and back took %s, want 60ms or more", took)
	}
}
