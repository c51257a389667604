package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"time"
)

func caPath(dir string) string { return filepath.Join(dir, "ca.pem") }

// certificatePaths returns the paths of the certificate and the key of the fleet API.
func certificatePaths(dir string) (cert, key string) {
	return filepath.Join(dir, "fleet-api.pem"), filepath.Join(dir, "fleet-api-key.pem")
}

const certificateLife = 24 * time.Hour

// An authority signs the certificates of the fleet API.
type authority struct {
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64 // of the last certificate
}

// newAuthority creates an authority, and writes its certificate for the clients.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "proof"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLife),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key, serial: 1}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return a, writePEM(caPath(dir), "CERTIFICATE", der)
}

// issueServerCertificate writes a new certificate and key of the fleet API. For a moment they do not match.
func (a *authority) issueServerCertificate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: "fleet-api"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotBefore: time.Now().Add(-time.Hour), NotAfter: a.cert.NotAfter,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	certFile, keyFile := certificatePaths(a.dir)
	return errors.Join(writePEM(certFile, "CERTIFICATE", der), writePEM(keyFile, "PRIVATE KEY", secret))
}

func writePEM(path, kind string, der []byte) error {
	return replaceFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// rotateCertificateAndWait replaces the certificate of the fleet API, and waits until each server has it.
func (t *topology) rotateCertificateAndWait(ctx context.Context) error {
	if err := t.authority.issueServerCertificate(); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(t.authority.cert)
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	for _, addr := range t.apiAddrs {
		err := poll(ctx, rotationBound, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			conn, err := dialer.DialContext(ctx, "tcp", addr)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }() // nothing was written
			if c, ok := conn.(*tls.Conn); !ok || c.ConnectionState().PeerCertificates[0].SerialNumber.Int64() != t.authority.serial {
				return errors.New("it serves another certificate")
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("the fleet API on %s does not serve the new certificate: %w", addr, err)
		}
	}
	return nil
}
