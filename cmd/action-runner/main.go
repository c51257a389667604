// Command action-runner runs the plan of an execution in the Pod of its Job.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fleetloop/fleetloop/internal/execution/runner"
)

// terminationLog is the path from which a kubelet reads the termination message.
const terminationLog = "/dev/termination-log"

func main() {
	// A second signal does not end the process at once: a Pod that exceeds its
	// deadline and is then deleted receives two, and the result must still be written.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	env := os.LookupEnv //nolint:forbidigo // internal/settings would link YAML, JSON Schema and flags into the process that has the rights
	path := terminationLog
	if other, set := env(runner.EnvTerminationLog); set {
		path = other
	}
	code := runner.Run(ctx, env, os.Args[1:], os.Stdout, path)
	stop()
	os.Exit(code)
}
