package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestMain lets this program be a child as well.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArgument {
		if err := runSentinelChild(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The ignored goroutine is of the Pub/Sub library and begins with the process.
	kubebedtest.Main(pgtest.WithServer(m), kubebed.Options{}, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}
