// Package broker holds what all broker adapters share: what can become of a
// published event, the reason why a broker is not ready, the count of
// publishes under way, and TLS files.
//
// The adapters themselves are its subpackages. They do not know each other;
// a component names the one or two methods that it needs, and internal/app
// chooses the adapter.
package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// What becomes of an event that was not confirmed. Every error of an
// adapter's Publish wraps one of these, or is permanent as package backoff
// defines it because the event itself is unfit, or is the context's cause and
// then nothing was sent.
var (
	// ErrNotReady says that nothing was sent: there is no connection, or the
	// broker at its other end cannot take events. Ready says why.
	ErrNotReady = errors.New("broker not ready")

	// ErrRefused says that the broker answered, and does not have the event.
	ErrRefused = errors.New("rejected by the broker")

	// ErrUnroutable says that the broker took the event and found no queue for
	// it, so that nobody would ever have received it. It is a kind of
	// ErrRefused.
	ErrUnroutable = fmt.Errorf("%w: no queue accepts the event", ErrRefused)

	// ErrUnknownOutcome says that the event was sent and no answer came. The
	// broker may have it; publishing the same event again is safe, because it
	// keeps its id.
	ErrUnknownOutcome = errors.New("broker did not confirm the event; it may or may not have been published")
)

// NotReady is ErrNotReady with the reason, if there still is one: by the time
// that it is asked for, the connection may be there.
func NotReady(reason error) error {
	if reason == nil {
		return ErrNotReady
	}
	return fmt.Errorf("%w: %w", ErrNotReady, reason)
}

// A Status is why a broker cannot publish just now. It is safe for concurrent
// use; the zero value says that the broker was not started.
type Status struct {
	held atomic.Pointer[error]
}

// Set keeps the reason; nil means that publishing works.
func (s *Status) Set(reason error) { s.held.Store(&reason) }

// Err is the reason, or nil.
func (s *Status) Err() error {
	if p := s.held.Load(); p != nil {
		return *p
	}
	return errors.New("not connected: not started")
}

// A Window counts the publishes under way, so that a broker that stops can
// wait for them. The zero value is open and empty.
type Window struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // made by Drain, closed when the last one left
}

// Enter counts one publish more, unless Drain was called.
func (w *Window) Enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.n++
	return true
}

// Leave counts one publish less.
func (w *Window) Leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
	if w.n == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

// Len is how many publishes are under way.
func (w *Window) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// Drain closes the window for ever and waits until it is empty or ctx ends.
func (w *Window) Drain(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	if w.n == 0 {
		w.mu.Unlock()
		return nil
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle := w.idle
	w.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d events not confirmed: %w", w.Len(), context.Cause(ctx))
	}
}

// TLS says whether a connection is encrypted, and with which files.
type TLS struct {
	// On encrypts. A broker URL whose scheme says so, or any of the fields
	// below, does the same.
	On bool `key:"enabled" env:"BROKER_TLS_ENABLED" flag:"broker-tls" default:"false" doc:"use TLS for the broker connection; implied by a TLS file setting or a TLS URL scheme"`

	// CAFile holds the certificates that the broker's must descend from.
	// Empty means those of the operating system.
	CAFile string `key:"ca_file" env:"BROKER_TLS_CA_FILE" flag:"broker-tls-ca-file" doc:"PEM file with the CA certificates for the broker (default: those of the system)"`

	// CertFile and KeyFile show the broker who we are. Both or neither.
	CertFile string `key:"cert_file" env:"BROKER_TLS_CERT_FILE" flag:"broker-tls-cert-file" doc:"PEM file with the client certificate, for brokers that require one"`
	KeyFile  string `key:"key_file" env:"BROKER_TLS_KEY_FILE" flag:"broker-tls-key-file" doc:"PEM file with the private key of the client certificate"`

	// ServerName is the name in the broker's certificate where it is not the
	// host that we connect to.
	ServerName string `key:"server_name" env:"BROKER_TLS_SERVER_NAME" flag:"broker-tls-server-name" doc:"server name in the broker's certificate (default: the host)"`
}

// Enabled reports whether anything is set.
func (t TLS) Enabled() bool { return t != TLS{} }

// Client reads the files. Call it for each connection: certificates are
// renewed on disk.
func (t TLS) Client() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA certificates: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA certificates: %q contains no PEM certificate", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("read client certificate: set both cert_file and key_file")
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
