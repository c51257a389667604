package cli

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// writeClientCertificate writes a self-signed certificate and its key.
func writeClientCertificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "alice"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool = x509.NewCertPool()
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return certFile, keyFile, pool
}

// TestTLS connects to a server whose certificate is unknown and that requires one of the client, and logs the
// request without its token.
func TestTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, pool := writeClientCertificate(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v1.Identity{Subject: r.TLS.PeerCertificates[0].Subject.CommonName})
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "config.yaml")
	start := func(args ...string) run {
		t.Helper()
		var out, errOut bytes.Buffer
		env := Env{Stdout: &out, Stderr: &errOut, LookupEnv: func(name string) (string, bool) {
			return map[string]string{"FLEETLOOP_TOKEN": "s3cret"}[name], name == "FLEETLOOP_TOKEN"
		}}
		code := Run(t.Context(), env, Command(env), append(args, "--config="+config))
		return run{stdout: out.String(), stderr: errOut.String(), code: code}
	}
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pair := []string{"--client-certificate=" + certFile, "--client-key=" + keyFile}
	if r := start("config", "set-context", "test", "--server="+server.URL, "--insecure-skip-tls-verify", pair[0], pair[1], "--current"); r.code != CodeOK {
		t.Fatal(r.stderr)
	}
	const warning = "warning: the certificate of https://127.0.0.1"
	r := start("whoami", "-v")
	if r.code != CodeOK || !strings.Contains(r.stdout, "alice") || !strings.Contains(r.stderr, warning) {
		t.Errorf("exit code %d, %q, %q", r.code, r.stdout, r.stderr)
	}
	if want := "GET " + server.URL + v1.BasePath + "/whoami: 200 OK in "; !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "s3cret") {
		t.Errorf("no %q in %q", want, r.stderr)
	}
	if r = start("doctor"); !strings.Contains(r.stdout, "its certificate is not verified") {
		t.Errorf("doctor says %q", r.stdout)
	}
	if r = start("config", "set-context", "test", "--insecure-skip-tls-verify=false"); r.code != CodeOK {
		t.Errorf("verify again: exit code %d, %q", r.code, r.stderr)
	}
	if r = start("whoami"); r.code == CodeOK || !strings.Contains(r.stderr, "--ca-file") {
		t.Errorf("the context does not verify the server: exit code %d, %q", r.code, r.stderr)
	}
	for flag, want := range map[string]string{
		"--insecure-skip-tls-verify=false": "next:  give the certificate of its CA with --ca-file",
		"--client-key=":                    "a client certificate needs its key",
		"--client-certificate=":            "the key needs its certificate",
		"--client-certificate=" + keyFile:  "read client certificate: ",
	} {
		if r = start("whoami", flag); r.code == CodeOK || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit code %d, no %q in %q", flag, r.code, want, r.stderr)
		}
	}
}
