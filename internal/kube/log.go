package kube

import (
	"context"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Logger is a logger for the Kubernetes libraries that writes to l. What they
// tell of themselves when all is well is for whoever debugs them.
func Logger(l *slog.Logger) logr.Logger { return logr.FromSlogHandler(quiet{l.Handler()}) }

// quiet is a handler to which everything below a warning is for debugging.
type quiet struct{ slog.Handler }

// Enabled reports whether the handler wants what has become of a level.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return q.Handler.Enabled(ctx, lowerLevel(level))
}

// Handle passes a record on.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = lowerLevel(r.Level)
	return q.Handler.Handle(ctx, r)
}

// WithAttrs is as quiet.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup is as quiet.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

func lowerLevel(level slog.Level) slog.Level {
	if level >= slog.LevelWarn {
		return level
	}
	return min(level, slog.LevelDebug)
}

// taken is done once the libraries have a logger.
//
//nolint:gochecknoglobals // theirs is global, and may be set only once
var taken sync.Once

// TakeLogs has the Kubernetes libraries write to l what they would write to
// the standard error. Their logger is one for the whole process: the first
// call decides.
func TakeLogs(l *slog.Logger) {
	taken.Do(func() {
		klog.SetLoggerWithOptions(Logger(l), klog.ContextualLogger(true))
		log.SetLogger(Logger(l))
	})
}
