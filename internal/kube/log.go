package kube

import (
	"context"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// NewLibraryLogger returns a logger for the Kubernetes libraries that writes to l. Their messages
// below warning are logged at debug level.
func NewLibraryLogger(l *slog.Logger) logr.Logger {
	return logr.FromSlogHandler(debugBelowWarnHandler{l.Handler()})
}

// debugBelowWarnHandler is a handler that lowers every level below warning to debug.
type debugBelowWarnHandler struct{ slog.Handler }

// Enabled reports whether the handler accepts the lowered level.
func (q debugBelowWarnHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return q.Handler.Enabled(ctx, lowerBelowWarnToDebug(level))
}

// Handle passes a record with the lowered level to the handler.
func (q debugBelowWarnHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = lowerBelowWarnToDebug(r.Level)
	return q.Handler.Handle(ctx, r)
}

// WithAttrs returns a quiet handler with attributes.
func (q debugBelowWarnHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugBelowWarnHandler{q.Handler.WithAttrs(attrs)}
}

// WithGroup returns a quiet handler with a group.
func (q debugBelowWarnHandler) WithGroup(name string) slog.Handler {
	return debugBelowWarnHandler{q.Handler.WithGroup(name)}
}

func lowerBelowWarnToDebug(level slog.Level) slog.Level {
	if level >= slog.LevelWarn {
		return level
	}
	return min(level, slog.LevelDebug)
}

// libraryLoggerSet is done once the libraries have received a logger.
//
//nolint:gochecknoglobals // theirs is global, and may be set only once
var libraryLoggerSet sync.Once

// RedirectLibraryLogs makes the Kubernetes libraries write to l instead of the standard error.
// Their logger is global to the process: the first call decides.
func RedirectLibraryLogs(l *slog.Logger) {
	libraryLoggerSet.Do(func() {
		klog.SetLoggerWithOptions(NewLibraryLogger(l), klog.ContextualLogger(true))
		log.SetLogger(NewLibraryLogger(l))
	})
}
