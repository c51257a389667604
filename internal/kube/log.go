package kube

import (
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Logger is a logger for the Kubernetes libraries that writes to l.
func Logger(l *slog.Logger) logr.Logger { return logr.FromSlogHandler(l.Handler()) }

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
