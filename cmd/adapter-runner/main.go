// Command adapter-runner runs an adapter that a file describes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fleetloop/fleetloop/internal/app/adapterapp"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := adapterapp.NewCommand(os.Stdout, os.Stderr, settings.OSEnv).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "adapter-runner:", err)
		os.Exit(1)
	}
}
