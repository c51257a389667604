// Command fleetloop is the command line of the fleet API, and the whole of
// Fleetloop in one process: see fleetloop up.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fleetloop/fleetloop/internal/app/allinone"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := cli.Command(cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: settings.OSEnv})
	root.AddCommand(allinone.Command(os.Stdout, os.Stderr, settings.OSEnv))
	err := root.ExecuteContext(ctx)
	stop()
	os.Exit(cli.ExitCode(err))
}
