package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// parseFlagsAndDrawDemoFrame writes an SVG of the live view of "fleetloop up --demo". It runs the demo in a terminal
// by script(1) and draws one frame of that run:
//
//	go run ./tools/dev picture -out docs/images/demo.svg -- bin/fleetloop up --demo --exit-when-ready
func parseFlagsAndDrawDemoFrame(ctx context.Context, args []string, _ io.Writer) error {
	var o pictureOptions
	flags := flag.NewFlagSet("picture", flag.ExitOnError)
	flags.StringVar(&o.out, "out", "docs/images/demo.svg", "`file` to write")
	flags.IntVar(&o.width, "width", 96, "`columns` of the terminal")
	flags.IntVar(&o.height, "height", 34, "`lines` of the terminal")
	flags.Float64Var(&o.ready, "ready", 0.5, "`share` of clusters that are Ready in the frame to draw")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.command = flags.Args()
	return drawDemoFrameAsSVG(ctx, o)
}

// pictureOptions are the arguments of the job picture.
type pictureOptions struct {
	out           string
	width, height int
	ready         float64 // share of clusters
	command       []string
}

func drawDemoFrameAsSVG(ctx context.Context, o pictureOptions) error {
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
	frame, err := firstFrameWithReadyShare(string(typescript), o.ready)
	if err != nil {
		return fmt.Errorf("draw %q: %w", command, err)
	}
	picture := []byte(renderTerminalSVG(frame, o.width))
	if err := os.WriteFile(o.out, picture, 0o644); err != nil { //nolint:gosec // a picture of the repository
		return fmt.Errorf("write picture: %w", err)
	}
	return nil
}
