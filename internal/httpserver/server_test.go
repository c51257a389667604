package httpserver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server until the test ends. stop ends it earlier, and returns the result of Run.
func start(t *testing.T, cfg httpserver.Config, h http.Handler, log io.Writer) (s *httpserver.Server, stop func() error) {
	t.Helper()
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	s, err := httpserver.NewListeningServer(t.Context(), cfg, h, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return s, stop
}

func newClient(t *testing.T, roots *x509.CertPool) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// An answer is a response that has been read.
type answer struct {
	code   int
	header http.Header
	proto  int
	tls    *tls.ConnectionState
	text   string
}

func get(t *testing.T, client *http.Client, url string) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, res.ProtoMajor, res.TLS, string(text)}, err
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func TestRunFinishesWhatRuns(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	s, stop := start(t, httpserver.Config{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-finish
		if r.Context().Err() != nil {
			t.Error("the request's context ended with the server's, want it to go on")
		}
		hello(w, r)
	}), io.Discard)

	answered := make(chan string, 1)
	client := newClient(t, nil)
	go func() {
		got, err := get(t, client, "http://"+s.Addr())
		answered <- fmt.Sprint(got.text, err)
	}()
	<-started
	if err := s.Ready(); err != nil {
		t.Errorf("Ready() = %v while serving", err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for { // until nobody listens
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", s.Addr())
		if err != nil {
			break
		}
		_ = conn.Close()
		select {
		case err := <-stopped:
			t.Fatalf("Run returned %v with a request running", err)
		case <-time.Tick(time.Millisecond):
		}
	}
	if s.Ready() == nil {
		t.Error("ready while stopping")
	}
	close(finish)
	if got := <-answered; got != "hello<nil>" {
		t.Errorf("the running request got %q, want its answer", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

// TestOnShutdown checks that OnShutdown ends an endless response.
func TestOnShutdown(t *testing.T) {
	told := make(chan struct{})
	s, stop := start(t, httpserver.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begin ")
		_ = http.NewResponseController(w).Flush()
		<-told
		_, _ = io.WriteString(w, "end")
	}), io.Discard)
	s.OnShutdown(func() { close(told) })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := newClient(t, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "begin end" {
		t.Errorf("got %q, %v", body, err)
	}
}

func TestRunCutsOffWhatDoesNotFinish(t *testing.T) {
	var log processtest.Buffer
	started := make(chan struct{})
	s, stop := start(t, httpserver.Config{ShutdownTimeout: 50 * time.Millisecond}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	}), &log)
	failed := make(chan error, 1)
	client := newClient(t, nil)
	go func() {
		_, err := get(t, client, "http://"+s.Addr())
		failed <- err
	}()
	<-started
	if err := stop(); err != nil {
		t.Errorf("Run() = %v, want nil: it stopped within its bound", err)
	}
	if err := <-failed; err == nil {
		t.Error("the request got an answer from nowhere")
	}
	if !strings.Contains(log.String(), "running requests aborted") {
		t.Errorf("log %q, want the cut in it", log.String())
	}
}

func TestNewRefuses(t *testing.T) {
	s, _ := start(t, httpserver.Config{}, http.HandlerFunc(hello), io.Discard)
	cases := map[string]struct {
		reason string
		cfg    httpserver.Config
		want   []string
	}{
		"InUse":   {"a port in use is named with a way out", httpserver.Config{Addr: s.Addr()}, []string{s.Addr(), "stop the process that uses the address"}},
		"Invalid": {"an address that is none", httpserver.Config{Addr: "nowhere"}, []string{`serve HTTP on "nowhere"`, "missing port"}},
		"OneFile": {"a certificate without its key", httpserver.Config{Addr: "127.0.0.1:0", TLSCertFile: "x"}, []string{"only one file is set"}},
		"NoFile":  {"a certificate that is not there", httpserver.Config{Addr: "127.0.0.1:0", TLSCertFile: "/nowhere", TLSKeyFile: "/nowhere"}, []string{`read certificate "/nowhere"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := httpserver.NewListeningServer(t.Context(), tc.cfg, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
			if err == nil {
				t.Fatalf("%s: New() = nil", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: New() = %v, want it to say %q", tc.reason, err, want)
				}
			}
		})
	}
}

func TestServerThatNeverRan(t *testing.T) {
	s, err := httpserver.NewListeningServer(t.Context(), httpserver.Config{Addr: "127.0.0.1:0"}, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if s.Ready() == nil {
		t.Error("ready before Run")
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "serve HTTP on") {
		t.Errorf("Run() after Close = %v, want an error", err)
	}
	if s.Ready() == nil {
		t.Error("ready after Run")
	}
}

// writeCert puts a self-signed certificate with a serial number into dir.
func writeCert(t *testing.T, dir string, serial int64) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "tls.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), serial)
	writeFile(t, filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), serial)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

// writeFile writes a file with a unique modification time, however fast the test is.
func writeFile(t *testing.T, name string, data []byte, age int64) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000+age, 0)
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestTLSFollowsItsFiles(t *testing.T) {
	var log processtest.Buffer
	dir := t.TempDir()
	roots := writeCert(t, dir, 1)
	s, _ := start(t, httpserver.Config{TLSCertFile: filepath.Join(dir, "tls.crt"), TLSKeyFile: filepath.Join(dir, "tls.key")}, http.HandlerFunc(hello), &log)

	serial := func(roots *x509.CertPool) (int64, error) {
		got, err := get(t, newClient(t, roots), "https://"+s.Addr())
		if err != nil {
			return 0, err
		}
		if got.proto != 2 {
			t.Errorf("speaks HTTP/%d over TLS, want HTTP/2", got.proto)
		}
		return got.tls.PeerCertificates[0].SerialNumber.Int64(), nil
	}
	if got, err := serial(roots); got != 1 || err != nil {
		t.Errorf("certificate %d, %v, want the first", got, err)
	}
	writeFile(t, filepath.Join(dir, "tls.crt"), []byte("half a fi"), 2)
	if got, err := serial(roots); got != 1 || err != nil {
		t.Errorf("certificate %d, %v, want the last good one while the files do not fit", got, err)
	}
	if !strings.Contains(log.String(), "certificate reload failed") {
		t.Errorf("log %q, want the bad file in it", log.String())
	}
	renewed := writeCert(t, dir, 3)
	if got, err := serial(renewed); got != 3 || err != nil {
		t.Errorf("certificate %d, %v, want the new one without a restart", got, err)
	}
	var unknown x509.UnknownAuthorityError
	if _, err := serial(roots); !errors.As(err, &unknown) {
		t.Errorf("error %v, want the old certificate gone", err)
	}
}
