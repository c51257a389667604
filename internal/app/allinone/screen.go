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
	console string // the URL of the console; empty without one

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

// writeAndShowGuide writes the example commands to a file and logs how to source it. With the live view it also
// prints them, because the log goes to a file.
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
	if !s.live {
		return nil
	}
	_, _ = fmt.Fprintf(s.env.Stderr, `
Try it in another terminal. First run:

  %s

This sets the environment for these commands and prints them:

%s
`, command, g.formatText()) // a closed stderr is no error
	return nil
}

func (s *screen) closeLogFile() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// liveViewOrProgressParts returns the parts that paint the run or log its progress.
func (s *screen) liveViewOrProgressParts(watch *FleetWatch) []lifecycle.Part {
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

const progressInterval = time.Second

// logProgress logs a line whenever the number of ready resources changes.
func (s *screen) logProgress(ctx context.Context, watch *FleetWatch) error {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	var last string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		snapshot := watch.Snapshot()
		progress := describeProgress(snapshot.Groups)
		if progress == "" || progress == last {
			continue
		}
		last = progress
		s.logReadyCounts(ctx, snapshot)
		if s.printProgress {
			// A closed stderr is no error.
			_, _ = fmt.Fprintf(s.env.Stderr, "ready: %s; %d cloud events published\n", progress, snapshot.Published)
		}
	}
}

// describeProgress returns how many resources of each kind are ready. It is empty before the first observation.
func describeProgress(groups []ResourceGroup) string {
	var counts []string
	for _, g := range groups {
		counts = append(counts, readyOfTotal(g)+" "+strings.ToLower(g.Title))
	}
	return strings.Join(counts, ", ")
}

// logReadyCounts logs how many resources of each kind are ready.
func (s *screen) logReadyCounts(ctx context.Context, snapshot FleetSnapshot) {
	var attrs []any
	for _, g := range snapshot.Groups {
		attrs = append(attrs, collectionOfGroup(g.Title), readyOfTotal(g))
	}
	attrs = append(attrs, "events", snapshot.Published)
	s.log.InfoContext(ctx, "demo fleet ready", attrs...)
}

// readyOfTotal returns a count such as 3/12.
func readyOfTotal(g ResourceGroup) string {
	return fmt.Sprintf("%d/%d", g.Phases[v1.PhaseReady], g.countResources())
}

func collectionOfGroup(title string) string {
	if title == "Clusters" {
		return v1.CollectionClusters
	}
	return v1.CollectionNodePools
}
