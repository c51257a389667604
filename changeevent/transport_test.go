package changeevent

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// genuine returns a configuration with the client's own transport.
func genuine(endpoint string) Config {
	cfg := once(nil)
	cfg.Endpoint, cfg.HTTP = endpoint, nil
	return cfg
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// listen calls answer for each connection.
func listen(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

func TestRequestOnTheWire(t *testing.T) {
	var got *http.Request
	var body []byte
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusNoContent)
	})
	for _, base := range []string{"/changes?k=v", "/changes/?k=v"} {
		cfg := genuine(s.URL + base)
		cfg.ClusterName = "a/b c"
		d := sendOne(t, cfg, ChangeEvent{Action: ActionCordon, NodeName: "n"})
		if d.Class != "" {
			t.Fatalf("delivery %+v", d)
		}
		if got.Method != http.MethodPost || got.URL.EscapedPath() != "/changes/a%2Fb%20c" || got.URL.RawQuery != "k=v" {
			t.Errorf("%s: %s %s, want POST /changes/a%%2Fb%%20c?k=v", base, got.Method, got.URL)
		}
		if got.ContentLength != int64(len(body)) || len(got.TransferEncoding) > 0 || got.Header.Get("Content-Type") != "application/json" ||
			got.Header.Get("Accept-Encoding") != "" {
			t.Errorf("%s: header %v, %d bytes of %d", base, got.Header, got.ContentLength, len(body))
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var followed atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { followed.Add(1) })
	for _, code := range []int{301, 302, 303, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, code) })
		cfg := genuine(s.URL)
		cfg.AuthHeader, cfg.AuthToken = "X-Api-Key", "secret"
		if d := sendOne(t, cfg, ChangeEvent{Action: ActionCordon}); d.Class != ClassRedirect || d.Status != code {
			t.Errorf("%d: delivery %+v, want a redirect that failed", code, d)
		}
	}
	if followed.Load() > 0 {
		t.Errorf("%d redirects were followed, with the token", followed.Load())
	}
}

func TestWhatKeepsAnAnswerAway(t *testing.T) {
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	old := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11} //nolint:gosec // what is to be refused
	old.Config.ErrorLog = secure.Config.ErrorLog
	old.StartTLS()
	t.Cleanup(old.Close)
	closed := listen(t, func(net.Conn) {})
	reset := listen(t, func(c net.Conn) {
		asked(c)
		_ = c.(*net.TCPConn).SetLinger(0) //nolint:errcheck // it is one
	})
	garbage := listen(t, func(c net.Conn) {
		asked(c)
		_, _ = io.WriteString(c, "SSH-2.0-OpenSSH\r\n\r\n")
	})
	hangs := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	slowHeader := listen(t, func(c net.Conn) {
		asked(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
		_, _ = io.Copy(io.Discard, c)
	})
	hugeHeader := listen(t, func(c net.Conn) {
		asked(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for range 1 << 12 {
			if _, err := io.WriteString(c, "X: "+strings.Repeat("x", 100)+"\r\n"); err != nil {
				return
			}
		}
	})
	nobody := unused(t)
	cases := map[string]struct {
		reason   string
		endpoint string
		change   func(*Config)
		want     Class
	}{
		"Plain":         {"loopback may be plain http", plain.URL, nil, ""},
		"LoopbackName":  {"and so may its name", strings.Replace(plain.URL, "127.0.0.1", "localhost", 1), nil, ""},
		"Trusted":       {"the certificate leads to one of the file", secure.URL, func(c *Config) { c.CAFile = ca }, ""},
		"Unknown":       {"certificates are verified", secure.URL, nil, ClassTLS},
		"OtherName":     {"and so are names", strings.Replace(secure.URL, "127.0.0.1", "localhost", 1), func(c *Config) { c.CAFile = ca }, ClassTLS},
		"OldVersion":    {"what is broken is not spoken", old.URL, nil, ClassTLS},
		"NoTLS":         {"the sink speaks plain http", strings.Replace(plain.URL, "http:", "https:", 1), nil, ClassTLS},
		"Refused":       {"nobody listens", "http://" + nobody, nil, ClassConnection},
		"Closed":        {"the connection ends before an answer", "http://" + closed, nil, ClassConnection},
		"Reset":         {"it is reset", "http://" + reset, nil, ClassConnection},
		"Garbage":       {"it is no answer", "http://" + garbage, nil, ClassConnection},
		"HugeHeader":    {"headers are bounded", "http://" + hugeHeader, nil, ClassConnection},
		"Hangs":         {"nothing comes", "http://" + hangs, nil, ClassTimeout},
		"SlowHandshake": {"nothing comes, not even a handshake", "https://" + hangs, nil, ClassTimeout},
		"SlowHeader":    {"an answer begins and does not end", "http://" + slowHeader, nil, ClassTimeout},
		"DNS":           {"there is no such name", "https://sink.invalid", nil, ClassDNS},
		"Proxy":         {"nobody listens there", "https://sink.invalid", func(c *Config) { c.ProxyURL = "http://" + nobody }, ClassConnection},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var log logged
			cfg := genuine(tc.endpoint)
			cfg.Logger = log.logger()
			if tc.want == ClassTimeout {
				cfg.Timeout = 50 * time.Millisecond
			}
			if tc.change != nil {
				tc.change(&cfg)
			}
			d := sendOne(t, cfg, ChangeEvent{Action: ActionCordon, NodeName: "n"})
			if d.Class != tc.want || d.Permanent || d.Attempts != 1 {
				t.Errorf("%s: delivery %+v, want class %q\n%s", tc.reason, d, tc.want, &log)
			}
			if tc.want != "" {
				log.want(t, "change event not delivered", "class="+string(tc.want))
			}
		})
	}
}

