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

// newReloadingTLSConfig serves the certificate in two files, and reloads it when they change.
func newReloadingTLSConfig(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	if certFile == "" || keyFile == "" {
		return nil, errors.New("serve TLS: certificate and key are both required, but only one file is set")
	}
	c := &reloadingCertificate{certFile: certFile, keyFile: keyFile, log: log}
	if err := c.loadCertificateAndStamps(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.reloadIfChanged(), nil },
	}, nil
}

// A reloadingCertificate reloads when its two files change.
type reloadingCertificate struct {
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

// reloadIfChanged returns the certificate in the current files. While the files do not match, as
// during a renewal, the last valid one stays.
func (c *reloadingCertificate) reloadIfChanged() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.statFiles() != c.stamps {
		if err := c.loadCertificateAndStamps(); err != nil {
			c.log.Warn("certificate reload failed, using the last one", "err", err)
		} else {
			c.log.Info("certificate reloaded", "file", c.certFile)
		}
	}
	return c.cert
}

func (c *reloadingCertificate) statFiles() [2]stamp {
	var out [2]stamp
	for i, name := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(name); err == nil {
			out[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return out
}

// loadCertificateAndStamps reads the files. It takes the stamps before it reads, so that a later call detects a
// concurrent change.
func (c *reloadingCertificate) loadCertificateAndStamps() error {
	c.stamps = c.statFiles()
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read certificate %q with key %q: %w", c.certFile, c.keyFile, err)
	}
	c.cert = &cert
	return nil
}
