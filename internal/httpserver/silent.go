package httpserver

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// silentGrace is how long a connection without any data may delay the shutdown. net/http alone
// would wait five seconds.
const silentGrace = 500 * time.Millisecond

// silentConns holds the connections without any data yet: clients and load balancers open some before
// they need them.
type silentConns struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// trackUntilFirstByte implements the server's ConnState.
func (s *silentConns) trackUntilFirstByte(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateNew {
		delete(s.conns, c)
		return
	}
	if s.conns == nil {
		s.conns = map[net.Conn]struct{}{}
	}
	s.conns[c] = struct{}{}
}

// closeSilentConns closes the current connections.
func (s *silentConns) closeSilentConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close() // no data was sent that could be lost
	}
}
