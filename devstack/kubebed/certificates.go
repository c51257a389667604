package kubebed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "EC PRIVATE KEY"
	publicKeyBlock   = "PUBLIC KEY"

	validBefore = time.Hour // clocks differ
	validFor    = 365 * 24 * time.Hour
)

// An authority signs the certificates of a bed: those of the API server and of its
// users.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// A pair is a certificate and its key, in PEM.
type pair struct{ cert, key []byte }

// Authorities of a bed.
const (
	mainAuthority  = "ca"
	proxyAuthority = "front-proxy-ca" // its certificate may impersonate any user; only the API server has one
)

// loadOrCreateAuthority reads an authority from the folder, or creates it.
func loadOrCreateAuthority(dir, name string) (*authority, error) {
	certPath, keyPath := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	a, err := readAuthority(certPath, keyPath)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	a = &authority{}
	if a.key, err = newKey(); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kubebed-" + name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	p, err := signCertificate(template, template, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	a.pem = p
	if a.cert, err = parseCertificate(p); err != nil {
		return nil, err
	}
	key, err := encodeKey(a.key)
	if err != nil {
		return nil, err
	}
	return a, errors.Join(os.WriteFile(keyPath, key, 0o600), os.WriteFile(certPath, p, 0o600))
}

func readAuthority(certPath, keyPath string) (*authority, error) {
	certText, err := os.ReadFile(certPath) //nolint:gosec // in the bed's folder
	if err != nil {
		return nil, err
	}
	keyText, err := os.ReadFile(keyPath) //nolint:gosec // likewise
	if err != nil {
		return nil, err
	}
	cert, err := parseCertificate(certText)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", certPath, err)
	}
	block, _ := pem.Decode(keyText)
	if block == nil {
		return nil, fmt.Errorf("read %q: no private key found", keyPath)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", keyPath, err)
	}
	return &authority{cert: cert, key: key, pem: certText}, nil
}

// newClientPair issues a certificate for a user in some groups.
func (a *authority) newClientPair(name string, groups []string) (pair, error) {
	return a.issuePair(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// newServerPair issues a certificate for a server with some names and addresses.
func (a *authority) newServerPair(name string, names []string, addresses []net.IP) (pair, error) {
	return a.issuePair(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    names,
		IPAddresses: addresses,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *authority) issuePair(template *x509.Certificate) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	cert, err := signCertificate(template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return pair{}, err
	}
	text, err := encodeKey(key)
	return pair{cert: cert, key: text}, err
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func signCertificate(template, parent *x509.Certificate, public *ecdsa.PublicKey, by *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-validBefore)
	template.NotAfter = time.Now().Add(validFor)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}), nil
}

func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no certificate found")
	}
	return x509.ParseCertificate(block.Bytes)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// ensureTokenKeys creates the keys of service account tokens, unless the folder has
// them. So tokens of a bed stay valid after its restart.
func ensureTokenKeys(dir string) error {
	private, public := filepath.Join(dir, tokenKey), filepath.Join(dir, tokenPublicKey)
	if _, err := os.Stat(public); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	text, err := encodeKey(key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(private, text, 0o600),
		os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: publicKeyBlock, Bytes: der}), 0o600))
}
