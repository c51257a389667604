package faults

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A network connects a client, a proxy and servers in memory, so that the tests need no real time.
type network struct {
	proxy  *Proxy
	ctx    context.Context //nolint:containedctx // of one test
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	down    map[string]bool
	sick    error // of the probe of server a
	dialed  []string
	servers []net.Conn
}

// Accept, Close and Addr make a network the listener of its proxy.
func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.accept:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

// dialServer connects to a server that sends back what it gets.
func (n *network) dialServer(_ context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down[addr] {
		return nil, errors.New("connection refused")
	}
	n.dialed = append(n.dialed, addr)
	near, far := net.Pipe()
	n.servers = append(n.servers, far)
	go func() {
		_, _ = io.Copy(far, far) // until the connection ends
		_ = far.Close()
	}()
	return near, nil
}

func (n *network) probeServer(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sick
}

// set changes the servers: whether b refuses connections, and the error of the probe of a.
func (n *network) set(down bool, sick error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down["b"], n.sick = down, sick
}

// takeDialed returns the addresses of the servers that got connections since the last call.
func (n *network) takeDialed() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.dialed
	n.dialed = nil
	slices.Sort(list)
	return list
}

func (n *network) connect() net.Conn {
	near, far := net.Pipe()
	n.accept <- far
	return near
}

// newNetwork starts a proxy in front of servers. It must be called in a bubble.
func newNetwork(t *testing.T, backends ...*Backend) *network {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	n := &network{ctx: ctx, accept: make(chan net.Conn), closed: make(chan struct{}), down: map[string]bool{}}
	n.proxy = &Proxy{Name: "link", listener: n, dial: n.dialServer, backends: backends, open: map[net.Conn]bool{}}
	n.proxy.start(ctx)
	t.Cleanup(func() {
		cancel()
		n.proxy.Close()
	})
	return n
}

// disturb begins a fault, and returns a function that waits for its end.
func (n *network) disturb(f Fault) (wait func()) {
	done := make(chan error)
	go func() { done <- n.proxy.Disturb(n.ctx, f) }()
	synctest.Wait()
	return func() { <-done }
}

// wantEcho sends data and fails the test unless it comes back. It returns how long that takes.
func wantEcho(t *testing.T, c net.Conn, size int) time.Duration {
	t.Helper()
	began := time.Now()
	data := bytes.Repeat([]byte{'x'}, size)
	go func() { _, _ = c.Write(data) }() // the read sees an error
	got := make([]byte, size)
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("the connection transports nothing: %v", err)
	}
	return time.Since(began)
}

func wantClosed(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("Read() gives %v, want the end of the connection", err)
	}
}

// TestProxyCutsConnections holds that a cut breaks all connections and refuses new ones, and that new ones work
// afterwards.
func TestProxyCutsConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, &Backend{Addr: "a"})
		before := n.connect()
		wantEcho(t, before, 100)
		wait := n.disturb(Fault{Kind: Cut, Lasts: 10 * time.Second})
		wantClosed(t, before)
		wantClosed(t, n.connect())
		began := time.Now()
		wait()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the cut lasts %s", took)
		}
		wantEcho(t, n.connect(), 100)
	})
}

// TestProxyLeavesConnectionsHalfOpen holds that connections stay open and transport nothing, in both directions, that new ones
// work, and that the end of one side still ends the other.
func TestProxyLeavesConnectionsHalfOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, &Backend{Addr: "a"})
		c := n.connect()
		wantEcho(t, c, 100)
		n.disturb(Fault{Kind: HalfOpen})()
		for range 3 {
			if _, err := c.Write([]byte("into the void")); err != nil {
				t.Fatalf("the connection is closed: %v", err)
			}
			if err := c.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			if count, err := c.Read(make([]byte, 10)); count > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("Read() gives %d bytes, %v, want none for an hour", count, err)
			}
		}
		if _, err := n.servers[0].Write([]byte("from the server")); err != nil {
			t.Errorf("the connection of the server is closed: %v", err)
		}
		wantEcho(t, n.connect(), 100)
		_ = c.Close()
		wantClosed(t, n.servers[0])
	})
}

