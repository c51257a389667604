package kube

import (
	"context"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Logger returns a logger for the Kubernetes libraries that writes to l. Their messages
// below warning are logged at debug level.
func Logger(l *slog.Logger) logr.Logger { return logr.FromSlogHandler(quiet{l.Handler()}) }

// quiet is a handler that lowers every level below warning to debug.
type quiet struct{ slog.Handler }

// Enabled reports whether the handler accepts the lowered level.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return q.Handler.Enabled(ctx, infoToDebug(level))
}

// Handle passes a record with the lowered level to the handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = infoToDebug(r.Level)
	return q.Handler.Handle(ctx, r)
}

// WithAttrs returns a quiet handler with attributes.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup returns a quiet handler with a group.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

func infoToDebug(level slog.Level) slog.Level {
	if level >= slog.LevelWarn {
		return level
	}
	return min(level, slog.LevelDebug)
}

// taken is done once the libraries have received a logger.
//
//nolint:gochecknoglobals // theirs is global, and may be set only once
var taken sync.Once

// RedirectLibraryLogs makes the Kubernetes libraries write to l instead of the standard error.
// Their logger is global to the process: the first call decides.
func RedirectLibraryLogs(l *slog.Logger) {
	taken.Do(func() {
		klog.SetLoggerWithOptions(Logger(l), klog.ContextualLogger(true))
		log.SetLogger(Logger(l))
	})
}
