// Package execution contains the end-to-end tests of executions: the controller as a process, a
// real API server, and Jobs with running Pods.
//
// In this package, containers are processes of this machine. The tests of package real run on a
// real node.
package execution

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
