// Command fleetloop-up runs all of Fleetloop in one process. The command up of
// fleetloop starts it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/fleetloop/fleetloop/internal/app/allinone"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP) // the terminal was closed
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	stdout := int(os.Stdout.Fd())
	root := allinone.NewProgramCommand(allinone.Env{
		Stdout: os.Stdout, Stderr: os.Stderr,
		LookupEnv: settings.OSEnv,
		Terminal:  term.IsTerminal(stdout),
		Size: func() (width, height int) {
			width, height, _ = term.GetSize(stdout)
			return width, height
		},
	})
	code := cli.Run(ctx, cli.Env{Stderr: os.Stderr}, root, os.Args[1:])
	stop()
	os.Exit(code)
}
