package httpserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// newTLSConfig serves the certificate in two files, and each new one that is
// put there.
func newTLSConfig(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	if certFile == "" || keyFile == "" {
		return nil, errors.New("serve TLS: certificate and key are both required, but only one file is set")
	}
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	if err := c.loadFiles(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.currentCertificate(), nil },
	}, nil
}

// A certificate follows its two files.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	cert   *tls.Certificate
	stamps [2]stamp // of the files when they were last read
}

// A stamp changes when a file does.
type stamp struct {
	modified time.Time
	size     int64
}

// currentCertificate is the certificate as the files have it now. While they do not fit
// together, as in the middle of a renewal, the last good one stays.
func (c *certificate) currentCertificate() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fileStamps() != c.stamps {
		if err := c.loadFiles(); err != nil {
			c.log.Warn("certificate reload failed, using the last one", "err", err)
		} else {
			c.log.Info("certificate reloaded", "file", c.certFile)
		}
	}
	return c.cert
}

func (c *certificate) fileStamps() [2]stamp {
	var out [2]stamp
	for i, name := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(name); err == nil {
			out[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return out
}

// loadFiles reads the files. The stamps are of before, so that a change during the
// reading is seen the next time.
func (c *certificate) loadFiles() error {
	c.stamps = c.fileStamps()
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read certificate %q with key %q: %w", c.certFile, c.keyFile, err)
	}
	c.cert = &cert
	return nil
}
