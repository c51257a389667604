// Package telemetry creates the logger, the metrics registry and the tracing of a process.
//
// It has no global state: callers pass on its results. Tracing is off unless an OTLP endpoint is
// configured, and then costs nothing. An unreachable collector costs the spans and a log line, but
// never blocks work.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// LogConfig configures the logger. The zero value logs info and above as JSON.
type LogConfig struct {
	// Level is the minimum level.
	Level string `key:"level" env:"LOG_LEVEL" flag:"log-level" default:"info" validate:"oneof=debug info warn error" doc:"Minimum log level: debug, info, warn or error."`

	// Format is json or text.
	Format string `key:"format" env:"LOG_FORMAT" flag:"log-format" default:"json" validate:"oneof=json text" doc:"Log format: json or text."`

	// LevelVar, if not nil, is set to Level and changes the level of the
	// logger from then on.
	LevelVar *slog.LevelVar
}

// NewLogger returns a logger that writes to w. Levels are in lower case and durations in Go
// notation, in both formats.
func NewLogger(w io.Writer, cfg LogConfig) (*slog.Logger, error) {
	level, err := ParseLevel(cfg.Level)
	if err != nil {
		return nil, err
	}
	v := cfg.LevelVar
	if v == nil {
		v = new(slog.LevelVar)
	}
	v.Set(level)
	opts := &slog.HandlerOptions{Level: v, ReplaceAttr: formatLevelAndDurationAttrs}
	switch cfg.Format {
	case "", "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("unknown log format %q: use json or text", cfg.Format)
}

// ParseLevel parses the name of a level; the empty name is info.
func ParseLevel(name string) (slog.Level, error) {
	switch strings.ToLower(name) {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("unknown log level %q: use debug, info, warn or error", name)
}

func formatLevelAndDurationAttrs(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		// JSON would contain nanoseconds without a unit.
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	if len(groups) == 0 && a.Key == slog.LevelKey {
		if level, ok := a.Value.Any().(slog.Level); ok {
			a.Value = slog.StringValue(strings.ToLower(level.String()))
		}
	}
	return a
}
