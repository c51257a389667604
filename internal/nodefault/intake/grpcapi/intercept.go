package grpcapi

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fleetloop/fleetloop/internal/nodefault/intake/auth"
)

// recovered has a panic end one call, and not the process.
func recovered(log *slog.Logger) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
		defer func() {
			if p := recover(); p != nil {
				log.ErrorContext(ctx, "panic in a call", "method", info.FullMethod, "panic", p, "stack", string(debug.Stack()))
				err = status.Error(codes.Internal, "internal error")
			}
		}()
		return next(ctx, req)
	})
}

// authenticated lets in who has a token. How the server is may be asked by all.
func authenticated(a authenticator, log *slog.Logger) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if info.FullMethod == healthpb.Health_Check_FullMethodName {
			return next(ctx, req)
		}
		var header string
		if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
			header = values[0]
		}
		_, err := a.Authenticate(ctx, header)
		switch {
		case err == nil:
			return next(ctx, req)
		case errors.Is(err, auth.ErrNoToken), errors.Is(err, auth.ErrInvalidToken):
			return nil, status.Error(codes.Unauthenticated, err.Error())
		case errors.Is(err, auth.ErrForbidden):
			return nil, status.Error(codes.PermissionDenied, err.Error())
		}
		log.WarnContext(ctx, "caller could not be checked", "err", err)
		return nil, status.Error(codes.Unavailable, auth.ErrUnavailable.Error())
	})
}
