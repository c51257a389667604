// Package broker holds the common parts of the broker adapters. These are the outcomes of a
// publish, the readiness status, the count of publishes in progress, and TLS files.
//
// The adapters are its subpackages and do not depend on each other. A component declares the one or
// two methods that it needs, and internal/app chooses the adapter.
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

// Outcomes of an event that was not confirmed. Every error of an adapter's Publish is one of three
// kinds. It wraps one of these errors. Or it is permanent as defined by package backoff, because
// the event itself is invalid. Or it is the context's cause, and nothing was sent.
var (
	// ErrNotReady means that nothing was sent, because the broker is not connected or cannot accept
	// events. Ready returns the reason.
	ErrNotReady = errors.New("broker not ready")

	// ErrRefused means that the broker answered, and does not have the event.
	ErrRefused = errors.New("rejected by the broker")

	// ErrUnroutable means that the broker accepted the event but found no queue for it. No consumer
	// would have received it. It is a kind of ErrRefused.
	ErrUnroutable = fmt.Errorf("%w: no queue accepts the event", ErrRefused)

	// ErrUnknownOutcome means that the event was sent and not answered. The broker may have it;
	// publishing the same event again is safe, because it keeps its id.
	ErrUnknownOutcome = errors.New("broker did not confirm the event; it may or may not have been published")
)

// NewNotReadyError returns ErrNotReady with the reason. The reason may be nil, because the
// connection may have been restored in the meantime.
func NewNotReadyError(reason error) error {
	if reason == nil {
		return ErrNotReady
	}
	return fmt.Errorf("%w: %w", ErrNotReady, reason)
}

// A Status holds the reason why a broker cannot publish at present. It is safe for concurrent use;
// the zero value means that the broker was not started.
type Status struct {
	held atomic.Pointer[error]
}

// SetNotReadyReason stores the reason; nil means that the broker can publish.
func (s *Status) SetNotReadyReason(reason error) { s.held.Store(&reason) }

// NotReadyReason returns the reason, or nil.
func (s *Status) NotReadyReason() error {
	if p := s.held.Load(); p != nil {
		return *p
	}
	return errors.New("not connected: not started")
}

// Subscriptions holds the reasons why subscriptions receive no events at present. It is safe for concurrent use.
type Subscriptions struct {
	mu      sync.Mutex
	reasons map[string]error
}

// SetNotReadyReason stores the reason of a subscription; nil means that it receives events.
func (s *Subscriptions) SetNotReadyReason(subscription string, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reasons == nil {
		s.reasons = map[string]error{}
	}
	s.reasons[subscription] = reason
}

// NotReadyReason returns the reason of a subscription, or nil.
func (s *Subscriptions) NotReadyReason(subscription string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	reason, started := s.reasons[subscription]
	if !started {
		return errors.New("not subscribed: not started")
	}
	return reason
}

// A PublishWindow counts the publishes in progress, so that a stopping broker can wait for them.
// The zero value is open and empty.
type PublishWindow struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // created by CloseAndWaitEmpty, closed when the last publish leaves
}

// BeginPublish adds a publish and returns true, unless CloseAndWaitEmpty was called.
func (w *PublishWindow) BeginPublish() (begun bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.n++
	return true
}

// EndPublish removes a publish.
func (w *PublishWindow) EndPublish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
	if w.n == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

// Len returns the number of publishes in progress.
func (w *PublishWindow) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// CloseAndWaitEmpty closes the window permanently and waits until it is empty or ctx ends.
func (w *PublishWindow) CloseAndWaitEmpty(ctx context.Context) error {
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

// TLS is the TLS configuration of a connection.
type TLS struct {
	// On enables TLS. A broker URL with a TLS scheme, or any of the fields below, also enables it.
	On bool `key:"enabled" env:"BROKER_TLS_ENABLED" flag:"broker-tls" default:"false" doc:"use TLS for the broker connection; implied by a TLS file setting or a TLS URL scheme"`

	// CAFile holds the CA certificates that the broker's certificate must chain to. Empty means
	// those of the operating system.
	CAFile string `key:"ca_file" env:"BROKER_TLS_CA_FILE" flag:"broker-tls-ca-file" doc:"PEM file with the CA certificates for the broker (default: those of the system)"`

	// CertFile and KeyFile authenticate the client to the broker. Both or neither must be set.
	CertFile string `key:"cert_file" env:"BROKER_TLS_CERT_FILE" flag:"broker-tls-cert-file" doc:"PEM file with the client certificate, for brokers that require one"`
	KeyFile  string `key:"key_file" env:"BROKER_TLS_KEY_FILE" flag:"broker-tls-key-file" doc:"PEM file with the private key of the client certificate"`

	// ServerName is the name in the broker's certificate if it differs from the host of the
	// connection.
	ServerName string `key:"server_name" env:"BROKER_TLS_SERVER_NAME" flag:"broker-tls-server-name" doc:"server name in the broker's certificate (default: the host)"`
}

// IsEnabled reports whether any field is set.
func (t TLS) IsEnabled() bool { return t != TLS{} }

// LoadClientConfig returns the client configuration and reads the files. Call it for each connection:
// certificates are renewed on disk.
func (t TLS) LoadClientConfig() (*tls.Config, error) {
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
