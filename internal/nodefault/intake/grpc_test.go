package intake_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake/datamodels"
)

// A memory is a store that rejects some nodes.
type memory struct {
	mu      sync.Mutex
	reports []nodefault.Report
	block   chan struct{} // if set, blocks the store until it is readable
}

func (m *memory) Apply(_ context.Context, reports []nodefault.Report) error {
	if m.block != nil {
		<-m.block
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := make([]error, len(reports))
	for i, r := range reports {
		switch r.Node {
		case "unknown":
			errs[i] = fmt.Errorf("node %q: %w", r.Node, intake.ErrUnknownNode)
		case "full":
			errs[i] = intake.ErrFull
		case "late":
			errs[i] = fmt.Errorf("%w: generated at 14:42", intake.ErrOutdated)
		case "busy":
			errs[i] = intake.ErrBusy
		case "away":
			errs[i] = fmt.Errorf("%w: dial tcp 10.0.0.1:443: refused", intake.ErrUnavailable)
		case "panics":
			panic("nil map")
		default:
			m.reports = append(m.reports, r)
		}
	}
	return intake.JoinReportErrors(errs)
}

func (m *memory) stored() []nodefault.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reports
}

// A door accepts one token.
type door struct{}

func (door) Authenticate(_ context.Context, header, _ string) (string, error) {
	switch header {
	case "Bearer good":
		return "monitor", nil
	case "":
		return "", intake.ErrNoToken
	case "Bearer nobody":
		return "", intake.ErrForbidden
	case "Bearer away":
		return "", intake.ErrAuthUnavailable
	case "Bearer flood":
		return "", intake.ErrTooManyInvalidTokens
	case "Bearer other":
		return "other", nil
	}
	return "", intake.ErrInvalidToken
}

