package intake_test

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake/datamodels"
)

// TestEachCallerHasABound verifies that a caller that exceeds its rate limit is rejected,
// and that others are not.
func TestEachCallerHasABound(t *testing.T) {
	var m memory
	limits := intake.NewCallerLimits(0.001, 2)
	socket := newSocket(t)
	s := serve(t, intake.GRPCConfig{Addr: "127.0.0.1:0", Socket: socket}, &m, func(d *intake.GRPCDeps) { d.Callers = limits })
	tcp, local := dial(t, s.Addr(), insecure.NewCredentials()), dial(t, "unix:"+socket, insecure.NewCredentials())
	send := func(conn *grpc.ClientConn, token string) error {
		ctx := t.Context()
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", token)
		}
		return intake.SendHealthEvents(ctx, conn, &datamodels.HealthEvents{Events: []*datamodels.HealthEvent{newHealthEvent("n1")}})
	}
	for _, tc := range []struct {
		conn  *grpc.ClientConn
		token string
	}{{tcp, "Bearer good"}, {tcp, "Bearer other"}, {local, ""}} {
		for range 2 {
			wantCode(t, send(tc.conn, tc.token), codes.OK, "")
		}
		wantCode(t, send(tc.conn, tc.token), codes.ResourceExhausted, "send several events per call")
	}
	if limits.Allow("monitor", time.Now()) {
		t.Error("what was sent by gRPC does not count elsewhere")
	}
	if got := len(m.stored()); got != 6 {
		t.Errorf("%d events stored, want 6", got)
	}
	for _, conn := range []*grpc.ClientConn{tcp, local} {
		for range 5 {
			if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
				t.Errorf("health: %v", err)
			}
		}
	}
}
