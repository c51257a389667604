package brokertest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// A Proxy listens on the loopback address and forwards bytes to its target.
type Proxy struct {
	listener net.Listener
	work     sync.WaitGroup
	ctx      context.Context //nolint:containedctx // the life of the proxy, which Close ends
	cancel   context.CancelFunc

	mu      sync.Mutex
	target  string
	refuse  bool
	latency time.Duration
	halted  chan struct{} // closed while bytes may pass
	conns   map[net.Conn]struct{}
}

// StartProxy listens and forwards connections to target.
func StartProxy(target string) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start fault proxy: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{listener: listener, ctx: ctx, cancel: cancel, target: target, halted: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	close(p.halted)
	p.work.Go(p.acceptLoop)
	return p, nil
}

// Addr returns the address of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close() // it is closed only here
	p.Cut()
	p.work.Wait()
}

// Cut resets all open connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		resetConn(c)
		delete(p.conns, c)
	}
}

// Refuse sets whether new connections are closed at once.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Delay sets the latency of every byte, in each direction.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// Pause keeps connections open and stops all bytes, like a hung server.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.halted:
		p.halted = make(chan struct{})
	default:
	}
}

// Resume ends Pause. The held bytes are forwarded.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.halted:
	default:
		close(p.halted)
	}
}

func (p *Proxy) acceptLoop() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serveClient(client) })
	}
}

func (p *Proxy) serveClient(client net.Conn) {
	defer p.dropConn(client)
	if !p.trackConn(client) {
		return
	}
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer p.dropConn(server)
	if !p.trackConn(server) {
		return
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			defer p.dropConn(client)
			defer p.dropConn(server)
			defer cancel()
			p.copyDelayed(ctx, way[0], way[1])
		})
	}
	both.Wait()
}

// trackConn registers a connection for Cut.
func (p *Proxy) trackConn(c net.Conn) (accepted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.ctx.Err() != nil {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) dropConn(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	resetConn(c)
	delete(p.conns, c)
}

func resetConn(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it may be closed already
	}
	_ = c.Close() // likewise
}

type piece struct {
	bytes []byte
	due   time.Time
}

// copyDelayed copies from one side to the other. Pieces wait in a queue for their time, so that
// latency does not limit throughput.
func (p *Proxy) copyDelayed(ctx context.Context, from, to net.Conn) {
	pieces := make(chan piece, 1024)
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() {
		defer close(pieces)
		for {
			buf := make([]byte, 16<<10)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case pieces <- piece{buf[:n], time.Now().Add(p.currentDelay())}:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	defer resetConn(from) // so that the reader ends
	for piece := range pieces {
		if !waitFor(ctx, time.Until(piece.due)) || !p.waitWhilePaused(ctx) {
			return
		}
		if _, err := to.Write(piece.bytes); err != nil {
			return
		}
	}
}

func (p *Proxy) currentDelay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latency
}

func waitFor(ctx context.Context, d time.Duration) (elapsed bool) {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// waitWhilePaused waits while the proxy is paused. It returns false if ctx ends.
func (p *Proxy) waitWhilePaused(ctx context.Context) (resumed bool) {
	p.mu.Lock()
	halted := p.halted
	p.mu.Unlock()
	select {
	case <-halted:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
