package intake

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// recoverPanics returns an option that turns a panic into an error of the call.
func recoverPanics(log *slog.Logger) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (answer any, err error) {
		defer func() {
			if p := recover(); p != nil {
				log.ErrorContext(ctx, "panic in call", "method", info.FullMethod, "panic", p, "stack", string(debug.Stack()))
				err = status.Error(codes.Internal, "internal error")
			}
		}()
		return next(ctx, req)
	})
}

// checkCallsExceptHealth returns an option that checks each call, except health checks.
func checkCallsExceptHealth(check func(ctx context.Context) error) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if info.FullMethod != healthpb.Health_Check_FullMethodName {
			if err := check(ctx); err != nil {
				return nil, err
			}
		}
		return next(ctx, req)
	})
}

// authenticateGRPCByToken returns the caller by the token. The error is a gRPC status.
func authenticateGRPCByToken(ctx context.Context, a authenticator, log *slog.Logger) (caller string, err error) {
	var header, address string
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		header = values[0]
	}
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	caller, err = a.Authenticate(ctx, header, address)
	switch {
	case err == nil:
		return caller, nil
	case errors.Is(err, ErrNoToken), errors.Is(err, ErrInvalidToken):
		return "", status.Error(codes.Unauthenticated, err.Error())
	case errors.Is(err, ErrForbidden):
		return "", status.Error(codes.PermissionDenied, err.Error())
	case errors.Is(err, ErrTooManyInvalidTokens):
		return "", status.Error(codes.ResourceExhausted, err.Error())
	}
	log.WarnContext(ctx, "authenticate caller failed", "err", err)
	return "", status.Error(codes.Unavailable, ErrAuthUnavailable.Error())
}

// socketCaller is the name of all callers over the socket. No owner of a token has this name.
const socketCaller = "unix socket"

// checkCallerRate returns an error if a caller exceeds its rate limit.
func checkCallerRate(limits *CallerLimits, caller string) error {
	if limits.Allow(caller, time.Now()) {
		return nil
	}
	return status.Errorf(codes.ResourceExhausted, "more than %g calls per second: send several events per call", limits.PerSecond())
}
