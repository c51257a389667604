// Command sentinel watches the fleet API, decides which resources are due and
// publishes cloud events for them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := sentinelapp.NewCommand(os.Stdout, os.Stderr, settings.OSEnv).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sentinel:", err)
		os.Exit(sentinelapp.ExitCode(err))
	}
}
