package httpserver

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A pipeListener accepts one connection in memory, for tests in fake time.
type pipeListener struct {
	net.Listener // gives the address

	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.done)
	return nil
}

// TestStopClosesSilentConnections: clients and load balancers open connections
// before they need them. net/http waits five seconds for such a connection.
func TestStopClosesSilentConnections(t *testing.T) {
	s, err := NewListeningServer(t.Context(), Config{Addr: "127.0.0.1:0"}, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tcp := s.listener
	t.Cleanup(func() { _ = tcp.Close() })
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		listener := &pipeListener{Listener: tcp, conns: make(chan net.Conn, 1), done: make(chan struct{})}
		listener.conns <- far
		s.listener = listener
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()

		began := time.Now()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the server stopped after %s, want it within %s and a poll of net/http", took, silentGrace)
		}
		_ = near.Close()
	})
}
