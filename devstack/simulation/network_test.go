package simulation

import (
	"context"
	"errors"
	"net"
	"sync"
)

var errRefused = errors.New("connection refused")

// A Network connects clients with one server, in memory. It implements the server's listener.
type Network struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	conns map[net.Conn]struct{} // the clients' ends
	down  bool
}

// NewNetwork returns a network without connections.
func NewNetwork() *Network {
	return &Network{accept: make(chan net.Conn), closed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
}

// Dial connects a client.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	down := n.down
	n.mu.Unlock()
	if down {
		return nil, errRefused
	}
	client, server := net.Pipe()
	select {
	case n.accept <- server:
	case <-n.closed:
		return nil, errRefused
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &conn{Conn: client, net: n}
	n.conns[c] = struct{}{}
	return c, nil
}

// SetDown makes the server unreachable or reachable. Going down closes all connections.
func (n *Network) SetDown(down bool) {
	n.mu.Lock()
	n.down = down
	n.mu.Unlock()
	if down {
		n.CutConnections()
	}
}

// CutConnections closes all connections.
func (n *Network) CutConnections() {
	n.mu.Lock()
	conns := make([]net.Conn, 0, len(n.conns))
	for c := range n.conns {
		conns = append(conns, c)
	}
	n.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.accept:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *Network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr implements net.Listener.
func (n *Network) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }

// A conn is a client's end, which the network tracks while it is open.
type conn struct {
	net.Conn
	net *Network
}

// Close closes the connection.
func (c *conn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}
