package httpserver

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// silentGrace is how long a connection on which nothing has come yet may hold
// up the end. Left alone, net/http gives it five seconds.
const silentGrace = 500 * time.Millisecond

// silent are the connections on which nothing has come yet: clients and load
// balancers open some before they need them.
type silent struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// trackState is the server's ConnState.
func (s *silent) trackState(c net.Conn, state http.ConnState) {
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

// closeAll closes those that there are.
func (s *silent) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close() // nobody said anything that would be lost
	}
}