// asked waits for the start of a request.
func asked(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }

// unused returns an address without a listener.
func unused(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// TestGuard verifies that a name cannot resolve to an address that the endpoint itself
// must not have.
func TestGuard(t *testing.T) {
	var asked atomic.Int32
	s := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	tr, err := newTransport(Config{Timeout: time.Minute, MaxConcurrentRequests: 1})
	if err != nil {
		t.Fatal(err)
	}
	// The dialer gets these if a public name resolves to the address.
	for _, host := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "169.254.169.254", "fd00::1"} {
		err := tr.guardForHost("sink.example.com", port).control("tcp", net.JoinHostPort(host, port), nil)
		if attempt := classifyRequestError(t.Context(), err); attempt.class != ClassAddressDenied || !attempt.permanent || attempt.retry {
			t.Errorf("%s: %+v, want that it is refused for good", host, attempt)
		}
	}
	for _, addr := range []string{"10.0.0.1:80", "169.254.169.254:80", "[::ffff:10.0.0.1]:80", "[fd00::1]:80", "[fe80::1%lo]:80"} {
		conn, err := tr.dialProxyOrAllowed(t.Context(), "tcp", addr)
		if attempt := classifyRequestError(t.Context(), err); err == nil || attempt.class != ClassAddressDenied {
			t.Errorf("%s: dialled %v, %v; want that it is refused before there is a packet", addr, conn, err)
		}
	}
	// 0x7f.1 is not an IP address in Go, but is one for some resolvers.
	cfg := genuine("http://0x7f.1:" + port)
	cfg.AllowHTTP = true
	if d := sendOne(t, cfg, ChangeEvent{Action: ActionCordon}); d.Class != ClassAddressDenied && d.Class != ClassDNS {
		t.Errorf("delivery %+v, want that it is refused, or not found", d)
	}
	if asked.Load() > 0 {
		t.Error("the sink was asked")
	}
	allowed := genuine("http://127.0.0.1:" + port)
	allowed.AllowAddresses = []string{"10.0.0.0/8"}
	if d := sendOne(t, allowed, ChangeEvent{Action: ActionCordon}); d.Class != "" {
		t.Errorf("delivery %+v, want a success: the endpoint names loopback", d)
	}
}

// TestAllowedHost verifies that an allowed service is reached at a private address with
// plain http, and that nothing else is allowed.
func TestAllowedHost(t *testing.T) {
	const service = "fleet-api.fleet-system:8080"
	cfg := Config{Timeout: time.Minute, MaxConcurrentRequests: 1, AllowHosts: []string{service}}
	tr, err := newTransport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		host, port, addr string
		reached          bool
	}{
		{"fleet-api.fleet-system", "8080", "10.96.12.7", true},
		{"Fleet-API.fleet-system", "8080", "fd12::7", true},
		{"fleet-api.fleet-system", "8080", "127.0.0.1", false},
		{"fleet-api.fleet-system", "8080", "169.254.169.254", false},
		{"fleet-api.fleet-system", "8080", "169.254.1.1", false},
		{"fleet-api.fleet-system", "8080", "100.100.100.200", false}, // Alibaba's metadata
		{"fleet-api.fleet-system", "8080", "fd00:ec2::254", false},   // Amazon's metadata
		{"fleet-api.fleet-system", "9090", "10.96.12.7", false},
		{"fleet-api.fleet-system.example.com", "8080", "10.96.12.7", false},
		{"hooks.example.com", "443", "10.96.12.7", false},
	} {
		err := tr.guardForHost(tc.host, tc.port).control("tcp", net.JoinHostPort(tc.addr, tc.port), nil)
		if (err == nil) != tc.reached {
			t.Errorf("%s:%s at %s: %v, want reached %t", tc.host, tc.port, tc.addr, err, tc.reached)
		}
	}
	for endpoint, allowed := range map[string]bool{
		"http://" + service + "/api/changes":         true,
		"http://fleet-api.fleet-system/api/changes":  false,
		"http://other.fleet-system:8080/api/changes": false,
	} {
		if _, err := parseAndCheckEndpoint(endpoint, false, cfg.AllowHosts...); (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed %t", endpoint, err, allowed)
		}
	}
}

