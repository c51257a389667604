// Package outage stops the API server for a minute while executions are in progress, and starts
// it again.
package outage

import (
	"os"
	"testing"

	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

func TestMain(m *testing.M) {
	if code, played := fleettest.RunFakeImage(os.Args); played {
		os.Exit(code) // this process is a program of a Pod
	}
	fleettest.Main(m, fleettest.ProcessNode)
}
