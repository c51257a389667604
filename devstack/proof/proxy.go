package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Settings of probes: the chart's period, and the defaults of Kubernetes.
const (
	probePeriod      = 10 * time.Second
	failureThreshold = 3
	dialTimeout      = 2 * time.Second
)

// A proxy forwards TCP connections to the first of its backends that accepts. It takes turns among
// backends whose probes succeed, as a Service does. Faults cut, delay, narrow or silence its connections.
type proxy struct {
	name     string
	listener net.Listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	backends []*backend
	next     int
	cut      bool
	delay    time.Duration
	rate     int               // of each connection, in bytes per second; 0 means unlimited
	open     map[net.Conn]bool // false if the connection drops all data
}

// A backend is one server. A nil probe always succeeds.
type backend struct {
	addr  string
	probe func(context.Context) error

	failures int // consecutive failures of the probe
}

// newProxy listens on a free port.
func newProxy(ctx context.Context, name string, backends ...*backend) (*proxy, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{name: name, listener: l, backends: backends, open: map[net.Conn]bool{}}
	p.serving.Go(func() { p.serve(ctx) })
	p.serving.Go(func() { p.probeBackends(ctx) })
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// setBackend replaces the only backend.
func (p *proxy) setBackend(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backends = []*backend{{addr: addr}}
}

// setCut breaks all connections, and refuses new ones while cut is true.
func (p *proxy) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		for c := range p.open {
			_ = c.Close() // both directions end
		}
	}
}

// setDelay delays each piece of data.
func (p *proxy) setDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// setRate limits the data of each connection, in bytes per second.
func (p *proxy) setRate(rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = rate
}

// silence lets all connections drop their data and stay open, as after the loss of a route or of the
// state of a firewall. New connections work. Only the end of one side closes the other.
func (p *proxy) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		p.open[c] = false
	}
}

// transit returns how long n bytes of a connection take, and whether they arrive.
func (p *proxy) transit(from net.Conn, n int) (delay time.Duration, arrives bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay = p.delay
	if p.rate > 0 {
		delay += time.Duration(n) * time.Second / time.Duration(p.rate)
	}
	return delay, p.open[from]
}

// close ends the listener and all connections. The context of newProxy must have ended.
func (p *proxy) close() {
	_ = p.listener.Close() // nothing was written
	p.setCut(true)
	p.serving.Wait()
}

func (p *proxy) serve(ctx context.Context) {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !pauseFor(ctx, dialTimeout) {
				return
			}
			continue
		}
		p.serving.Go(func() { p.forward(ctx, conn) })
	}
}

// probeBackends probes the backends as the kubelet does.
func (p *proxy) probeBackends(ctx context.Context) {
	for pauseFor(ctx, probePeriod) {
		p.mu.Lock()
		list := p.backends
		p.mu.Unlock()
		for _, b := range list {
			if b.probe == nil {
				continue
			}
			err := b.probe(ctx)
			p.mu.Lock()
			if b.failures++; err == nil {
				b.failures = 0
			}
			p.mu.Unlock()
		}
	}
}

// dialBackend connects to the next backend, and skips those that refuse.
func (p *proxy) dialBackend(ctx context.Context) net.Conn {
	p.mu.Lock()
	p.next++
	var ready, others []string
	for i := range p.backends {
		b := p.backends[(p.next+i)%len(p.backends)]
		if b.failures < failureThreshold {
			ready = append(ready, b.addr)
		} else {
			others = append(others, b.addr)
		}
	}
	p.mu.Unlock()
	d := net.Dialer{Timeout: dialTimeout}
	for _, addr := range append(ready, others...) {
		if conn, err := d.DialContext(ctx, "tcp", addr); err == nil {
			return conn
		}
	}
	return nil
}

func (p *proxy) forward(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }() // the other side has closed it
	p.mu.Lock()
	cut := p.cut
	p.mu.Unlock()
	if cut {
		return
	}
	server := p.dialBackend(ctx)
	if server == nil {
		return
	}
	p.register(client, server)
	defer p.unregister(client, server)
	var copying sync.WaitGroup
	copying.Go(func() { p.copyData(ctx, server, client) })
	copying.Go(func() { p.copyData(ctx, client, server) })
	copying.Wait()
}

func (p *proxy) register(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.cut {
			_ = c.Close() // as all others
		}
		p.open[c] = true
	}
}

func (p *proxy) unregister(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // it may be closed
		delete(p.open, c)
	}
}

// copyData copies one direction as the faults allow, and closes both when it ends.
func (p *proxy) copyData(ctx context.Context, to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			delay, arrives := p.transit(from, n)
			if delay > 0 && !pauseFor(ctx, delay) {
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