// serve runs a server until the test ends.
func serve(t *testing.T, cfg intake.GRPCConfig, store intake.Store, change ...func(*intake.GRPCDeps)) *intake.GRPCServer {
	t.Helper()
	deps := intake.GRPCDeps{Store: store, Auth: door{}, Metrics: intake.NewMetrics(nil), Log: slog.New(slog.DiscardHandler)}
	for _, do := range change {
		do(&deps)
	}
	s, err := intake.NewListeningGRPCServer(t.Context(), cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

func dial(t *testing.T, target string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// newSocket returns a path that is short enough for a socket.
func newSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fl") //nolint:usetesting // the test's own folder has too long a name for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "s")
}

func wantCode(t *testing.T, err error, code codes.Code, says string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(fmt.Sprint(err), says) {
		t.Errorf("got %v, want %s and %q", err, code, says)
	}
}

func newHealthEvent(node string) *datamodels.HealthEvent {
	return &datamodels.HealthEvent{
		Version: 1, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsFatal: true,
		Message: "XID error occurred", RecommendedAction: datamodels.RecommendedAction_RESTART_BM, ErrorCode: []string{"79"},
		EntitiesImpacted: []*datamodels.Entity{{EntityType: "GPU", EntityValue: "0"}}, NodeName: node,
		GeneratedTimestamp: timestamppb.New(time.Date(2025, 8, 26, 14, 42, 58, 315_000_000, time.UTC)),
	}
}

func report(change ...func(*v1alpha1.Fault)) nodefault.Report {
	f := v1alpha1.Fault{
		Source: "syslog-health-monitor", Check: "SysLogsXIDError", Entity: "GPU/0", ComponentClass: "GPU", ErrorCodes: []string{"79"}, Fatal: true,
		Message: "XID error occurred", RecommendedAction: "RESTART_BM", DetectedAt: metav1.NewMicroTime(time.Date(2025, 8, 26, 14, 42, 58, 315_000_000, time.UTC)),
	}
	for _, do := range change {
		do(&f)
	}
	f.GeneratedAt = &f.DetectedAt
	return nodefault.Report{Node: "n1", Fault: f}
}

// TestWire decodes a message that is encoded like one of an NVSentinel monitor, byte by
// byte: only the numbers and types of fields are shared.
func TestWire(t *testing.T) {
	event := strings.Join([]string{
		"0801",                 // 1 version: 1
		"120373797a",           // 2 agent: "syz"
		"1a0347" + "5055",      // 3 componentClass: "GPU"
		"2203786964",           // 4 validateIdentifier: "xid"
		"2801",                 // 5 isFatal: true
		"3001",                 // 6 isHealthy: true
		"3a026869",             // 7 message: "hi"
		"401b",                 // 8 recommendedAction: CUSTOM (27)
		"4a023739",             // 9 errorCode: "79"
		"4a023438",             // 9 errorCode: "48"
		"52080a03475055120130", // 10 entitiesImpacted: {"GPU", "0"}
		"5a060a0161120162",     // 11 metadata: {"a": "b"}
		"62060880ee84c506",     // 12 generatedTimestamp: 1755395840 s
		"6a026e31",             // 13 nodeName: "n1"
		"72020801",             // 14 quarantineOverrides: {force}
		"7a021001",             // 15 drainOverrides: {skip}
		"800102",               // 16 processingStrategy: STORE_ONLY
		"8a01026964",           // 17 id: "id"
		"920105" + hex.EncodeToString([]byte("RESET")), // 18 customRecommendedAction
		"9a06013f", // an unknown field
	}, "")
	raw, err := hex.DecodeString(event)
	if err != nil {
		t.Fatal(err)
	}
	var in datamodels.HealthEvents
	// 1 version: 1, 2 events
	if err := proto.Unmarshal(append([]byte{0x08, 1, 0x12, byte(len(raw)&0x7f) | 0x80, byte(len(raw) >> 7)}, raw...), &in); err != nil {
		t.Fatal(err)
	}
	var m memory
	socket := newSocket(t)
	serve(t, intake.GRPCConfig{Socket: socket}, &m)
	if err := intake.SendHealthEvents(t.Context(), dial(t, "unix:"+socket, insecure.NewCredentials()), &in); err != nil {
		t.Fatal(err)
	}
	at := metav1.NewMicroTime(time.Unix(1755395840, 0).UTC())
	want := []nodefault.Report{{Node: "n1", Healthy: true, Fault: v1alpha1.Fault{
		Source: "syz", Check: "xid", Entity: "GPU/0", ComponentClass: "GPU", ErrorCodes: []string{"79", "48"}, Fatal: true, Message: "hi",
		RecommendedAction: "RESET", ObserveOnly: true, QuarantineOverride: "force", DrainOverride: "skip", DetectedAt: at, GeneratedAt: &at,
	}}}
	if diff := cmp.Diff(want, m.stored()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEvents(t *testing.T) {
	var m memory
	socket := newSocket(t)
	serve(t, intake.GRPCConfig{Socket: socket}, &m)
	conn := dial(t, "unix:"+socket, insecure.NewCredentials())
	cases := map[string]struct {
		reason string
		events []*datamodels.HealthEvent
		code   codes.Code
		says   string
		want   []nodefault.Report
	}{
		"One":     {"a fault is stored", []*datamodels.HealthEvent{newHealthEvent("n1")}, codes.OK, "", []nodefault.Report{report()}},
		"None":    {"an empty report is accepted", nil, codes.OK, "", nil},
		"Unknown": {"the other event is stored, and the rejected one must not be sent again", []*datamodels.HealthEvent{newHealthEvent("unknown"), newHealthEvent("n1")}, codes.NotFound, "1 of 2 events rejected", []nodefault.Report{report()}},
		"Late":    {"a later report is stored", []*datamodels.HealthEvent{newHealthEvent("late")}, codes.FailedPrecondition, "outdated report", nil},
		"Full":    {"the event can never be stored", []*datamodels.HealthEvent{newHealthEvent("full")}, codes.FailedPrecondition, "maximum number of faults", nil},
		"Away":    {"the whole report must be sent again, also if it has a rejected event", []*datamodels.HealthEvent{newHealthEvent("unknown"), newHealthEvent("away"), newHealthEvent("n1")}, codes.Unavailable, "report not stored", []nodefault.Report{report()}},
		"Busy":    {"the report must be sent again later", []*datamodels.HealthEvent{newHealthEvent("busy")}, codes.ResourceExhausted, "too many", nil},
		"Panic":   {"a panic ends the call and not the process", []*datamodels.HealthEvent{newHealthEvent("panics")}, codes.Internal, "internal error", nil},
		"NoCheck": {"the valid event is stored", []*datamodels.HealthEvent{newHealthEvent("n1"), {NodeName: "n1"}}, codes.InvalidArgument, "event 1: invalid report: checkName", []nodefault.Report{report()}},
		"NoAgent": {"NVSentinel accepts an event without an agent", []*datamodels.HealthEvent{func() *datamodels.HealthEvent { e := newHealthEvent("n1"); e.Agent = ""; return e }()}, codes.OK, "", []nodefault.Report{report(func(f *v1alpha1.Fault) { f.Source = "unknown" })}},
		"Future": {"unknown actions and strategies are accepted", []*datamodels.HealthEvent{func() *datamodels.HealthEvent {
			e := newHealthEvent("n1")
			e.RecommendedAction, e.ProcessingStrategy = 77, 3
			return e
		}()}, codes.OK, "", []nodefault.Report{report(func(f *v1alpha1.Fault) { f.RecommendedAction, f.ObserveOnly = "UNKNOWN", true })}},
		"TooMany": {"a call has too many events", make([]*datamodels.HealthEvent, 1001), codes.InvalidArgument, "at most 1000", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m.reports = nil
			for i, e := range tc.events {
				if e == nil {
					tc.events[i] = &datamodels.HealthEvent{}
				}
			}
			err := intake.SendHealthEvents(t.Context(), conn, &datamodels.HealthEvents{Version: 1, Events: tc.events})
			wantCode(t, err, tc.code, tc.says)
			if strings.Contains(fmt.Sprint(err), "10.0.0.1") {
				t.Errorf("the answer tells of the API server: %v", err)
			}
			if diff := cmp.Diff(tc.want, m.stored()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// newFiles writes a certificate for the loopback address and its key.
func newFiles(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	err = errors.Join(os.WriteFile(certFile, text, 0o600), os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return certFile, keyFile, roots
}

func TestOverTCP(t *testing.T) {
	var m memory
	cfg := intake.GRPCConfig{Addr: "127.0.0.1:0"}
	var roots *x509.CertPool
	cfg.TLSCertFile, cfg.TLSKeyFile, roots = newFiles(t)
	s := serve(t, cfg, &m)
	conn := dial(t, s.Addr(), credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}))
	in := &datamodels.HealthEvents{Events: []*datamodels.HealthEvent{newHealthEvent("n1")}}
	for token, code := range map[string]codes.Code{
		"": codes.Unauthenticated, "Bearer bad": codes.Unauthenticated, "Bearer nobody": codes.PermissionDenied,
		"Bearer away": codes.Unavailable, "Bearer flood": codes.ResourceExhausted, "Bearer good": codes.OK,
	} {
		ctx := t.Context()
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", token)
		}
		wantCode(t, intake.SendHealthEvents(ctx, conn, in), code, "")
	}
	if got := len(m.stored()); got != 1 {
		t.Errorf("%d events stored, want that of the one who may", got)
	}
	answer, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: intake.PlatformConnectorName})
	if err != nil || answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health without a token: %v, %v", answer, err)
	}
}

// TestStops verifies that a running call is answered, and that no other call is accepted.
func TestStops(t *testing.T) {
	m := memory{block: make(chan struct{})}
	socket := newSocket(t)
	s, err := intake.NewListeningGRPCServer(t.Context(), intake.GRPCConfig{Socket: socket}, intake.GRPCDeps{Store: &m, Metrics: intake.NewMetrics(nil), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if s.Ready() == nil {
		t.Error("it is ready before it runs")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, answered := make(chan error, 1), make(chan error, 1)
	go func() { ended <- s.Part("grpc").Run(ctx) }()
	conn := dial(t, "unix:"+socket, insecure.NewCredentials())
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || s.Ready() != nil {
		t.Fatalf("it does not run: %v, %v", err, s.Ready())
	}
	go func() {
		answered <- intake.SendHealthEvents(t.Context(), conn, &datamodels.HealthEvents{Events: []*datamodels.HealthEvent{newHealthEvent("n1")}})
	}()
	m.block <- struct{}{} // the call is in the store
	stop()
	close(m.block)
	if err := errors.Join(<-answered, <-ended); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestSockets(t *testing.T) {
	path := newSocket(t)
	deps := intake.GRPCDeps{Store: &memory{}, Metrics: intake.NewMetrics(nil), Log: slog.New(slog.DiscardHandler)}
	first, err := intake.NewListeningGRPCServer(t.Context(), intake.GRPCConfig{Socket: path, SocketMode: "0600"}, deps)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if _, err := intake.NewListeningGRPCServer(t.Context(), intake.GRPCConfig{Socket: path}, deps); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second one: %v, want that another has it", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // like a killed process
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := intake.NewListeningGRPCServer(t.Context(), intake.GRPCConfig{Socket: path}, deps)
	if err != nil {
		t.Fatalf("after one that was killed: %v", err)
	}
	if err := second.Part("grpc").Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := intake.NewListeningGRPCServer(t.Context(), intake.GRPCConfig{Socket: path}, deps); err == nil {
		t.Error("a file that is no socket was taken away")
	}
	for says, cfg := range map[string]intake.GRPCConfig{"socket_mode": {Socket: newSocket(t), SocketMode: "rw"}, "authentication": {Addr: "127.0.0.1:0"}} {
		if _, err := intake.NewListeningGRPCServer(t.Context(), cfg, deps); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: got %v, want an error that says %q", cfg, err, says)
		}
	}
}

func FuzzGRPCHealthEvents(f *testing.F) {
	seed, err := proto.Marshal(&datamodels.HealthEvents{Version: 1, Events: []*datamodels.HealthEvent{newHealthEvent("n1")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{0x12, 0x06, 0x62, 0x04, 0x10, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, wire []byte) {
		var in datamodels.HealthEvents
		if proto.Unmarshal(wire, &in) != nil {
			return
		}
		for _, e := range in.GetEvents() {
			r, err := intake.EventOf(e).ToReport(time.Now())
			if err != nil && !errors.Is(err, intake.ErrInvalid) {
				t.Fatal(err)
			}
			if err == nil && (r.Fault.Source == "" || r.Fault.Check == "" || r.Fault.DetectedAt.IsZero() || len([]rune(r.Fault.Entity)) > 256) {
				t.Fatalf("cannot be stored: %+v", r)
			}
		}
	})
}
