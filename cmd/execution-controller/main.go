// Command execution-controller runs KubernetesExecutions.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := executionapp.NewCommand(os.Stdout, os.Stderr, settings.OSEnv).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "execution-controller:", err)
		os.Exit(1)
	}
}
