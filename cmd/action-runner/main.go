// Command action-runner does what the plan of an execution says, in the Pod of
// its Job.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fleetloop/fleetloop/internal/execution/job/input"
	"github.com/fleetloop/fleetloop/internal/execution/runner"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// terminationLog is where a kubelet looks.
const terminationLog = "/dev/termination-log"

func main() {
	// A second signal does not end it at once: a Pod that is over time and then
	// deleted gets two, and the result is to be written all the same.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	path := terminationLog
	if other, set := settings.OSEnv(input.TerminationLog); set {
		path = other
	}
	code := runner.Run(ctx, settings.OSEnv, os.Args[1:], os.Stdout, path)
	stop()
	os.Exit(code)
}
