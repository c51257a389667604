// Command picture writes an SVG of the live view of "fleetloop up --demo". It
// runs the demo in a terminal by script(1) and draws one frame of that run:
//
//	go run ./tools/picture -out docs/images/demo.svg -- bin/fleetloop up --demo --exit-when-ready
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
)

func main() {
	out := flag.String("out", "docs/images/demo.svg", "`file` to write")
	width := flag.Int("width", 96, "`columns` of the terminal")
	height := flag.Int("height", 34, "`lines` of the terminal")
	share := flag.Float64("ready", 0.5, "`share` of clusters that are Ready in the frame to draw")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, options{out: *out, width: *width, height: *height, ready: *share, command: flag.Args()})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// options are the arguments of the command.
type options struct {
	out           string
	width, height int
	ready         float64 // share of clusters
	command       []string
}

func run(ctx context.Context, o options) error {
	if len(o.command) == 0 {
		return errors.New("no command: give it after --")
	}
	command := strings.Join(o.command, " ")
	// stty runs first, because the view reads the size of the terminal for each frame.
	line := fmt.Sprintf("stty cols %d rows %d; exec %s", o.width, o.height, command)
	//nolint:gosec // the command is the developer's
	cmd := exec.CommandContext(ctx, "script", "--quiet", "--return", "--command", line, os.DevNull)
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	cmd.Stderr = os.Stderr
	typescript, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("run %q in a terminal: %w", command, err)
	}
	frame, err := chooseFrame(string(typescript), o.ready)
	if err != nil {
		return fmt.Errorf("draw %q: %w", command, err)
	}
	picture := []byte(drawSVG(frame, o.width))
	if err := os.WriteFile(o.out, picture, 0o644); err != nil { //nolint:gosec // a picture of the repository
		return fmt.Errorf("write picture: %w", err)
	}
	return nil
}
