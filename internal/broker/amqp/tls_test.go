package amqp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// newTLS starts a TLS proxy of the server for clients with a certificate. It returns its address
// and the folder with ca.pem, cert.pem and key.pem, which serve both sides.
func newTLS(t *testing.T, target string) (addr, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bed"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"rabbit.test"},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, content := range map[string][]byte{"ca.pem": cert, "cert.pem": cert, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { splice(client, target) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	return l.Addr().String(), dir
}

func splice(client net.Conn, target string) {
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target)
	if err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
	<-done
}

func TestTLS(t *testing.T) {
	addr, dir := newTLS(t, newServer(t).Addr())
	files := broker.TLS{CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), ServerName: "rabbit.test"}
	t.Run("Works", func(t *testing.T) {
		newSubscribed(t, amqp.Config{URL: settings.Secret("amqps://guest:guest@" + addr + "/"), TLS: files, Topic: "tls"})
	})
	t.Run("WrongName", func(t *testing.T) {
		wrong := files
		wrong.ServerName = "other.test"
		b := newBroker(t, amqp.Config{URL: settings.Secret("amqps://guest:guest@" + addr + "/"), TLS: wrong, Topic: "tls"})
		brokertest.StartBroker(t, b)
		wantReason(t, b, "certificate is valid for rabbit.test, not other.test")
	})
	t.Run("UnknownAuthority", func(t *testing.T) {
		b := newBroker(t, amqp.Config{URL: settings.Secret("amqps://guest:guest@" + addr + "/"), Topic: "tls"})
		brokertest.StartBroker(t, b)
		wantReason(t, b, "certificate")
	})
}
