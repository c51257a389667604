package intake

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// A reloadingCertificate is reloaded when its files change.
type reloadingCertificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu       sync.Mutex
	cert     *tls.Certificate
	modified [2]time.Time // modification times of the files at the last read
}

func loadReloadingCertificate(certFile, keyFile string, log *slog.Logger) (*reloadingCertificate, error) {
	c := &reloadingCertificate{certFile: certFile, keyFile: keyFile, log: log}
	if err := c.loadFiles(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *reloadingCertificate) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.reloadIfFilesChanged(), nil },
	}
}

// reloadIfFilesChanged returns the certificate from the current files. If they do not
// match, as during a renewal, the last valid certificate stays in use.
func (c *reloadingCertificate) reloadIfFilesChanged() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.modificationTimes() != c.modified {
		if err := c.loadFiles(); err != nil {
			c.log.Warn("reload certificate failed, keeping the previous one", "err", err)
		}
	}
	return c.cert
}

func (c *reloadingCertificate) modificationTimes() (out [2]time.Time) {
	for i, name := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(name); err == nil {
			out[i] = info.ModTime()
		}
	}
	return out
}

// loadFiles reads the files. It takes the modification times first, so that a concurrent
// change is detected the next time.
func (c *reloadingCertificate) loadFiles() error {
	c.modified = c.modificationTimes()
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read certificate %q with key %q: %w", c.certFile, c.keyFile, err)
	}
	c.cert = &cert
	return nil
}