// TestProxyLimitsRate holds that a connection has the bandwidth of the fault in each direction while it lasts, that
// another one has its own, and that all are fast again afterwards.
func TestProxyLimitsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, size = 8 << 10, 64 << 10
		n := newNetwork(t, &Backend{Addr: "a"})
		c, other := n.connect(), n.connect()
		wait := n.disturb(Fault{Kind: Narrow, Rate: rate, Lasts: time.Minute})
		took := make(chan time.Duration)
		go func() { took <- wantEcho(t, other, size) }()
		for _, got := range []time.Duration{wantEcho(t, c, size), <-took} {
			// One direction takes this. Data returns while the rest is on its way.
			if least := size / rate * time.Second; got < least || got > 2*least {
				t.Errorf("%d bytes at %d bytes per second take %s", size, rate, got)
			}
		}
		wait()
		if took := wantEcho(t, c, size); took != 0 {
			t.Errorf("afterwards %d bytes take %s", size, took)
		}
	})
}

// TestProxyDelaysData holds that each direction delays data while the fault lasts.
func TestProxyDelaysData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, &Backend{Addr: "a"})
		c := n.connect()
		wait := n.disturb(Fault{Kind: Slow, Delay: 300 * time.Millisecond, Lasts: 5 * time.Second})
		if took := wantEcho(t, c, 100); took != 600*time.Millisecond {
			t.Errorf("data returns after %s, want twice the delay", took)
		}
		wait()
		if took := wantEcho(t, c, 100); took != 0 {
			t.Errorf("afterwards data returns after %s", took)
		}
	})
}

// TestProxyFaultEndsWithItsContext holds that the end of the schedule ends a fault early.
func TestProxyFaultEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{Cut, Slow, Narrow} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, &Backend{Addr: "a"})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if err := n.proxy.Disturb(ctx, Fault{Kind: kind, Lasts: time.Hour, Delay: time.Hour, Rate: 1}); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("%s lasts %s", kind, took)
			}
			if took := wantEcho(t, n.connect(), 100); took != 0 {
				t.Errorf("after %s, data returns after %s", kind, took)
			}
		})
	}
}

// TestProxyBalances holds that connections take turns among the backends, skip those that refuse, and avoid those
// whose probe fails, until it succeeds again.
func TestProxyBalances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sick := errors.New("not ready")
		a := &Backend{Addr: "a"}
		n := newNetwork(t, a, &Backend{Addr: "b"})
		a.Probe = n.probeServer // the first probe is later
		want := func(addrs ...string) {
			t.Helper()
			for range addrs {
				wantEcho(t, n.connect(), 1)
			}
			if got := n.takeDialed(); !slices.Equal(got, addrs) {
				t.Errorf("connected to %q, want %q", got, addrs)
			}
		}
		want("a", "a", "b", "b")
		n.set(true, nil)
		want("a", "a")
		n.set(false, sick)
		time.Sleep((failureThreshold - 1) * probePeriod)
		synctest.Wait()
		want("a", "b")
		time.Sleep(probePeriod)
		synctest.Wait()
		want("b", "b")
		n.set(true, sick)
		want("a") // better than none
		n.set(false, nil)
		time.Sleep(probePeriod)
		synctest.Wait()
		want("a", "b")
		n.proxy.SetBackend("c")
		want("c")
	})
}

// TestProxyListens holds that NewProxy forwards connections of a real network.
func TestProxyListens(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c) // until the connection ends
			_ = c.Close()
		}
	}()
	p, err := NewProxy(ctx, "link", &Backend{Addr: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	wantEcho(t, c, 100)
	cancel()
	p.Close()
	wantClosed(t, c)
	_ = l.Close()
}