// TestProxyIsReached verifies that the proxy may have an address that is denied for
// sinks, because it is configured, and it resolves the sink.
func TestProxyIsReached(t *testing.T) {
	var got atomic.Pointer[string]
	proxy := serve(t, func(_ http.ResponseWriter, r *http.Request) { got.Store(new(r.URL.String())) })
	cfg := genuine("http://10.1.2.3/changes")
	cfg.AllowHTTP, cfg.ProxyURL = true, proxy.URL
	if d := sendOne(t, cfg, ChangeEvent{Action: ActionCordon}); d.Class != "" || *got.Load() != "http://10.1.2.3/changes/my-cluster-name" {
		t.Errorf("delivery %+v of %s, want one through the proxy", d, *got.Load())
	}
}

func TestConnectionsAreFew(t *testing.T) {
	var opened atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, strings.Repeat("x", 1000))
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c := start(t, genuine(s.URL))
	for i := range 500 {
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: fmt.Sprint(i)})
	}
	stop(t, c)
	if n := opened.Load(); n > DefaultMaxConcurrentRequests {
		t.Errorf("%d connections for 500 events, want at most %d", n, DefaultMaxConcurrentRequests)
	}
}

// TestAnswersAreBounded sends to sinks with endless responses.
func TestAnswersAreBounded(t *testing.T) {
	for _, code := range []int{http.StatusOK, http.StatusBadRequest} {
		var wrote atomic.Int64
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			chunk := []byte(strings.Repeat("x", 1<<16))
			for r.Context().Err() == nil {
				n, err := w.Write(chunk)
				wrote.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
		var log logged
		cfg := genuine(s.URL)
		cfg.Logger = log.logger()
		if d := sendOne(t, cfg, ChangeEvent{Action: ActionCordon}); d.Status != code || (d.Class == "") != (code == http.StatusOK) {
			t.Errorf("%d: delivery %+v", code, d)
		}
		if n := wrote.Load(); n > 64<<20 {
			t.Errorf("%d: read %d bytes of an answer", code, n)
		}
		if n := len(log.String()); n > 1<<12 {
			t.Errorf("%d: logged %d bytes", code, n)
		}
	}
}

// TestSlowBodyIsSuccess verifies that the status alone decides that an event was
// accepted, regardless of the body.
func TestSlowBodyIsSuccess(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	cfg := genuine(s.URL)
	cfg.Timeout = 50 * time.Millisecond
	if d := sendOne(t, cfg, ChangeEvent{Action: ActionCordon}); d.Class != "" || d.Status != http.StatusOK {
		t.Errorf("delivery %+v, want a success", d)
	}
}

// TestCloseEndsConnections verifies, with goleak after all tests, that nothing outlives
// Close in any state of the network.
func TestCloseEndsConnections(t *testing.T) {
	ended := make(chan struct{}, 8)
	addr := listen(t, func(c net.Conn) {
		_, _ = io.Copy(io.Discard, c)
		ended <- struct{}{}
	})
	for _, endpoint := range []string{"http://" + addr, "https://" + addr} {
		reg := prometheus.NewRegistry()
		cfg := genuine(endpoint)
		cfg.ShutdownTimeout, cfg.Timeout, cfg.Registerer, cfg.MaxConcurrentRequests = 20*time.Millisecond, time.Hour, reg, 1
		c := start(t, cfg)
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
		if err := c.Close(); err == nil {
			t.Errorf("%s: Close of a client whose sink hangs: want an error", endpoint)
		}
		<-ended
		wantCounted(t, c, reg, 1)
	}
}

func TestFailureOfShutdown(t *testing.T) {
	sink := &script{answer: hang}
	cfg := enabled(sink)
	cfg.ShutdownTimeout = time.Millisecond
	c := start(t, cfg)
	var told deliveries
	c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, OnDelivery: told.add})
	if err := c.Close(); err == nil {
		t.Error("want an error")
	}
	if d := told.got(); len(d) != 1 || d[0].Class != ClassShutdown || d[0].Permanent {
		t.Errorf("deliveries %+v, want one that was given up for now", d)
	}
	if attempt := classifyRequestError(t.Context(), errors.New("x")); attempt.class != ClassConnection {
		t.Errorf("%+v, want what is not known to be a matter of the connection", attempt)
	}
}

// newTLS counts the handshakes that begin.
func newTLS(begun *atomic.Int32) *tls.Config {
	return &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			begun.Add(1)
			return nil, nil
		},
	}
}
