package faults

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// Settings of probes: the chart's period, and the defaults of Kubernetes.
const (
	probePeriod      = 10 * time.Second
	failureThreshold = 3
	dialTimeout      = 2 * time.Second
)

// A Proxy forwards TCP connections to the first of its backends that accepts. It takes turns among
// backends whose probes succeed, as a Service does. Faults cut, delay, narrow or silence its connections.
type Proxy struct {
	Name string

	listener net.Listener
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	serving  sync.WaitGroup

	mu       sync.Mutex
	backends []*Backend
	next     int
	cut      bool
	delay    time.Duration
	rate     int               // of each connection, in bytes per second; 0 means unlimited
	open     map[net.Conn]bool // false if the connection drops all data
}

// A Backend is one server. A nil probe always succeeds.
type Backend struct {
	Addr  string
	Probe func(context.Context) error

	failures int // consecutive failures of the probe
}

// NewProxy returns a proxy that listens on a free port of the loopback interface.
func NewProxy(ctx context.Context, name string, backends ...*Backend) (*Proxy, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Name: name, listener: l, dial: (&net.Dialer{Timeout: dialTimeout}).DialContext, backends: backends, open: map[net.Conn]bool{}}
	p.start(ctx)
	return p, nil
}

func (p *Proxy) start(ctx context.Context) {
	p.serving.Go(func() { p.serve(ctx) })
	p.serving.Go(func() { p.probeBackends(ctx) })
}

// Addr returns the host and the port of the listener.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetBackend replaces the only backend.
func (p *Proxy) SetBackend(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backends = []*Backend{{Addr: addr}}
}

// SetCut breaks all connections, and refuses new ones while cut is true.
func (p *Proxy) SetCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		for c := range p.open {
			_ = c.Close() // both directions end
		}
	}
}

// SetDelay delays each piece of data.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// SetRate limits the data of each connection, in bytes per second.
func (p *Proxy) SetRate(rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = rate
}

// DropDataOfOpenConns lets all connections drop their data and stay open, as after the loss of a route or of the
// state of a firewall. New connections work. Only the end of one side closes the other.
func (p *Proxy) DropDataOfOpenConns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		p.open[c] = false
	}
}

// transit returns how long n bytes of a connection take, and whether they arrive.
func (p *Proxy) transit(from net.Conn, n int) (delay time.Duration, arrives bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay = p.delay
	if p.rate > 0 {
		delay += time.Duration(n) * time.Second / time.Duration(p.rate)
	}
	return delay, p.open[from]
}

// Close ends the listener and all connections. The context of NewProxy must have ended.
func (p *Proxy) Close() {
	_ = p.listener.Close() // nothing was written
	p.SetCut(true)
	p.serving.Wait()
}

func (p *Proxy) serve(ctx context.Context) {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if backoff.Sleep(ctx, dialTimeout) != nil {
				return
			}
			continue
		}
		p.serving.Go(func() { p.forward(ctx, conn) })
	}
}

// probeBackends probes the backends as the kubelet does.
func (p *Proxy) probeBackends(ctx context.Context) {
	for backoff.Sleep(ctx, probePeriod) == nil {
		p.mu.Lock()
		list := p.backends
		p.mu.Unlock()
		for _, b := range list {
			if b.Probe == nil {
				continue
			}
			err := b.Probe(ctx)
			p.mu.Lock()
			if b.failures++; err == nil {
				b.failures = 0
			}
			p.mu.Unlock()
		}
	}
}

// dialFirstReachableBackend connects to the next backend, and skips those that refuse.
func (p *Proxy) dialFirstReachableBackend(ctx context.Context) net.Conn {
	p.mu.Lock()
	p.next++
	var ready, others []string
	for i := range p.backends {
		b := p.backends[(p.next+i)%len(p.backends)]
		if b.failures < failureThreshold {
			ready = append(ready, b.Addr)
		} else {
			others = append(others, b.Addr)
		}
	}
	p.mu.Unlock()
	for _, addr := range append(ready, others...) {
		if conn, err := p.dial(ctx, "tcp", addr); err == nil {
			return conn
		}
	}
	return nil
}

func (p *Proxy) forward(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }() // the other side has closed it
	p.mu.Lock()
	cut := p.cut
	p.mu.Unlock()
	if cut {
		return
	}
	server := p.dialFirstReachableBackend(ctx)
	if server == nil {
		return
	}
	p.register(client, server)
	defer p.closeAndUnregister(client, server)
	var copying sync.WaitGroup
	copying.Go(func() { p.copyData(ctx, server, client) })
	copying.Go(func() { p.copyData(ctx, client, server) })
	copying.Wait()
}

func (p *Proxy) register(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.cut {
			_ = c.Close() // as all others
		}
		p.open[c] = true
	}
}

func (p *Proxy) closeAndUnregister(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // it may be closed
		delete(p.open, c)
	}
}

// copyData copies one direction as the faults allow, and closes both when it ends.
func (p *Proxy) copyData(ctx context.Context, to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			delay, arrives := p.transit(from, n)
			if backoff.Sleep(ctx, delay) != nil {
				return
			}
			if !arrives {
				continue
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Disturb injects a fault into the connections, and ends it when it has lasted or ctx ends.
func (p *Proxy) Disturb(ctx context.Context, f Fault) error {
	begin, end := func() { p.SetCut(true) }, func() { p.SetCut(false) }
	switch f.Kind {
	case HalfOpen:
		p.DropDataOfOpenConns() // the clients end it
		return nil
	case Slow:
		begin, end = func() { p.SetDelay(f.Delay) }, func() { p.SetDelay(0) }
	case Narrow:
		begin, end = func() { p.SetRate(f.Rate) }, func() { p.SetRate(0) }
	}
	return f.Hold(ctx, func() error { begin(); return nil }, func() error { end(); return nil })
}
