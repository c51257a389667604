package intake

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/fleetloop/fleetloop/internal/nodefault/intake/datamodels"
)

// The names of the service and its method in the protocol of the health monitors. The messages are
// in package datamodels.
const (
	PlatformConnectorName       = "datamodels.PlatformConnector"
	methodHealthEventOccurredV1 = "/" + PlatformConnectorName + "/HealthEventOccurredV1"
)

// A platformConnectorServer receives health events.
type platformConnectorServer interface {
	HealthEventOccurredV1(ctx context.Context, events *datamodels.HealthEvents) (*emptypb.Empty, error)
}

// registerPlatformConnector registers the service with a server.
func registerPlatformConnector(s grpc.ServiceRegistrar, srv platformConnectorServer) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: PlatformConnectorName,
		HandlerType: (*platformConnectorServer)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "HealthEventOccurredV1", Handler: handleHealthEventOccurred}},
		Metadata:    "health_event.proto",
	}, srv)
}

func handleHealthEventOccurred(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // the signature is that of grpc.MethodHandler
	in := new(datamodels.HealthEvents)
	if err := decode(in); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, req any) (any, error) {
		return srv.(platformConnectorServer).HealthEventOccurredV1(ctx, req.(*datamodels.HealthEvents)) //nolint:errcheck // both are what was registered and decoded
	}
	if intercept == nil {
		return handle(ctx, in)
	}
	return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: methodHealthEventOccurredV1}, handle)
}

// SendHealthEvents sends health events to a server, as the health monitors do.
func SendHealthEvents(
	ctx context.Context, c grpc.ClientConnInterface, events *datamodels.HealthEvents,
) error {
	return c.Invoke(ctx, methodHealthEventOccurredV1, events, &emptypb.Empty{})
}
