package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestDeadConnection holds that a connection that is dead without being closed, as after a loss of its route, is noticed
// within ten seconds. All requests share an HTTP/2 connection, and a request that times out does not close it.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := &pipeListener{accepted: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor != 2 {
					t.Errorf("the request is %s, want HTTP/2", r.Proto)
				}
				writeJSON(w, http.StatusOK, v1.Resource{ID: "x"})
			}),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{newCertificate(t)}, MinVersion: tls.VersionTLS12},
			ErrorLog:  log.New(t.Output(), "", 0), ReadHeaderTimeout: time.Minute,
		}
		served := make(chan error)
		go func() { served <- server.ServeTLS(listener, "", "") }()
		c, err := New(Config{Endpoint: "https://api", InsecureSkipVerify: true, MaxAttempts: 1, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		c.caller.transport.DialContext = listener.dial

		get := func() error { _, err := c.Clusters().Get(t.Context(), "x"); return err }
		if err := get(); err != nil {
			t.Fatal(err)
		}
		listener.last.isDead.Store(true)
		died := time.Now()
		for err = get(); err != nil; err = get() {
			if time.Since(died) > pingAfter+pingTimeout+2*time.Second {
				t.Fatalf("%s after the connection died: %v", time.Since(died), err)
			}
		}
		c.CloseIdle()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// A pipeListener accepts connections in memory.
type pipeListener struct {
	accepted chan net.Conn
	closed   chan struct{}
	last     *mortalConn
}

func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	l.accepted <- theirs
	l.last = &mortalConn{Conn: ours}
	return l.last, nil
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "api"} }

// A mortalConn is a connection that transports nothing once it is dead.
type mortalConn struct {
	net.Conn

	isDead atomic.Bool
}

func (c *mortalConn) Write(b []byte) (int, error) {
	if c.isDead.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// newCertificate returns a certificate that is valid now.
func newCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
