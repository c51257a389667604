// Command picture writes an SVG of the live view of "fleetloop up --demo". It
// runs the demo in a terminal of script(1) and draws one frame of that run:
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
	defer stop()
	if err := run(ctx, *out, *width, *height, *share, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1) //nolint:gocritic // the signal handler dies with the process
	}
}

func run(ctx context.Context, out string, width, height int, share float64, command []string) error {
	if len(command) == 0 {
		return errors.New("no command: give it behind --")
	}
	// The settings of the terminal come first, because its size is asked for with each frame.
	line := fmt.Sprintf("stty cols %d rows %d; exec %s", width, height, strings.Join(command, " "))
	cmd := exec.CommandContext(ctx, "script", "--quiet", "--return", "--command", line, os.DevNull) //nolint:gosec // the command is the developer's
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	cmd.Stderr = os.Stderr
	typescript, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("run %q in a terminal: %w", strings.Join(command, " "), err)
	}
	frame, err := chooseFrame(string(typescript), share)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, []byte(drawSVG(frame, width)), 0o644); err != nil { //nolint:gosec // a picture of the repository, for everyone to read
		return fmt.Errorf("write %s: %w", out, err)
	}
	return nil
}
