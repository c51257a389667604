package brokertest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// A FaultProxy listens on the loopback address and forwards bytes to its target.
type FaultProxy struct {
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

// StartFaultProxy listens and forwards connections to target.
func StartFaultProxy(target string) (*FaultProxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start fault proxy: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &FaultProxy{
		listener: listener,
		ctx:      ctx,
		cancel:   cancel,
		target:   target,
		halted:   make(chan struct{}),
		conns:    make(map[net.Conn]struct{}),
	}
	close(p.halted)
	p.work.Go(p.acceptUntilClosed)
	return p, nil
}

// Addr returns the address of the proxy.
func (p *FaultProxy) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and all its connections.
func (p *FaultProxy) Close() {
	p.cancel()
	_ = p.listener.Close() // it is closed only here
	p.ResetConnections()
	p.work.Wait()
}

// ResetConnections resets all open connections.
func (p *FaultProxy) ResetConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		resetConn(c)
		delete(p.conns, c)
	}
}

// SetRefuseConnections sets whether new connections are closed at once.
func (p *FaultProxy) SetRefuseConnections(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// SetLatency sets the latency of every byte, in each direction.
func (p *FaultProxy) SetLatency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// PauseTraffic keeps connections open and stops all bytes, like a hung server.
func (p *FaultProxy) PauseTraffic() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.halted:
		p.halted = make(chan struct{})
	default:
	}
}

// ResumeTraffic ends Pause. The held bytes are forwarded.
func (p *FaultProxy) ResumeTraffic() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.halted:
	default:
		close(p.halted)
	}
}

func (p *FaultProxy) acceptUntilClosed() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serveClient(client) })
	}
}

func (p *FaultProxy) serveClient(client net.Conn) {
	defer p.resetAndForget(client)
	if !p.trackUnlessRefused(client) {
		return
	}
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer p.resetAndForget(server)
	if !p.trackUnlessRefused(server) {
		return
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			defer p.resetAndForget(client)
			defer p.resetAndForget(server)
			defer cancel()
			p.copyDelayed(ctx, way[0], way[1])
		})
	}
	both.Wait()
}

// trackUnlessRefused registers a connection for ResetConnections.
func (p *FaultProxy) trackUnlessRefused(c net.Conn) (accepted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.ctx.Err() != nil {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *FaultProxy) resetAndForget(c net.Conn) {
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
func (p *FaultProxy) copyDelayed(ctx context.Context, from, to net.Conn) {
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
		if !waitOrCancelled(ctx, time.Until(piece.due)) || !p.waitWhilePaused(ctx) {
			return
		}
		if _, err := to.Write(piece.bytes); err != nil {
			return
		}
	}
}

func (p *FaultProxy) currentDelay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latency
}

func waitOrCancelled(ctx context.Context, d time.Duration) (elapsed bool) {
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
func (p *FaultProxy) waitWhilePaused(ctx context.Context) (resumed bool) {
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
