package kube_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// TestLoggerIsQuiet: info messages of the libraries are logged at debug level, and
// errors at their level.
func TestLoggerIsQuiet(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level][]string{
		slog.LevelInfo:  {"broken"},
		slog.LevelDebug: {"started", "broken"},
	} {
		var out processtest.Buffer
		log := kube.NewLibraryLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))).WithName("library").WithValues("k", "v")
		log.Info("started")
		log.Error(errors.New("why"), "broken")
		for _, msg := range []string{"started", "broken"} {
			if got := strings.Contains(out.String(), "msg="+msg); got != strings.Contains(strings.Join(want, " "), msg) {
				t.Errorf("at level %s, %q is told: %v\n%s", level, msg, got, out.String())
			}
		}
	}
}
