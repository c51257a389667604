// Package datamodels is the protocol of the health monitors: generated messages, and one
// service.
package datamodels

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The names of the service and its method in the protocol.
const (
	ServiceName                 = "datamodels.PlatformConnector"
	MethodHealthEventOccurredV1 = "/" + ServiceName + "/HealthEventOccurredV1"
)

// A PlatformConnectorServer receives health events.
type PlatformConnectorServer interface {
	HealthEventOccurredV1(ctx context.Context, events *HealthEvents) (*emptypb.Empty, error)
}

// Register registers the service with a server.
func Register(s grpc.ServiceRegistrar, srv PlatformConnectorServer) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: ServiceName,
		HandlerType: (*PlatformConnectorServer)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "HealthEventOccurredV1", Handler: healthEventOccurred}},
		Metadata:    "health_event.proto",
	}, srv)
}

func healthEventOccurred(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // the signature is that of grpc.MethodHandler
	in := new(HealthEvents)
	if err := decode(in); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, req any) (any, error) {
		return srv.(PlatformConnectorServer).HealthEventOccurredV1(ctx, req.(*HealthEvents)) //nolint:errcheck // both are what was registered and decoded
	}
	if intercept == nil {
		return handle(ctx, in)
	}
	return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: MethodHealthEventOccurredV1}, handle)
}

// HealthEventOccurredV1 sends health events.
func HealthEventOccurredV1(ctx context.Context, c grpc.ClientConnInterface, events *HealthEvents) error {
	return c.Invoke(ctx, MethodHealthEventOccurredV1, events, &emptypb.Empty{})
}
