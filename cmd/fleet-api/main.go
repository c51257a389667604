// Command fleet-api serves the fleet API on PostgreSQL.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fleetloop/fleetloop/internal/app/apiapp"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := apiapp.NewCommand(os.Stdout, os.Stderr, settings.OSEnv).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet-api:", err)
		os.Exit(1)
	}
}
