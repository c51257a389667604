// Command node-fault-controller takes faulty nodes out of service, starts their
// repair, and returns them to service.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fleetloop/fleetloop/internal/app/nodefaultapp"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := nodefaultapp.NewCommand(os.Stdout, os.Stderr, settings.OSEnv).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "node-fault-controller:", err)
		os.Exit(1)
	}
}
