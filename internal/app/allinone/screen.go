package allinone

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// Env holds the inputs that the command takes from its process.
type Env struct {
	Stdout, Stderr io.Writer
	LookupEnv      func(string) (string, bool)

	// Terminal is true if Stdout is a terminal, and Size returns its size.
	Terminal bool
	Size     func() (width, height int)
}

// isDrawable reports whether Stdout is a terminal that supports the live view.
func (e Env) isDrawable() bool {
	kind, _ := e.LookupEnv("TERM")
	return e.Terminal && kind != "" && kind != "dumb"
}

// screen is the output of a run: a live view with the logs in a file, or log lines.
type screen struct {
	env     Env
	live    bool
	logs    io.Writer
	file    *os.File // log file, or nil
	log     *slog.Logger
	hint    string // command that prints the examples
	console string // the URL of its page

	printProgress bool // because the log does not show it
}

// newScreen selects the output of the run. logDir is the folder for a log file.
func newScreen(env Env, cfg DemoConfig, logDir string) (screen, error) {
	s := screen{env: env, logs: env.Stderr, printProgress: cfg.printProgress}
	s.live = cfg.isLive(env)
	if s.printProgress {
		_, _ = fmt.Fprintln(env.Stderr, "starting; logging warnings only (--log-level=info logs everything)") // a closed stderr is no error
	}
	if !s.live {
		return s, nil
	}
	file, err := os.OpenFile(filepath.Join(logDir, "fleetloop.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // in the folder of our data
	if err != nil {
		return s, fmt.Errorf("open log file: %w", err)
	}
	s.logs, s.file = file, file
	// The live view starts with the first part. Building the parts takes seconds,
	// or minutes if PostgreSQL is downloaded.
	_, _ = fmt.Fprintf(env.Stderr, "starting; log file: %s\n", file.Name()) // a closed stderr is no error
	return s, nil
}

// writeAndShowGuide prints the example commands. With the live view it also writes them to a file, because
// the view covers the terminal.
func (s *screen) writeAndShowGuide(ctx context.Context, l *components, scriptDir string) error {
	g, err := l.newGuide()
	if err != nil {
		return err
	}
	command, err := g.writeScript(scriptDir)
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "commands to try", "command", command)
	s.hint, s.console = command, g.console
	if s.live { // a closed stderr is no error
		_, _ = fmt.Fprintf(s.env.Stderr, "\nTry it in another terminal. First run:\n\n  %s\n\nThis sets the environment for these commands and prints them:\n\n%s\n", command, g.formatText())
	}
	return nil
}

func (s *screen) closeLogFile() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// displayParts returns the parts that paint the run or log its progress.
func (s *screen) displayParts(watch *FleetWatch) []lifecycle.Part {
	if s.live {
		view := LiveView{
			Out:  s.env.Stdout,
			Size: s.env.Size,
			Snapshot: func() FleetSnapshot {
				snap := watch.Snapshot()
				snap.Hint, snap.Console = s.hint, s.console
				return snap
			},
			Colour: terminal.WantsColour(s.env.LookupEnv, s.env.Terminal),
		}
		return []lifecycle.Part{{Name: "live view", Run: view.Run}}
	}
	return []lifecycle.Part{{Name: "progress", Run: func(ctx context.Context) error { return s.logProgress(ctx, watch) }}}
}

const progressEvery = time.Second

// logProgress logs a line whenever the number of ready resources changes.
func (s *screen) logProgress(ctx context.Context, watch *FleetWatch) error {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	var last string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		snap := watch.Snapshot()
		attrs, counts := []any{}, []string{}
		for _, g := range snap.Groups {
			total := 0
			for _, n := range g.Phases {
				total += n
			}
			ready := fmt.Sprintf("%d/%d", g.Phases[v1.PhaseReady], total)
			attrs, counts = append(attrs, collectionOfGroup(g.Title), ready), append(counts, ready+" "+strings.ToLower(g.Title))
		}
		if line := fmt.Sprint(attrs...); len(attrs) > 0 && line != last {
			last = line
			s.log.InfoContext(ctx, "demo fleet ready", append(attrs, "events", snap.Published)...)
			if s.printProgress {
				_, _ = fmt.Fprintf(s.env.Stderr, "ready: %s; %d cloud events published\n", strings.Join(counts, ", "), snap.Published) // a closed stderr is no error
			}
		}
	}
}

// collectionOfGroup returns the collection of a group of the demo.
func collectionOfGroup(title string) string {
	if title == "Clusters" {
		return v1.CollectionClusters
	}
	return v1.CollectionNodePools
}
