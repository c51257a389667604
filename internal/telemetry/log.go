// Package telemetry makes what a process tells about itself: its logger, its
// metrics registry and its tracing.
//
// Nothing in it is global: what is made is handed on. Tracing is off unless
// an OTLP endpoint is given, and then costs nothing; a collector that can not
// be reached costs the spans and a log line, never the work.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// LogConfig says what is logged and how. The zero value is info and above as
// JSON.
type LogConfig struct {
	// Level is the least level that is logged.
	Level string `key:"level" env:"LOG_LEVEL" flag:"log-level" default:"info" validate:"oneof=debug info warn error" doc:"Minimum log level: debug, info, warn or error."`

	// Format is json or text.
	Format string `key:"format" env:"LOG_FORMAT" flag:"log-format" default:"json" validate:"oneof=json text" doc:"Log format: json or text."`

	// LevelVar, if not nil, is set to Level and changes the level of the
	// logger from then on.
	LevelVar *slog.LevelVar
}

// NewLogger makes a logger that writes to w. Levels are written in lower case
// and durations as Go writes them, in both formats.
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
	opts := &slog.HandlerOptions{Level: v, ReplaceAttr: replaceAttr}
	switch cfg.Format {
	case "", "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("unknown log format %q: use json or text", cfg.Format)
}

// ParseLevel reads the name of a level; the empty name is info.
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

func replaceAttr(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		// JSON would have nanoseconds, with no unit to tell.
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	if len(groups) == 0 && a.Key == slog.LevelKey {
		if level, ok := a.Value.Any().(slog.Level); ok {
			a.Value = slog.StringValue(strings.ToLower(level.String()))
		}
	}
	return a
}
